"""The results of checks that crash, hang, flood or lie, and of an import of TensorFlow that does so."""

from __future__ import annotations

import gc
import importlib
import os
import re
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from validator.probe.check import HOST, TENSORFLOW, Result
from validator.probe.child import load_tensorflow
from validator.probe.stages import LOG_BYTES, Progress, Stage
from validator.probe.stages import run as run_stages

from .fakes.fake_checks import CHECKS

FAKES = Path(__file__).parent / "fakes"
BY_ID = {check.id: check for check in CHECKS}


def run(
    facts: dict[str, Any],
    *names: str,
    limit_s: float = 60,
    tensorflow: Path | None = None,
    import_limit_s: float = 60,
    said: list[str] | None = None,
) -> dict[str, Stage]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, filter(None, [FAKES, tensorflow])))}
    running = [
        Stage(
            stage,
            [BY_ID[name] for name in names if BY_ID[name].stage == stage],
            progress=Progress(([] if said is None else said).append),
            registry="fake_checks",
            environment=environment,
            import_limit_s=import_limit_s,
        )
        for stage in (TENSORFLOW, HOST)
    ]
    run_stages(running, lambda: {"facts": facts, "lock": {"numpy": "2.0"}, "added": []}, limit_s)
    return {stage.name: stage for stage in running}


def results(stages: dict[str, Stage]) -> dict[str, Result]:
    return {name: result for stage in stages.values() for name, (result, _) in stage.results.items()}


def outcomes(stages: dict[str, Stage]) -> dict[str, str]:
    return {name: result.outcome for name, result in results(stages).items()}


@pytest.mark.slow
def test_a_check_gets_facts_and_lock(facts: dict[str, Any]) -> None:
    found = results(run(facts, "fine"))
    assert found["fine"] == Result("pass", {"code": "fine"}, [], {"lock": {"numpy": "2.0"}})


@pytest.mark.slow
def test_a_crash_is_reported_with_signal_and_last_lines_and_the_rest_continues(facts: dict[str, Any]) -> None:
    found = results(run(facts, "fine", "segfault", "after"))
    assert found["segfault"].outcome == "crash"
    assert found["segfault"].statement == {"code": "process_killed", "signal": "SIGSEGV", "phase": "check"}
    assert found["segfault"].evidence["signal"] == "SIGSEGV"
    lines = "\n".join(found["segfault"].evidence["last_lines"])
    assert "the last words of a library" in lines
    # faulthandler says where in Python it was.
    assert "in _segfault" in lines
    assert found["fine"].outcome == found["after"].outcome == "pass"


@pytest.mark.slow
def test_exiting_in_the_middle_is_a_crash_with_the_exit_status(facts: dict[str, Any]) -> None:
    found = results(run(facts, "leave", "after"))
    assert found["leave"].outcome == "crash"
    assert found["leave"].statement == {"code": "process_exited", "status": 3, "phase": "check"}
    assert found["leave"].evidence["last_lines"][-1] == "F fatal: unknown flag"
    assert found["after"].outcome == "pass"


@pytest.mark.slow
def test_a_check_that_hangs_is_ended_at_its_limit_and_says_where(facts: dict[str, Any]) -> None:
    found = results(run(facts, "hang", "after"))
    assert found["hang"].outcome == "timeout"
    assert found["hang"].evidence["limit_s"] == 0.5
    assert any("in _hang" in line for line in found["hang"].evidence["last_lines"])
    assert found["after"].outcome == "pass"


@pytest.mark.slow
def test_an_exception_in_a_check_is_an_error_of_the_check(facts: dict[str, Any]) -> None:
    found = results(run(facts, "raise", "after"))
    assert found["raise"].outcome == "error"
    assert found["raise"].statement == {
        "code": "check_raised",
        "exception": "ZeroDivisionError",
        "message": "in the check",
    }
    assert found["after"].outcome == "pass"


@pytest.mark.slow
def test_a_flood_is_cut_and_counted(facts: dict[str, Any]) -> None:
    stages = run(facts, "flood", "after")
    log = stages[HOST].log
    assert outcomes(stages) == {"flood": "pass", "after": "pass"}
    marks = sum(
        len(f"[probe {mark}: check {name}]\n") for mark in ("begin", "end") for name in ("flood", "after")
    )
    assert log.total == 64 * 65536 + marks
    assert log.dropped
    assert len(log.text) < LOG_BYTES + 100
    assert f"{log.total - LOG_BYTES} bytes left out" in log.text


@pytest.mark.slow
def test_printed_output_is_never_read_as_a_message(facts: dict[str, Any]) -> None:
    stages = run(facts, "garbage", "fine")
    assert outcomes(stages) == {"garbage": "pass", "fine": "pass"}
    assert results(stages)["fine"].statement == {"code": "fine"}
    assert "garbage without a line end" in stages[HOST].log.text


@pytest.mark.slow
def test_a_truncated_message_is_a_crash_and_not_a_result(facts: dict[str, Any]) -> None:
    assert outcomes(run(facts, "cut", "after")) == {"cut": "crash", "after": "pass"}


@pytest.mark.slow
def test_children_that_a_check_leaves_behind_do_not_hold_up_the_rest(facts: dict[str, Any]) -> None:
    assert outcomes(run(facts, "children", "after")) == {"children": "crash", "after": "pass"}


@pytest.mark.slow
def test_evidence_that_is_not_json_is_kept_as_text(facts: dict[str, Any]) -> None:
    evidence = results(run(facts, "not_json"))["not_json"].evidence
    assert evidence["object"].startswith("<object object")


@pytest.mark.slow
def test_a_check_whose_needs_are_not_met_is_skipped_with_the_reason(facts: dict[str, Any]) -> None:
    assert results(run(facts, "needs_gpu"))["needs_gpu"] == Result("skip", {"code": "no_gpu"})


@pytest.mark.slow
def test_a_check_whose_needs_are_met_runs(gpu_facts: dict[str, Any]) -> None:
    assert results(run(gpu_facts, "needs_gpu"))["needs_gpu"].outcome == "pass"


@pytest.mark.slow
def test_the_overall_limit_ends_running_and_waiting_checks(facts: dict[str, Any]) -> None:
    found = results(run(facts, "pid", "after", limit_s=1))
    assert found["pid"].outcome == found["after"].outcome == "timeout"
    assert found["pid"].statement == {"code": "time_limit_reached", "limit_s": 1, "phase": "check"}
    assert found["after"].statement == {"code": "not_begun"}


def fake_tensorflow(path: Path, text: str) -> Path:
    (path / "tensorflow").mkdir()
    (path / "tensorflow" / "__init__.py").write_text(text)
    return path


@pytest.mark.slow
def test_an_exception_of_tensorflow_is_a_failure(facts: dict[str, Any], tmp_path: Path) -> None:
    package = fake_tensorflow(tmp_path, "def fail():\n    raise RuntimeError('cuDNN is not what it was')\n")
    found = results(run(facts, "tf_fail", "tf_raise", tensorflow=package))
    assert found["tf_fail"].outcome == "fail"
    (problem,) = found["tf_fail"].problems
    assert (problem["code"], problem["severity"]) == ("tensorflow_raised", "fault")
    assert (problem["exception"], problem["message"]) == ("RuntimeError", "cuDNN is not what it was")
    assert found["tf_raise"].outcome == "error"


@pytest.mark.slow
def test_tensorflow_is_imported_again_after_a_crash(facts: dict[str, Any], tmp_path: Path) -> None:
    package = fake_tensorflow(tmp_path, "print('imported')\n")
    said: list[str] = []
    stages = run(facts, "tf_fine", "tf_segfault", "tf_after", tensorflow=package, said=said)
    assert outcomes(stages) == {"tf_fine": "pass", "tf_segfault": "crash", "tf_after": "pass"}
    assert stages[TENSORFLOW].log.text.count("imported") == 2
    assert sum(re.fullmatch(r"TensorFlow imported in \d+\.\d s", line) is not None for line in said) == 2


@pytest.mark.slow
def test_a_failed_import_is_reported_once_with_its_last_line(facts: dict[str, Any], tmp_path: Path) -> None:
    package = fake_tensorflow(tmp_path, "raise ImportError('first\\nlibx.so: undefined symbol: y')\n")
    found = results(run(facts, "tf_fine", "tf_after", tensorflow=package))
    assert found["tf_fine"].outcome == "fail"
    assert found["tf_fine"].sentence == "TensorFlow can't be imported: libx.so: undefined symbol: y"
    assert found["tf_after"].sentence == "TensorFlow can't be imported (see tf_fine)"


@pytest.mark.slow
def test_an_import_that_crashes_is_not_tried_again(facts: dict[str, Any], tmp_path: Path) -> None:
    package = fake_tensorflow(
        tmp_path, "import os\nprint('imported', flush=True)\nos.kill(os.getpid(), 11)\n"
    )
    stages = run(facts, "tf_fine", "tf_after", "fine", tensorflow=package)
    assert outcomes(stages) == {"tf_fine": "crash", "tf_after": "skip", "fine": "pass"}
    assert results(stages)["tf_fine"].sentence.endswith("SIGSEGV, while TensorFlow was being imported")
    assert stages[TENSORFLOW].log.text.count("imported") == 1


@pytest.mark.slow
def test_an_import_that_hangs_is_a_timeout(facts: dict[str, Any], tmp_path: Path) -> None:
    package = fake_tensorflow(tmp_path, "import time\ntime.sleep(3600)\n")
    stages = run(facts, "tf_fine", "tf_after", tensorflow=package, import_limit_s=1)
    assert outcomes(stages) == {"tf_fine": "timeout", "tf_after": "skip"}


@pytest.mark.slow
def test_a_missing_tensorflow_is_a_failure_of_only_the_first_check(facts: dict[str, Any]) -> None:
    stages = run(facts, "tf_fine", "tf_after")
    found = results(stages)
    assert outcomes(stages) == {"tf_fine": "fail", "tf_after": "skip"}
    assert found["tf_fine"].sentence.startswith("TensorFlow is not installed")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_worker_outlives_the_supervisor(number: int, facts: dict[str, Any]) -> None:
    program = f"""
import signal, sys
from tests.probe.test_supervision import *
from validator.probe import cli
signal.signal(signal.SIGTERM, cli.terminated)
stage = Stage(HOST, [BY_ID["pid"]], progress=Progress(print), registry="fake_checks",
              environment={{**os.environ, "PYTHONPATH": str(FAKES)}})
stage.log.add = lambda data: (sys.stdout.write(data.decode()), sys.stdout.flush())
run_stages([stage], lambda: {{"facts": {facts!r}, "lock": None, "added": []}}, 600)
"""
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as probe:
        assert probe.stdout is not None
        worker = next(int(line.split()[1]) for line in probe.stdout if line.startswith("worker "))
        handle = os.pidfd_open(worker)
        probe.send_signal(number)
        try:
            probe.wait(timeout=30)
        finally:
            probe.kill()
    # Readable once the process has ended.
    ended = select.poll()
    ended.register(handle, select.POLLIN)
    assert ended.poll(30_000)
    os.close(handle)


def test_no_garbage_is_collected_while_tensorflow_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib, "import_module", lambda name: (name, gc.isenabled()))
    assert load_tensorflow() == ("tensorflow", False)
    assert gc.isenabled()


@pytest.mark.slow
def test_a_crash_after_the_result_was_settled_is_a_limit(facts: dict[str, Any]) -> None:
    stages = run(facts, "settled", "after")
    assert outcomes(stages) == {"settled": "pass", "after": "pass"}
    settled = results(stages)["settled"]
    assert settled.problems == [
        {
            "code": "settled_float32",
            "gpu": "NVIDIA H200",
            "severity": "limit",
            "error": "the process was killed by SIGSEGV",
        }
    ]
    assert settled.evidence["seen"] == 1
    assert "the last words of a library" in settled.evidence["full_float32"]["last_lines"]


@pytest.mark.slow
def test_what_ends_the_process_from_outside_in_full_float32_is_no_limit(facts: dict[str, Any]) -> None:
    stages = run(facts, "settled_killed", "settled_hangs", "after")
    assert outcomes(stages) == {"settled_killed": "pass", "settled_hangs": "pass", "after": "pass"}
    for name, error in (("settled_killed", "SIGKILL"), ("settled_hangs", "within 1 s")):
        [remark] = results(stages)[name].problems
        assert (remark["code"], remark["severity"]) == ("full_float32_not_measured", "advisory")
        assert error in remark["error"]


@pytest.mark.slow
def test_the_log_says_which_check_wrote_a_line(facts: dict[str, Any]) -> None:
    log = run(facts, "talk", "settled", "after")[HOST].log.text
    lines = [line for line in log.splitlines() if line]
    first = lines.index("[probe begin: check talk]")
    assert lines[first + 1 : first + 3] == ["a line of the check", "[probe end: check talk]"]
    # The section of a check whose process dies has no end.
    assert "[probe end: check settled]" not in lines
    assert lines[-2:] == ["[probe begin: check after]", "[probe end: check after]"]
