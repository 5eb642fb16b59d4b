"""`validator` without arguments, for machines and environments of each kind."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from validator import cli
from validator.cli import here
from validator.cli.here import EnvironmentFields, HereDocument, NextFields, answer
from validator.engines.this_machine import Container, Environment, Seen
from validator.model.diagnosis import Cause
from validator.model.prediction import Host
from validator.model.record import GpuIdentity
from validator.model.report import read_report

from ..commands import run
from ..documented import misfits

PYTHON = Path("/home/ann/venv/bin/python")
H100 = GpuIdentity("GPU-1", "NVIDIA H100 80GB HBM3", "9.0")
T4 = GpuIdentity("GPU-2", "Tesla T4", "7.5")
#: What the extra installs, as far as predictions need it.
LIBRARIES = {"nvidia-cudnn-cu12": "9.10.2.21", "nvidia-cuda-runtime-cu12": "12.5.82"}
DOCKER = Container("docker", "28.5.2", gives_gpus=True)


def environment(
    tensorflow: str | None = "2.20.0",
    packages: dict[str, str] | None = None,
    gpus: tuple[GpuIdentity, ...] = (H100,),
    checks: tuple[dict[str, Any], ...] = (),
    **host: Any,
) -> Environment:
    """Return an environment as the probe reports it, on a healthy machine with these GPUs."""
    driver = "580.95.05" if gpus else None
    path = "/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05" if gpus else None
    libraries = {
        "nvml": {"answered": bool(gpus), "driver": driver},
        "cuda": {"answered": bool(gpus), "path": path, "code": 0 if gpus else None, "count": len(gpus)},
    }
    installed = {"tensorflow": tensorflow, **LIBRARIES} if packages is None else packages
    document = {
        "format": 2,
        "probe": {"version": "2.3.0+test"},
        "started": "2026-01-01T00:00:00Z",
        "finished": "2026-01-01T00:00:01Z",
        "host": {
            "driver": driver,
            "kernel_driver": driver,
            "driver_cuda": "13.0" if gpus else None,
            "gpus": [{"name": gpu.name, "compute_capability": gpu.compute_capability} for gpu in gpus],
            "pci_gpus": len(gpus),
            "device_nodes": [],
            "driver_libraries": libraries,
            "kernel": "6.8.0",
            "machine": "x86_64",
            **host,
        },
        "environment": {
            "python": "3.12.4",
            "executable": str(PYTHON),
            "tensorflow": tensorflow,
            "packages": installed if tensorflow else {},
            "variables": {},
        },
        "checks": list(checks),
    }
    return Environment(PYTHON, "VIRTUAL_ENV", read_report(json.dumps(document).encode()))


def seen(active: Environment, gpus: tuple[GpuIdentity, ...] = (H100,), **others: Any) -> Seen:
    one = gpus[0] if len({gpu.name for gpu in gpus}) == 1 else None
    host = Host(
        driver="580.95.05" if gpus else None,
        gpu=one.name if one else None,
        capability=(one.compute_capability or None) if one else None,
        system="linux",
        machine="x86_64",
    )
    return Seen(
        **{
            "host": host,
            "gpus": gpus,
            "driver_silent": False,
            "containers": (DOCKER,),
            "pythons": {"3.12": "/usr/bin/python3.12"},
            "environment": active,
            **others,
        }
    )


HIDDEN: dict[str, Any] = {
    "id": "environment",
    "outcome": "fail",
    "statement": None,
    "problems": [
        {
            "code": "visible_devices_hides_all_gpus",
            "severity": "fault",
            "variable": "CUDA_VISIBLE_DEVICES",
            "value": "-1",
        }
    ],
    "required": True,
    "evidence": {},
}
CPU_PACKAGE = {"tensorflow-cpu": "2.20.0"}
MISSING_LIBRARY: dict[str, Any] = {
    "id": "cuda_libraries",
    "outcome": "fail",
    "statement": None,
    "problems": [{"code": "library_not_found", "severity": "fault", "soname": "libcudnn.so.9"}],
    "required": True,
    "evidence": {},
}
CUT_OFF: dict[str, Any] = {
    "id": "cuda_libraries",
    "outcome": "timeout",
    "statement": {"code": "time_limit_reached", "limit_s": 1.0, "phase": "check"},
    "problems": [],
    "required": True,
    "evidence": {},
}
#: A machine and an environment -> `uses_gpu`, the code of the cause, the next command.
DOCTOR = f"validator doctor --python {PYTHON}"
ELSEWHERE = "validator predict --gpu h100 --driver 580"
BROKEN = Environment(PYTHON, "VIRTUAL_ENV", why="No module named 'encodings'")
NO_PYTHON = Environment(None, "CONDA_PREFIX", why="there is no Python")
CASES: dict[str, tuple[Seen, str, str | None, str]] = {
    "all is well": (seen(environment()), "expected", None, DOCTOR),
    "no GPU": (seen(environment(gpus=()), gpus=()), "no", "no_gpu_in_machine", ELSEWHERE),
    "no GPU, broken environment": (seen(BROKEN, gpus=()), "unknown", None, ELSEWHERE),
    "no driver": (seen(environment(gpus=(), pci_gpus=1), gpus=()), "no", "driver_not_loaded", DOCTOR),
    "without CUDA": (seen(environment(packages=CPU_PACKAGE)), "no", "cpu_only_build", DOCTOR),
    "no library": (
        seen(environment(checks=(MISSING_LIBRARY,))), "no", "cuda_library_missing_or_wrong_version", DOCTOR
    ),
    "hidden": (seen(environment(checks=(HIDDEN,))), "no", "visible_devices_misset", DOCTOR),
    "cut off": (seen(environment(checks=(CUT_OFF,))), "unknown", None, DOCTOR),
    "no TensorFlow": (
        seen(environment(None)), "not-installed", None, 'python -m pip install "tensorflow[and-cuda]==2.20.0"'
    ),
    "a container without the GPU": (
        seen(environment(gpus=(), container="docker", kernel_driver="580.95.05")),
        "no", "container_no_gpu_access", DOCTOR,
    ),
    "WSL2": (seen(environment(wsl=True)), "expected", None, DOCTOR),
    "a driver that hangs": (seen(environment(), driver_silent=True), "unknown", None, DOCTOR),
    "a broken environment": (
        seen(BROKEN), "unknown", None,
        "validator build-matrix --profile full --select image=tf2.21.0-cuda12.9-cudnn9.28-py313",
    ),
    "no Python": (
        seen(NO_PYTHON), "unknown", None,
        "validator build-matrix --profile full --select image=tf2.21.0-cuda12.9-cudnn9.28-py313",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_each_machine_gets_an_answer_and_one_next_command(name: str) -> None:
    shown, uses_gpu, code, command = CASES[name]
    found: HereDocument = json.loads(json.dumps(answer(shown)))
    assert (found["uses_gpu"], found["cause"] and found["cause"]["code"]) == (uses_gpu, code)
    assert found["next"]["command"] == command
    assert found["get"]["pip"] and found["get"]["image"]
    assert bool(found["works"]) == bool(shown.gpus) and bool(found["why_none"]) != bool(shown.gpus)
    parts = ((found, HereDocument), (found["environment"], EnvironmentFields), (found["next"], NextFields))
    assert [list(misfits(value, kind)) for value, kind in parts] == [[], [], []]
    assert list(misfits(found["engines"], list[Container])) == []
    assert found["cause"] is None or list(misfits(found["cause"], Cause)) == []


def printed(shown: Seen, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(here, "look", lambda meanwhile: shown)
    assert cli.run([]) == 0
    return capsys.readouterr().out


def test_the_text_fits_a_screen_and_says_what_is_here(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = printed(CASES["without CUDA"][0], capsys, monkeypatch).splitlines()
    assert len(lines) <= 24
    assert "  GPU         NVIDIA H100 80GB HBM3; driver 580.95.05" in lines
    assert "  Containers  Docker 28.5.2, gives GPUs to containers" in lines
    assert "  Active      Python 3.12.4, TensorFlow 2.20.0: /home/ann/venv/bin/python" in lines
    assert "  No. The installed TensorFlow (tensorflow-cpu) is a build without CUDA." in lines
    assert lines[-1] == f"      {DOCTOR}"


def test_without_a_gpu_it_names_what_runs_on_the_cpu(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = printed(CASES["no GPU"][0], capsys, monkeypatch)
    assert "GPU         none; no NVIDIA driver answers" in text
    assert "python -m pip install tensorflow-cpu==" in text and "build-matrix --profile cpu" in text


def test_engines_that_can_not_be_used_say_why(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    engines = (Container("docker", None, why="permission denied"), Container("podman", "4.3.1"))
    text = printed(seen(environment(), containers=engines), capsys, monkeypatch)
    assert "Docker can't be used: permission denied; Podman 4.3.1\n" in text
    assert "neither Docker nor Podman" in printed(seen(environment(), containers=()), capsys, monkeypatch)


def test_gpus_of_several_kinds_are_all_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus = (H100, H100, T4)
    text = printed(seen(environment(gpus=gpus), gpus=gpus), capsys, monkeypatch)
    assert "2 of NVIDIA H100 80GB HBM3, Tesla T4; driver" in text
    assert "This is for H100, compute capability 9.0; `predict --gpu` asks about others." in text


def test_no_release_works_with_an_old_driver(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = seen(environment())
    text = printed(replace(shown, host=replace(shown.host, driver="390.48")), capsys, monkeypatch)
    assert "On the GPU: No TensorFlow release is expected to use the GPU here. On the CPU:" in text


def test_json_before_a_command_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--json", "plan"]) == 2
    assert "write it after the command" in capsys.readouterr().err


@pytest.mark.engine
def test_the_whole_program_answers_from_an_empty_directory(tmp_path: Path) -> None:
    done = run("--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert list(misfits(json.loads(done.stdout), HereDocument)) == []
    assert list(tmp_path.iterdir()) == []
