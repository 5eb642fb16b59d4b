"""Every required check, failing alone for a reason that it found itself, keeps a report from being
certified."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from validator.model.record import Verdict
from validator.model.report import report_of
from validator.model.verdict import HEALTH, PROBE_VERSION, REQUIRED_CHECKS, Reason, judge
from validator.probe import cli as probe_report
from validator.probe import installed, loader
from validator.probe.check import Context, Result
from validator.probe.checks import CHECKS, compute, environment, libraries, packages
from validator.probe.child import Answer
from validator.probe.stages import Progress, Stage
from validator.probe.xla import Search

from ..records.values import OUTSIDE, document
from .checks.test_silent_cpu import seen
from .passing import CPU, evidence, judged, result
from .test_checks import XLA, imported


@dataclass
class Machine:
    """A machine with a GPU, whose facts a case changes."""

    facts: dict[str, Any]
    patch: pytest.MonkeyPatch
    directory: Path

    def tensorflow(self, **fields: Any) -> None:
        self.facts["tensorflow"] = {
            "version": "2.21.0",
            "directory": str(self.directory / "tensorflow"),
            "build": {"is_cuda_build": True, "cuda_version": "12.5.1", "cudnn_version": "9"},
            "built_with": {"nvidia-cudnn-cu12": "9.3.0.75"},
            "built_with_source": "metadata",
            **fields,
        }

    def opens(self, *values: Mapping[str, Any]) -> None:
        """Say what the loader opens."""
        for name in ("open_libraries", "open_cudnn"):
            self.patch.setattr(loader, name, lambda directory: Answer(list(values), None, ""))


def _driver(machine: Machine) -> Result:
    machine.facts["host"]["kernel_driver"] = "550.54.14"
    return environment.driver.run(Context(machine.facts))


def _gpu_device_nodes(machine: Machine) -> Result:
    machine.facts["host"]["device_nodes"][0].update(opens=False, error="Permission denied")
    return environment.gpu_device_nodes.run(Context(machine.facts))


def _environment(machine: Machine) -> Result:
    machine.facts["environment"]["variables"] = {"CUDA_VISIBLE_DEVICES": "-1"}
    return environment.environment.run(Context(machine.facts))


def _python_stack(machine: Machine) -> Result:
    machine.patch.setattr(packages, "_origin", lambda package: f"/site/{package}")
    machine.patch.setattr(packages, "_beside_metadata", lambda origin, names: True)
    machine.tensorflow(requires=["numpy>=1.26.0"], distribution="tensorflow")
    machine.facts["environment"]["packages"] = {"tensorflow": "2.21.0", "numpy": "1.20.0"}
    return packages.python_stack.run(Context(machine.facts))


def _lock_match(machine: Machine) -> Result:
    machine.facts["environment"]["packages"] = {"numpy": "2.0.0"}
    return packages.lock_match.run(Context(machine.facts, {"numpy": "2.0.1"}))


def _cuda_libraries(machine: Machine) -> Result:
    machine.tensorflow()
    attempts = {"libcudnn.so.9": "libcudnn.so.9: cannot open shared object file"}
    machine.opens({"phase": "gate", "attempts": attempts})
    return libraries.cuda_libraries.run(Context(machine.facts))


def _cudnn_load(machine: Machine) -> Result:
    machine.tensorflow()
    machine.opens({"soname": "libcudnn.so.9", "path": "/lib/libcudnn.so.9", "version": "9.1.0"})
    return libraries.cudnn_load.run(Context(machine.facts))


def _library_conflicts(machine: Machine) -> Result:
    """An older cuDNN on LD_LIBRARY_PATH comes before the wheel's."""
    machine.tensorflow()
    wheel = machine.directory / "nvidia/cudnn/lib"
    older = machine.directory / "old/libcudnn.so.9"
    for file in (wheel / "libcudnn.so.9", older):
        file.parent.mkdir(parents=True)
        file.touch()
    (machine.directory / "nvidia_cudnn_cu12-9.3.0.75.dist-info").mkdir()
    machine.patch.setattr(installed, "runpath", lambda path: [str(wheel)])
    machine.patch.setattr(installed, "cached", dict)
    machine.opens(
        {"phase": "gate", "attempts": {"libcudnn.so.9": None}},
        {"soname": "libcudnn.so.9", "path": str(older), "version": "9.1.0"},
    )
    machine.facts["environment"]["variables"] = {"LD_LIBRARY_PATH": str(older.parent)}
    return libraries.library_conflicts.run(Context(machine.facts))


def _compute_capability(machine: Machine) -> Result:
    machine.tensorflow(
        build={
            "is_cuda_build": True,
            "cuda_version": "12.5.1",
            "cuda_compute_capabilities": ["sm_60", "sm_70", "sm_80", "sm_89", "compute_90"],
        }
    )
    machine.opens({"soname": "libcudnn.so.9", "path": "/lib/libcudnn.so.9", "version": "9.3.0"})
    machine.facts["host"]["gpus"][0]["compute_capability"] = "5.2"
    return libraries.compute_capability.run(Context(machine.facts))


def _tensorflow_build(machine: Machine) -> Result:
    machine.tensorflow(version="2.20.0")
    return libraries.tensorflow_build.run(Context(machine.facts, tensorflow=imported("2.21.0")))


def _xla_toolchain(machine: Machine) -> Result:
    """Neither ptxas nor libdevice in the only place where XLA looks."""
    machine.patch.chdir(machine.directory)
    search = Search((str(machine.directory / "nothing"),), True)
    return libraries.judge_xla_toolchain(search, "./cuda_sdk_lib", str(machine.directory / "path"), ["9.0"])


class NoGpus:
    """A TensorFlow that sees no GPU."""

    class config:
        @staticmethod
        def list_physical_devices(kind: str) -> list[Any]:
            return []


def _gpu_visible(machine: Machine) -> Result:
    return compute.gpu_visible.run(Context(machine.facts, tensorflow=NoGpus))


def _gpu_compute(machine: Machine) -> Result:
    return compute.judge_gpu_compute(
        {"tolerance": 1e-2, "results": [result("matmul", difference=0.3)], "gpu_peak_bytes": 4096}
    )


def _xla_train_step(machine: Machine) -> Result:
    return compute.judge_xla_train_step({**XLA, "device": CPU})


def _silent_cpu(machine: Machine) -> Result:
    return compute.judge_silent_cpu(seen(allocated_bytes=0))


def _of(check: str, *path: str | int, **changes: Any) -> Callable[[Machine], Result]:
    """Return the case of a check that judges its evidence."""
    return lambda machine: judged(check, *path, **changes)


def _gpu_health(machine: Machine) -> Result:
    machine.facts["health"] = evidence("gpu_health", "gpus", 0, xids=[79])
    return environment.gpu_health.run(Context(machine.facts))


AUTOTUNING = (
    "InternalError: Autotuner could not find any supported configs for HLO: %cudnn-conv-bias-activation"
)
CASES: dict[str, Callable[[Machine], Result]] = {
    "driver": _driver,
    "gpu_device_nodes": _gpu_device_nodes,
    "environment": _environment,
    "python_stack": _python_stack,
    "cuda_libraries": _cuda_libraries,
    "lock_match": _lock_match,
    "cudnn_load": _cudnn_load,
    "library_conflicts": _library_conflicts,
    "compute_capability": _compute_capability,
    "tensorflow_build": _tensorflow_build,
    "xla_toolchain": _xla_toolchain,
    "gpu_visible": _gpu_visible,
    "gpu_compute": _gpu_compute,
    "xla_train_step": _xla_train_step,
    "silent_cpu": _silent_cpu,
    "xla_convolution": _of("xla_convolution", "programs", 0, error=AUTOTUNING, hlo=None, results=[]),
    "keras_jit": _of("keras_jit", "on", uncompiled=8),
    "attention": _of("attention", "runs", 1, results=[result("attention", finite=False)]),
    "embedding": _of("embedding", "runs", 1, results=[result("gradient", difference=0.5)]),
    "cudnn_rnn": _of("cudnn_rnn", "layers", 0, kernels=[]),
    "data_feed": _of("data_feed", "batches", right=3),
    "save_load": _of("save_load", "formats", 0, error="OSError: no", result=None),
    "gpu_health": _gpu_health,
}


def test_every_required_check_has_its_case() -> None:
    assert set(CASES) == set(REQUIRED_CHECKS)


@pytest.mark.parametrize("name", REQUIRED_CHECKS)
def test_a_report_in_which_only_this_check_fails_is_not_certified(
    name: str, gpu_facts: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = CASES[name](Machine(gpu_facts, monkeypatch, tmp_path))
    assert found.outcome == "fail", found
    assert found.problems
    made = _report_with(name, found)
    report = report_of(made)
    assert [check.id for check in report.checks if check.went_wrong] == [name]
    judgement = judge(report, outside=OUTSIDE)
    unhealthy = (Verdict.UNPROVEN, Reason.GPU_NOT_HEALTHY)
    failed = (Verdict.FAILED, Reason.CHECKS_WENT_WRONG)
    assert (judgement.verdict, judgement.reason) == (unhealthy if name == HEALTH else failed)
    assert [check.id for check in judgement.wrong] == [name]
    assert found.sentence in judgement.sentence
    # With this one check passed, the same report is certified: nothing else kept it from that.
    assert judge(report_of(document()), outside=OUTSIDE).verdict is Verdict.CERTIFIED


def _report_with(name: str, found: Result) -> dict[str, Any]:
    """Return a report as the probe writes it, in which every required check but one passed."""
    check = next(check for check in CHECKS if check.id == name)
    stage = Stage(check.stage, [check], Progress(print))
    stage.results[name] = found, 0.1
    made = document(None, **{name: "missing"})
    for entry in made["checks"]:
        entry.update(statement=None, problems=[])
    probed = probe_report.report([check], [stage], {"host": {}, "environment": {}}, "", "", 0.1, None)
    made["checks"] += probed["checks"]
    return {**made, "format": 2, "probe": {"version": f"{PROBE_VERSION}+test"}}
