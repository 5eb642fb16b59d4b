"""Evidence with which the checks that compute pass, as they write it on a GPU; tests change one thing in
it."""

from __future__ import annotations

import json
import sys
from typing import Any

from validator.probe import checks
from validator.probe.check import Result

GPU = "/job:localhost/replica:0/task:0/device:GPU:0"
CPU = "/job:localhost/replica:0/task:0/device:CPU:0"
FUSED = "__cudnn$convBiasActivationForward"
LOSSES = [2.3, 2.2, 2.1, 2.0, 1.9]


def result(name: str, **changes: Any) -> dict[str, Any]:
    return {"name": name, "device": GPU, "difference": 1e-6, "finite": True, **changes}


def program(*targets: str) -> dict[str, Any]:
    return {"module": "a_inference_step_1__.2", "instructions": 47, "sha256": "0", "targets": list(targets)}


def _trained(jit: bool | None) -> dict[str, Any]:
    return {
        "losses": LOSSES,
        "largest_difference": 0.0,
        "jit_compile": jit,
        "uncompiled": 0 if jit else 8,
        "device": GPU,
    }


_RESOLVED = {"default": True, "true": True, "false": False, "auto": True, "warning": None}
_KERNELS = [{"op": op, "device": "GPU:0", "count": 1} for op in ("CudnnRNNV3", "CudnnRNNBackpropV3")]
_STATE = {
    "uncorrected_errors": 0,
    "remapping_pending": False,
    "remapping_failed": False,
    "clocks": True,
    "processes": 0,
}
_EVIDENCE: dict[str, dict[str, Any]] = {
    "xla_convolution": {
        "device_type": "GPU",
        "types": ["float32", "float16"],
        "programs": [
            {
                "program": "forward and gradient",
                "type": type_,
                "precision": precision,
                "tolerance": 2e-2,
                "error": None,
                "compile_s": 2.0,
                "hlo": program(FUSED),
                "results": [result("it")],
            }
            for type_, precision in (("float32", "tf32"), ("float16", "float16"))
        ],
    },
    "keras_jit": {
        "device_type": "GPU",
        "keras": {"package": "keras", "version": "3.15.1"},
        "steps": 5,
        "precision": "tf32",
        "resolved": {"classifier": _RESOLVED, "recurrent": _RESOLVED},
        "off": _trained(False),
        "on": _trained(True),
        "auto": _trained(True),
        "hlo": program("__cudnn$convForward"),
        "refused_off": None,
        "refused_on": "InvalidArgumentError: XLA_GPU_JIT: PyFunc",
    },
    "attention": {
        "device_type": "GPU",
        "types": ["float16"],
        "runs": [
            {
                "type": "float16",
                "mode": mode,
                "tolerance": 1.2e-2,
                "error": None,
                "hlo": program() if mode == "compiled" else None,
                "results": [result("attention"), result("gradient by input")],
                "compute_dtype": "float16",
                "variable_dtype": "float32",
            }
            for mode in ("uncompiled", "compiled")
        ],
    },
    "embedding": {
        "device_type": "GPU",
        "rows": 50,
        "lookups": 384,
        "runs": [
            {
                "mode": mode,
                "error": None,
                "hlo": program() if mode == "compiled" else None,
                "results": [result("lookup"), result("gradient"), result("step")],
            }
            for mode in ("uncompiled", "compiled")
        ],
    },
    "cudnn_rnn": {
        "device_type": "GPU",
        "keras": {"package": "keras", "version": "3.15.1"},
        "precision": "tf32",
        "tolerance": 4e-2,
        "layers": [
            {"layer": name, "kernels": _KERNELS, "results": [result("states")]} for name in ("LSTM", "GRU")
        ],
    },
    "data_feed": {
        "device_type": "GPU",
        "devices": [GPU],
        "batches": {"count": 4, "read": 4, "right": 4},
        "losses": LOSSES[:4],
        "losses_memory": LOSSES[:4],
        "tolerance": 1e-3,
    },
    "save_load": {
        "device_type": "GPU",
        "tensorflow": "2.21.0",
        "keras": {"package": "keras", "version": "3.15.1"},
        "formats": [
            {"format": name, "offered": True, "error": None, "result": result(name)}
            for name in ("a checkpoint", "a SavedModel", "weights in HDF5", ".keras")
        ],
        "precision": "tf32",
        "tolerance": 1.6e-2,
        "untrained_difference": 0.4,
    },
    "gpu_health": {
        "begun": True,
        "ended": True,
        "error": None,
        "xid_sources": ["nvml"],
        "gpus": [
            {
                "uuid": "GPU-1",
                "mig": False,
                "before": _STATE,
                "after": _STATE,
                "readings": 100,
                "reasons": {"sw_power_cap": {"readings": 90, "in_a_row": 90}},
                "xids": [],
                "others_during": 0,
            }
        ],
    },
}


CHECKS = tuple(_EVIDENCE)


def judged(check: str, *path: str | int, **changes: Any) -> Result:
    """Return what a check says about its evidence; at the end of the path some fields are changed."""
    [found] = [entry for entry in checks.CHECKS if entry.id == check]
    judge = getattr(sys.modules[found.run.__module__], f"judge_{check}")
    result: Result = judge(evidence(check, *path, **changes))
    return result


def evidence(check: str, *path: str | int, **changes: Any) -> dict[str, Any]:
    """Return the evidence of a check; at the end of the path some fields are changed."""
    whole: dict[str, Any] = json.loads(json.dumps(_EVIDENCE[check]))
    place: Any = whole
    for step in path:
        place = place[step]
    place.update(changes)
    return whole
