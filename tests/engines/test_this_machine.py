"""Looking at this machine: parts that hang, are missing or are broken, and the active environment."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from validator.engines import this_machine
from validator.engines.this_machine import Container, active_python, look, pythons_on_path
from validator.model.record import Outside

#: Seconds for what hangs here, and for what has to answer.
SHORT_S, LONG_S = 0.3, 30.0


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the only directory on PATH. There is no active environment, and no engine."""
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX", "DOCKER_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()
    return tmp_path / "bin"


@pytest.mark.slow
def test_a_machine_with_nothing(alone: Path) -> None:
    found = look(LONG_S)
    assert (found.gpus, found.driver_silent, found.containers, found.pythons) == ((), False, (), {})
    assert (found.environment.python, found.environment.why) == (None, "there is no Python")


@pytest.mark.slow
def test_the_active_environment_is_asked_without_importing_tensorflow(
    alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    package = site / "tensorflow"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('imported')")
    (site / "tensorflow-2.20.0.dist-info").mkdir()
    (site / "tensorflow-2.20.0.dist-info/METADATA").write_text("Name: tensorflow\nVersion: 2.20.0\n")
    python = script(tmp_path / "venv/bin/python", f'PYTHONPATH={site} exec {sys.executable} "$@"')
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "venv"))
    found = look(LONG_S).environment
    assert (found.python, found.found_by, found.why) == (python, "VIRTUAL_ENV", "")
    assert found.report is not None
    assert found.report.environment.tensorflow == "2.20.0"
    assert {check.id for check in found.report.checks} == set(this_machine.CHECKS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "why"),
    [
        (
            "echo \"ModuleNotFoundError: No module named 'encodings'\" >&2; exit 1",
            "No module named 'encodings'",
        ),
        ("exit 3", "it exits with status 3"),
        ("exec sleep 60", "it did not answer within"),
        ("echo '{}'", "the report has format None"),
    ],
)
def test_a_broken_environment_says_why(alone: Path, program: str, why: str) -> None:
    os.symlink(shutil.which("sleep", path="/usr/bin:/bin") or "", alone / "sleep")
    script(alone / "python3", program)
    found = look(1.0).environment
    assert found.found_by == "PATH" and found.report is None
    assert why in found.why


@pytest.mark.service
def test_what_hangs_is_said_to_be_late_and_holds_nothing_up(
    alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging = tmp_path / "hang.py"
    hanging.write_text("import time\ntime.sleep(600)\n")
    monkeypatch.setattr(this_machine, "_SCRIPT", hanging)
    kernel = Outside("580.95.05", "580.95.05", ())
    monkeypatch.setattr(this_machine, "kernel_reading", lambda: kernel)
    script(alone / "podman", "exec /bin/sleep 600")
    script(alone / "docker", "exec /bin/sleep 600")
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(f"{tmp_path}/none.sock")
        silent.listen()
        found = look(SHORT_S)
    assert found.driver_silent
    assert found.host.driver == "580.95.05", "as the kernel says it"
    assert [one.name for one in found.containers] == ["docker", "podman"]
    assert all("did not answer" in one.why for one in found.containers)


@pytest.mark.service
def test_engines_that_can_not_be_used(alone: Path) -> None:
    script(alone / "docker", "exit 1")
    script(alone / "podman", "echo 'cannot find UID/GID for user ann' >&2; exit 125")
    docker, podman = look(LONG_S).containers
    assert docker.name == "docker" and "none.sock does not exist" in docker.why
    assert podman == Container("podman", None, why="cannot find UID/GID for user ann")


@pytest.mark.service
def test_a_podman_that_can_be_used(alone: Path) -> None:
    script(alone / "podman", "echo 4.3.1")
    assert look(LONG_S).containers == (Container("podman", "4.3.1"),)


@pytest.fixture
def environments(tmp_path: Path) -> Iterator[dict[str, str]]:
    for name in ("venv", "conda"):
        script(tmp_path / name / "bin/python", "")
    script(tmp_path / "bin/python3", "")
    yield {
        "VIRTUAL_ENV": str(tmp_path / "venv"),
        "CONDA_PREFIX": str(tmp_path / "conda"),
        "PATH": str(tmp_path / "bin"),
    }


def test_the_active_python(environments: dict[str, str], tmp_path: Path) -> None:
    for name, path in (("VIRTUAL_ENV", "venv/bin/python"), ("CONDA_PREFIX", "conda/bin/python")):
        assert active_python(environments) == (tmp_path / path, name)
        environments = {other: value for other, value in environments.items() if other != name}
    assert active_python(environments) == (tmp_path / "bin/python3", "PATH")
    assert active_python({"PATH": str(tmp_path)}) == (None, "PATH")
    assert active_python({**environments, "VIRTUAL_ENV": "/nowhere"}) == (None, "VIRTUAL_ENV")


def test_pythons_are_programs_and_not_scripts(alone: Path) -> None:
    script(alone / "python3.12", "exit 127")
    (alone / "python3.10").write_bytes(b"\x7fELF")
    assert pythons_on_path() == {"3.10": str(alone / "python3.10")}


def test_the_kernel_lists_driver_and_gpus(tmp_path: Path) -> None:
    proc = tmp_path / "proc/driver/nvidia"
    (proc / "gpus/0000:3b:00.0").mkdir(parents=True)
    (proc / "gpus/0000:3b:00.0/information").write_text("Model: \t\t Tesla T4\nIRQ:   42\n")
    assert this_machine.kernel_reading(tmp_path) is None
    line = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.124.06  Release Build\n"
    (proc / "version").write_text(line)
    found = this_machine.kernel_reading(tmp_path)
    assert found is not None
    assert (found.driver, [gpu.name for gpu in found.gpus]) == ("570.124.06", ["Tesla T4"])
    assert this_machine.read_this_host(outside=found, root=tmp_path).capability is None
