"""The files of TensorFlow's and NVIDIA's packages that are no longer those of RECORD."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from validator.engines import changed_files

from ..integration.docker.package_index import TinyWheel


def installed(directory: Path, name: str) -> Path:
    """Unpack a wheel as an assembled image has it: every file has the time 0. Return its module."""
    module = f"{name.replace('-', '_')}/core.py"
    wheel = TinyWheel.make(name, "1.0", {module: b"X = 1\n"})
    with zipfile.ZipFile(io.BytesIO(wheel.content)) as archive:
        archive.extractall(directory)
        for member in archive.namelist():
            os.utime(directory / member, (0, 0))
    return directory / module


def write_with_old_time(path: Path, text: str) -> None:
    path.write_text(text)
    os.utime(path, (0, 0))


def found(directory: Path) -> dict[str, list[str]]:
    done = subprocess.run(
        [sys.executable, "-S", changed_files.__file__],
        env={"PYTHONPATH": str(directory)}, capture_output=True, check=True,
    )  # fmt: skip
    answer: dict[str, list[str]] = json.loads(done.stdout)
    return answer


@pytest.mark.slow
def test_nothing_changed(tmp_path: Path) -> None:
    for name in ("tensorflow", "nvidia-cudnn-cu12"):
        installed(tmp_path, name)
    assert found(tmp_path) == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.write_text("X = 22\n"),
        lambda path: path.write_text("X = 2\n"),
        lambda path: path.unlink(),
        lambda path: write_with_old_time(path, "Y = 123\n"),
    ],
    ids=["size", "content", "missing", "size with the old time"],
)
def test_a_changed_file_is_named(tmp_path: Path, change: Callable[[Path], object]) -> None:
    installed(tmp_path, "tensorflow")
    change(installed(tmp_path, "nvidia-cudnn-cu12"))
    change(installed(tmp_path, "pandas"))
    assert found(tmp_path) == {"nvidia-cudnn-cu12": ["nvidia_cudnn_cu12/core.py"]}


@pytest.mark.slow
def test_a_file_that_was_written_again_with_its_content_is_unchanged(tmp_path: Path) -> None:
    path = installed(tmp_path, "tensorflow")
    path.write_bytes(path.read_bytes())
    assert found(tmp_path) == {}
