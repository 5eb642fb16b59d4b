"""The output of `check` and `doctor` while the probe runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from validator.assemble.progress import Progress
from validator.cli import probing
from validator.engines.base import ProbeRequest
from validator.engines.host_reading import read_host
from validator.errors import ValidatorError
from validator.model.measurement import Outside, Unread

LINES = (
    "tensorflow_build: fail: TensorFlow is not installed: ModuleNotFoundError",
    "xla_toolchain: skip: TensorFlow is not installed (see tensorflow_build)",
    "driver: skip: there is no NVIDIA driver here (libcuda.so.1: cannot open shared object file)",
    "environment: pass: none of the variables that could cause a problem is set",
    "python_stack: skip: TensorFlow is not installed",
)


@pytest.mark.parametrize("fails", [False, True])
def test_checks_that_are_skipped_for_one_reason_take_one_line(
    fails: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(python: Path | None, request: ProbeRequest, progress: Progress) -> tuple[Outside | Unread, bytes]:
        for line in LINES:
            progress(line)
        if fails:
            raise ValidatorError("the probe exited")
        return read_host(), b"no report"

    monkeypatch.setattr(probing, "_with_python", run)
    with pytest.raises(ValidatorError):
        probing.probe(None, None, "quick")
    assert capsys.readouterr().err.splitlines() == [
        LINES[0],
        LINES[3],
        "2 checks skipped: TensorFlow is not installed",
        LINES[2],
    ]
