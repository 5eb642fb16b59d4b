"""The probe's command line, and the progress that it prints."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from validator.model.report import read_report
from validator.probe import cli, stages
from validator.probe.check import FAIL, PASS, Result, skipped
from validator.probe.checks import CHECKS
from validator.probe.stages import Progress
from validator.problems import problem, statement

ROOT = Path(__file__).parents[2]
#: The checks that certification needs, each also in a quick run.
REQUIRED = {
    "driver", "gpu_device_nodes", "environment", "python_stack", "lock_match", "cuda_libraries", "cudnn_load",
    "library_conflicts", "compute_capability", "tensorflow_build", "xla_toolchain", "gpu_visible",
    "gpu_compute", "xla_train_step", "silent_cpu", "xla_convolution", "keras_jit", "attention", "embedding",
    "cudnn_rnn", "data_feed", "save_load", "gpu_health",
}  # fmt: skip


def probe(*arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "validator.probe.cli", *arguments], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == status, done.stderr
    return done


@pytest.mark.slow
def test_list_describes_every_check() -> None:
    listed = json.loads(probe("--list").stdout)
    assert [entry["id"] for entry in listed] == [check.id for check in CHECKS]
    fields = {"id", "stage", "title", "required", "depth", "requires", "limit_s"}
    assert all(set(entry) == fields for entry in listed)


def test_identifiers_are_unique_and_stages_known() -> None:
    assert len({check.id for check in CHECKS}) == len(CHECKS)
    assert {check.stage for check in CHECKS} == {"host", "tensorflow", "own", "end"}


@pytest.mark.slow
def test_without_tensorflow_there_is_a_report_and_no_traceback() -> None:
    done = probe()
    report = read_report(done.stdout)
    assert "Traceback" not in done.stderr
    assert [check.id for check in report.checks] == [check.id for check in CHECKS if check.depth == "quick"]
    assert report.environment.tensorflow is None
    build = report.check("tensorflow_build")
    assert build is not None and build.outcome.value == "fail"
    assert "not installed" in build.sentence


@pytest.mark.slow
def test_only_and_skip_select_checks() -> None:
    chosen = read_report(probe("--only", "driver", "--only", "lock_match", "--skip", "driver").stdout)
    assert [check.id for check in chosen.checks] == ["lock_match"]


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [(), ("--challenge", "ab" * 32)])
def test_the_challenge_is_repeated_in_the_report(arguments: tuple[str, ...]) -> None:
    report = read_report(probe("--only", "lock_match", *arguments).stdout)
    assert report.challenge == (arguments[1] if arguments else None)
    assert report.raw["challenge"] == report.challenge


def test_a_quick_run_has_what_a_verdict_needs_and_a_full_one_everything() -> None:
    assert {check.id for check in CHECKS if check.required} == REQUIRED
    assert [check.id for check in cli.selected([], [], "full")] == [check.id for check in CHECKS]
    quick = [check.id for check in CHECKS if check.depth == "quick"]
    assert [check.id for check in cli.selected([], [], "quick")] == quick


def test_a_check_that_is_named_runs_at_any_depth() -> None:
    for check in CHECKS:
        assert cli.selected([check.id], [], "quick") == [check]


@pytest.mark.slow
def test_progress_goes_only_to_standard_error() -> None:
    done = probe("--only", "lock_match")
    assert done.stderr.startswith("lock_match: skip: no lock was given")
    assert "lock_match: skip" not in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--only", "drivers"), "there is no check drivers; the checks are driver, "),
        (("--lock", "/nowhere/lock.txt"), "No such file"),
        (("--time-limit", "soon"), "invalid float"),
    ],
)
def test_wrong_usage_exits_with_2_and_writes_no_report(arguments: tuple[str, ...], said: str) -> None:
    done = probe(*arguments, status=2)
    assert said in done.stderr
    assert done.stdout == ""


@pytest.mark.slow
def test_the_error_for_an_invalid_lock_names_the_line(tmp_path: Path) -> None:
    lock = tmp_path / "lock.txt"
    lock.write_text("numpy==2.0.0\ntensorflow>=2.0\n")
    assert "line 2" in probe("--lock", str(lock), status=2).stderr


@pytest.mark.slow
def test_host_facts_are_the_host_of_a_report() -> None:
    facts = json.loads(probe("--host-facts").stdout)
    assert set(facts) == set(read_report(probe("--only", "driver").stdout).raw["host"])


@pytest.mark.slow
def test_a_report_without_checks_is_still_a_report(capsys: pytest.CaptureFixture[str]) -> None:
    names = [argument for check in CHECKS for argument in ("--skip", check.id)]
    assert cli.main(names) == 0
    assert read_report(capsys.readouterr().out).checks == ()


# The progress that the probe prints while it runs.


BY_ID = {check.id: check for check in CHECKS}


def test_checks_that_are_skipped_for_one_reason_take_one_line() -> None:
    lines: list[str] = []
    progress = Progress(lines.append)
    missing = problem("tensorflow_missing", error="ModuleNotFoundError")
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
    assert [line.partition(": ")[0] for line in lines[:before]] == ["tensorflow_build", "environment"]
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
