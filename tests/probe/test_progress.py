"""The progress that the probe prints while it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from validator.probe import cli, stages
from validator.probe.check import FAIL, PASS, Result, skipped
from validator.probe.checks import CHECKS
from validator.probe.stages import Progress
from validator.problems import problem, statement

BY_ID = {check.id: check for check in CHECKS}


def test_checks_that_are_skipped_for_one_reason_take_one_line() -> None:
    lines: list[str] = []
    progress = Progress(lines.append)
    missing = problem("tensorflow_missing", error="ModuleNotFoundError")
    progress.imported(2.25)
    progress.ended(BY_ID["tensorflow_build"], Result(FAIL, None, [missing]))
    progress.ended(
        BY_ID["xla_toolchain"], skipped(statement("tensorflow_not_installed", check="tensorflow_build"))
    )
    progress.ended(BY_ID["lock_match"], skipped(statement("no_lock")))
    progress.ended(BY_ID["gpu_compute"], skipped(statement("tensorflow_not_importable", check="silent_cpu")))
    progress.ended(BY_ID["environment"], Result(PASS, statement("variables_unset")))
    progress.ended(BY_ID["python_stack"], skipped(statement("tensorflow_not_installed", check=None)))
    before = len(lines)
    progress.finish()
    assert [line.partition(": ")[0] for line in lines[:before]] == [
        "TensorFlow imported in 2.2 s", "tensorflow_build", "environment",
    ]  # fmt: skip
    assert lines[before:] == [
        "2 checks skipped: TensorFlow is not installed",
        "lock_match: skip: no lock was given",
        "gpu_compute: skip: TensorFlow can't be imported",
    ]


def test_a_run_that_is_cut_short_still_says_what_was_skipped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(stages: list[stages.Stage], collect: Callable[[], dict[str, Any]], limit_s: float) -> None:
        stages[1].progress.ended(BY_ID["lock_match"], skipped(statement("no_lock")))
        raise KeyboardInterrupt

    monkeypatch.setattr(stages, "run", run)
    with pytest.raises(KeyboardInterrupt):
        cli.probe([BY_ID["lock_match"]], None, (), 60.0, None)
    assert capsys.readouterr().err == "lock_match: skip: no lock was given\n"
