"""Runs the checks that compute with a real TensorFlow, and prints their results by fault as JSON.

Usage: ask_gate.py ARCHIVE DIRECTORY MODE ASKED. The mode is `cpu`, for checks on the CPU as it is, or a
precision of `simulated_gpu`, for checks that compute on a GPU that is simulated: as it is (the fault `none`),
or with a fault. ASKED has the names of the checks by fault, as JSON. XLA dumps to the directory.
"""

import contextlib
import importlib
import json
import os
import sys
import traceback
from typing import Any
from unittest import mock

ARCHIVE, DIRECTORY, MODE, ASKED = sys.argv[1:]
sys.path.insert(0, ARCHIVE)
NONE, CPU = "none", "cpu"
if MODE != CPU:
    os.environ["XLA_FLAGS"] += f" --xla_dump_to={DIRECTORY} --xla_dump_hlo_as_text"
    # Otherwise `set_jit` makes no clusters without a GPU.
    os.environ["TF_XLA_FLAGS"] = "--tf_xla_cpu_global_jit"
import tensorflow as tf  # noqa: E402 - the archive and the variables come first

from validator.probe import checks  # noqa: E402
from validator.probe.check import Context  # noqa: E402

simulated_gpu = importlib.import_module("simulated_gpu")
BY_ID = {check.id: check for check in checks.CHECKS}


def answered(name: str) -> dict[str, Any]:
    try:
        result = BY_ID[name].run(Context({}, None, tf))
    except Exception:  # the test shows what was raised, and the others go on
        return {"outcome": "raised", "sentence": traceback.format_exc()[-3000:], "codes": [], "evidence": {}}
    return {
        "outcome": result.outcome,
        "sentence": result.sentence,
        "codes": sorted({problem["code"] for problem in result.problems}),
        "evidence": result.evidence,
    }


def broken(name: str, check: str) -> dict[str, Any]:
    with simulated_gpu.simulated(tf, check, MODE, DIRECTORY) as gpu, contextlib.ExitStack() as stack:

        def put(place: Any, attribute: str, new: Any) -> None:
            stack.enter_context(mock.patch.object(place, attribute, new))

        if name != NONE:
            simulated_gpu.FAULTS[name].make(gpu, put)
        return answered(check)


def asked(name: str, check: str) -> dict[str, Any]:
    return answered(check) if MODE == CPU else broken(name, check)


results = {name: {check: asked(name, check) for check in names} for name, names in json.loads(ASKED).items()}
print(json.dumps(results, default=str))
