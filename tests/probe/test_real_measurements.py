"""The measurements of `--depth full` with real releases, on the CPU."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from validator.model.report import CheckOutcome, CheckResult, read_report

from .environments import AS_BUILT_2_21, UNOPTIMIZED, tensorflow_environment
from .unpacked import unpacked_probe

pytestmark = pytest.mark.engine

#: With Keras 2 and with Keras 3.
RELEASES = {"2.15.1": ("tensorflow[and-cuda]==2.15.1",), "2.21.0": AS_BUILT_2_21}
MEASUREMENTS = ("xla_speedup", "memory", "multi_gpu", "input_pipeline")
#: Bytes of the evidence of all of them.
SIZE = 40_000


#: What makes a measurement long, in the sources of `speed`: for how many seconds they measure, and the
#: model. A model with an eighth of the work runs the same code.
_SHORTER = {
    re.compile(rb"(?<=started > )enough_s"): b"0.0",
    re.compile(rb'(?<="CPU": Size\()image=32, width=16'): b"image=16, width=8",
}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a probe that measures a small model, in as few rounds as it may: the tests are not about good
    figures."""
    directory = unpacked_probe(tmp_path_factory.mktemp("probe"))
    path = directory / "validator" / "probe" / "checks" / "speed.py"
    for pattern, shorter in _SHORTER.items():
        content, count = pattern.subn(shorter, path.read_bytes())
        assert count == 1
        path.write_bytes(content)
    return directory


@pytest.fixture(scope="module", params=list(RELEASES))
def found(request: pytest.FixtureRequest, archive: Path) -> dict[str, CheckResult]:
    only = [argument for name in MEASUREMENTS for argument in ("--only", name)]
    done = subprocess.run(
        [tensorflow_environment(RELEASES[request.param]), archive, *only],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "XLA_FLAGS": UNOPTIMIZED},
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    )
    report = read_report(done.stdout)
    return {check.id: check for check in report.checks if check.id in MEASUREMENTS}


def test_each_measurement_runs_on_the_cpu_and_says_so(found: dict[str, CheckResult]) -> None:
    outcomes = {name: (check.outcome, check.sentence) for name, check in found.items()}
    wanted = dict.fromkeys(MEASUREMENTS, CheckOutcome.PASS) | {"multi_gpu": CheckOutcome.SKIP}
    assert {name: outcome for name, (outcome, _) in outcomes.items()} == wanted, outcomes
    assert {check.evidence.raw["device_type"] for check in found.values()} == {"CPU"}
    assert sum(len(json.dumps(check.evidence.raw)) for check in found.values()) < SIZE


def test_eager_graph_and_xla_agree_and_each_has_its_figures(found: dict[str, CheckResult]) -> None:
    evidence = found["xla_speedup"].evidence.raw
    assert 0 < evidence["largest_difference"] < 3e-4
    modes = {entry["mode"]: entry for entry in evidence["modes"]}
    assert list(modes) == ["eager", "graph", "xla"]
    # The compiled step is another program: it agrees, but not to the last bit.
    assert modes["eager"]["losses"] == modes["graph"]["losses"] != modes["xla"]["losses"]
    assert modes["xla"]["compile_s"] > modes["graph"]["compile_s"] > 0
    for entry in modes.values():
        assert entry["step_s"]["samples"] >= 3
        assert entry["peak_bytes"] is entry["kernels_per_step"] is None
        assert entry["losses"][-1] < entry["losses"][0]
    assert evidence["kernels_unknown"] == {"code": "kernels_only_on_gpu"}


def test_memory_runs_out_and_is_released(found: dict[str, CheckResult]) -> None:
    evidence = found["memory"].evidence.raw
    assert evidence["exhausted"]["raised"]["type"] == "ResourceExhaustedError"
    assert evidence["exhausted"]["recovered"] is True
    assert evidence["exhausted"]["late_configuration"]["type"] == "RuntimeError"
    assert [entry["mode"] for entry in evidence["leak"]] == ["graph", "xla"]
    assert {len(entry["bytes"]) for entry in evidence["leak"]} == {6}
    assert evidence["growth"] is evidence["whole"] is None


def test_two_logical_cpus_train_as_one(found: dict[str, CheckResult]) -> None:
    evidence = found["multi_gpu"].evidence.raw
    assert evidence["devices"] == {"count": 2, "kind": "logical CPU"}
    assert evidence["step"]["replicas"] == evidence["all_reduce"]["replicas"] == 2
    assert evidence["step"]["largest_weight_difference"] < 1e-5
    assert evidence["all_reduce"]["wrong"] == evidence["all_reduce"]["nccl_operations"] == 0


def test_the_pipeline_is_read_and_its_waiting_time_measured(found: dict[str, CheckResult]) -> None:
    evidence = found["input_pipeline"].evidence.raw
    assert evidence["records"]["right"] == evidence["records"]["count"] == 512
    batches = {entry["examples"]: entry for entry in evidence["batches"]}
    assert list(batches) == [1, 8, 32, 128]
    for entry in batches.values():
        for feed in ("memory", "pipeline"):
            assert 0 < entry[feed]["waiting_share"]["median"] < 1
            assert entry[feed]["steps_per_s"]["samples"] >= 3
            per_step = entry[feed]["examples_per_s"] / entry[feed]["steps_per_s"]["median"]
            assert per_step == pytest.approx(entry["examples"])
