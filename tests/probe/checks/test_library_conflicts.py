"""Copies of CUDA libraries: the one that comes first may be the wrong one."""

from __future__ import annotations

import errno
import functools
import os
from pathlib import Path
from typing import Any

import pytest

from validator.probe import installed, loader
from validator.probe.check import Context, Result
from validator.probe.checks import libraries
from validator.probe.child import Answer


class Machine:
    """A TensorFlow with NVIDIA's wheels next to it, and further directories for copies."""

    def __init__(self, root: Path, facts: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.facts, self._monkeypatch = root, facts, monkeypatch
        self.opened: dict[str, tuple[str, str]] = {}
        facts["tensorflow"] = {
            "directory": str(root / "tensorflow"),
            "build": {"is_cuda_build": True},
            "built_with": {"nvidia-cudnn-cu12": "9.3.0.75", "nvidia-cublas-cu12": "12.5.3.2"},
        }
        wheel = [str(root / "nvidia" / name / "lib") for name in ("cudnn", "cublas")]
        monkeypatch.setattr(
            installed,
            "runpath",
            lambda path: wheel if path.endswith(loader.FRAMEWORK) else [str(Path(path).parent)],
        )
        monkeypatch.setattr(installed, "cached", dict)

    def file(self, path: str, version: str | None = None) -> str:
        """Put a library there; version: as the library reports it, if the loader opens it."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        if version:
            self.opened[
                file.name.partition(".so.")[0] + ".so." + file.name.split(".so.")[1].split(".")[0]
            ] = (
                str(file),
                version,
            )
        return str(file)

    def check(self, *library_path: str) -> Result:
        values: list[dict[str, Any]] = [{"phase": "gate", "attempts": dict.fromkeys(self.opened)}]
        values += [
            {"soname": name, "path": path, "version": version}
            for name, (path, version) in self.opened.items()
        ]
        self._monkeypatch.setattr(loader, "open_libraries", lambda directory: Answer(values, None, ""))
        directories = ":".join(str(self.root / entry) for entry in library_path)
        self.facts["environment"]["variables"] = {"LD_LIBRARY_PATH": directories}
        return libraries.library_conflicts.run(Context(self.facts))


@pytest.fixture
def machine(tmp_path: Path, facts: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path, facts, monkeypatch)
    made.file("nvidia/cudnn/lib/libcudnn.so.9", "9.3.0")
    for part in ("ops", "cnn"):
        made.file(f"nvidia/cudnn/lib/libcudnn_{part}.so.9")
    (tmp_path / "nvidia_cudnn_cu12-9.3.0.75.dist-info").mkdir()
    return made


def problems(result: Result) -> list[tuple[str, str]]:
    assert (result.outcome == "fail") == bool(result.problems)
    return [(one["code"], one["soname"]) for one in result.problems]


def test_one_copy_of_each(machine: Machine) -> None:
    result = machine.check()
    assert problems(result) == []
    assert "one copy of each of the 1 CUDA libraries" in result.sentence
    (library,) = result.evidence["libraries"]
    assert (library["found_by"], library["others"]) == ("RUNPATH", [])
    parts = [(part["soname"], part["found_by"], part["version"]) for part in result.evidence["cudnn_parts"]]
    assert parts == [
        ("libcudnn_cnn.so.9", "RUNPATH", "9.3.0.75"),
        ("libcudnn_ops.so.9", "RUNPATH", "9.3.0.75"),
    ]


def test_a_newer_copy_in_front_does_no_harm(machine: Machine) -> None:
    machine.file("system/libcudnn.so.9", "9.10.2")
    for part in ("ops", "cnn"):
        machine.file(f"system/libcudnn_{part}.so.9")
    result = machine.check("system")
    assert problems(result) == []
    assert "other copies, which do no harm: libcudnn.so.9 is taken from" in result.sentence
    (library,) = result.evidence["libraries"]
    assert library["found_by"] == "LD_LIBRARY_PATH"
    assert [(copy["found_by"], copy["version"]) for copy in library["others"]] == [("RUNPATH", "9.3.0.75")]


def test_an_older_copy_in_front_of_one_that_fits(machine: Machine) -> None:
    machine.file("system/libcudnn.so.9", "9.1.0")
    for part in ("ops", "cnn"):
        machine.file(f"system/libcudnn_{part}.so.9")
    result = machine.check("system")
    assert problems(result) == [("older_copy_wins", "libcudnn.so.9")]
    assert "(9.1.0), found by LD_LIBRARY_PATH, comes before" in result.sentence
    assert "(9.3.0.75), but TensorFlow was built with 9.3.0.75" in result.sentence


def test_a_single_old_copy_is_left_to_another_check(machine: Machine) -> None:
    machine.opened["libcudnn.so.9"] = (machine.opened["libcudnn.so.9"][0], "9.1.0")
    assert problems(machine.check()) == []


def test_a_part_of_cudnn_from_another_place(machine: Machine) -> None:
    machine.file("system/libcudnn_cnn.so.9")
    result = machine.check("system")
    assert problems(result) == [("cudnn_parts_from_elsewhere", "libcudnn.so.9")]
    assert f"{machine.root}/system/libcudnn_cnn.so.9 (found by LD_LIBRARY_PATH)" in result.sentence


def test_a_directory_below_one_that_cannot_be_read(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests may run as root, who can read everything."""
    closed = str(machine.root / "closed")

    def asked(original: Any, path: Any = ".", *rest: Any, **named: Any) -> Any:
        if str(path).startswith(f"{closed}/"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return original(path, *rest, **named)

    for name in ("stat", "lstat", "scandir", "listdir"):
        monkeypatch.setattr(os, name, functools.partial(asked, getattr(os, name)))
    assert machine.check("closed/lib").outcome == "pass"


def test_parts_of_cudnn_of_two_versions(machine: Machine) -> None:
    machine.file("system/libcudnn.so.9", "9.3.0")
    for part, version in (("ops", "9.3.0"), ("cnn", "9.1.0")):
        file = Path(machine.file(f"system/libcudnn_{part}.so.{version}"))
        (file.parent / f"libcudnn_{part}.so.9").symlink_to(file.name)
    result = machine.check("system")
    assert problems(result) == [("cudnn_part_versions_differ", "libcudnn.so.9")]
    assert "versions 9.1.0, 9.3.0" in result.sentence


def test_cublas_and_cublaslt_belong_together(machine: Machine) -> None:
    machine.file("nvidia/cublas/lib/libcublas.so.12", "12.5.3")
    machine.file("system/libcublasLt.so.12", "12.9.1")
    assert problems(machine.check("system")) == [("cublas_versions_differ", "libcublas.so.12")]
    machine.opened["libcublasLt.so.12"] = (machine.opened["libcublasLt.so.12"][0], "12.5.3")
    assert problems(machine.check("system")) == []


def test_a_library_that_was_loaded_by_something_else(machine: Machine) -> None:
    machine.file("elsewhere/libcudnn.so.9", "9.3.0")
    machine.file("elsewhere/libcudnn_ops.so.9")
    machine.file("elsewhere/libcudnn_cnn.so.9")
    (library,) = machine.check().evidence["libraries"]
    assert library["found_by"] is None


def test_a_loader_without_log_lines(machine: Machine) -> None:
    machine.opened.clear()
    assert machine.check().outcome == "error"
