"""Functions called in a fresh interpreter with its own TensorFlow."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from validator.engines.protocol import probe_archive
from validator.probe import child
from validator.probe.tensorflow_devices import telling_line

from .fakes import fake_trials

ROOT = Path(__file__).parents[2]
FAKE = "NAME = 'fake'\ndef fail():\n    raise RuntimeError('cuDNN is not what it was\\n\\nTraceback: ...')\n"


@pytest.fixture(autouse=True)
def fake_tensorflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    package = tmp_path / "tensorflow"
    package.mkdir()
    (package / "__init__.py").write_text(FAKE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return package


def gone(pid: int, within_s: float = 10) -> bool:
    """Return True if the process has ended (a zombie has)."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                time.sleep(0.01)
                continue
        return True
    return False


@pytest.mark.slow
def test_the_function_gets_tensorflow_and_its_arguments_in_another_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REMOVED", "yes")
    answer = child.fresh(
        fake_trials.report,
        {"a": [1, None]},
        "it's",
        limit_s=60,
        environment={"ADDED": "1", "REMOVED": None},
    )
    assert answer.failure is None
    first, second = answer.values
    assert (first["tensorflow"], first["arguments"]) == ("fake", [{"a": [1, None]}, "it's"])
    assert first["pid"] != os.getpid()
    assert second == ["1", None]
    assert "ADDED" not in os.environ


@pytest.mark.slow
def test_at_its_limit_the_child_is_ended_and_says_where_it_was() -> None:
    answer = child.fresh(fake_trials.print_and_hang, limit_s=2)
    assert str(answer.failure) == "timeout"
    assert gone(answer.values[0])
    assert "what the library said" in answer.stderr
    assert "in print_and_hang" in answer.stderr
    result = child.broken_off("keras", answer, {})
    assert (result.outcome, result.statement) == ("timeout", {"code": "trial_timed_out", "trial": "keras"})
    assert result.evidence["failure"] == "timeout"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "failure", "outcome", "said"),
    [
        (fake_trials.segfault, "SIGSEGV", "crash", "was killed by SIGSEGV"),
        (fake_trials.leave, "exit status 3", "crash", "exited with status 3"),
        (
            fake_trials.raise_here,
            "ZeroDivisionError: in the check",
            "error",
            "raised ZeroDivisionError: in the check",
        ),
        (
            fake_trials.raise_there,
            "RuntimeError: cuDNN is not what it was",
            "fail",
            "failed: RuntimeError: cuDNN is not what it was",
        ),
    ],
)
def test_the_way_a_child_ends_is_reported_with_its_earlier_values(
    function: Callable[..., Iterator[Any]], failure: str, outcome: str, said: str
) -> None:
    answer = child.fresh(function, limit_s=60)
    assert (answer.values, str(answer.failure)) == (["begun"], failure)
    result = child.broken_off("keras", answer, {"steps": 5})
    assert (result.outcome, result.sentence) == (outcome, f"training with Keras {said}")
    assert (result.evidence["steps"], result.evidence["failure"]) == (5, failure)


@pytest.mark.slow
def test_the_caller_sees_the_values_as_they_come_and_can_end_the_child() -> None:
    seen: list[list[Any]] = []

    def attend(values: list[Any]) -> bool:
        seen.append(values)
        return bool(values)

    began = time.monotonic()
    answer = child.fresh(fake_trials.print_and_hang, limit_s=60, attend=attend)
    assert time.monotonic() - began < 30
    assert str(answer.failure) == "stopped"
    assert (seen[0], seen[-1]) == ([], answer.values)
    assert gone(answer.values[0])
    # It was not asked where it hangs.
    assert "in print_and_hang" not in answer.stderr


@pytest.mark.slow
def test_a_caller_that_attends_gets_all_values_of_a_child_that_ends() -> None:
    answer = child.fresh(fake_trials.segfault, limit_s=60, attend=lambda values: False)
    assert (answer.values, str(answer.failure)) == (["begun"], "SIGSEGV")


def test_the_error_of_a_graph_is_described_by_its_message() -> None:
    text = (
        "Graph execution error:\n\nDetected at node CollectiveReduceV2 defined at (most recent call last):\n"
        '  File "/x/train.py", line 22, in <module>\n\nCollective has timed out.\n\t [[{{node Collective}}]]'
    )
    assert telling_line(RuntimeError(text)) == "Collective has timed out."
    assert telling_line(RuntimeError("Graph execution error:")) == "Graph execution error:"


@pytest.mark.slow
def test_an_import_that_fails_is_tensorflows_fault(fake_tensorflow: Path) -> None:
    (fake_tensorflow / "__init__.py").write_text("raise ImportError('libx.so: undefined symbol')")
    answer = child.fresh(fake_trials.report, limit_s=60)
    assert str(answer.failure) == "ImportError: libx.so: undefined symbol"
    assert child.broken_off("keras", answer, {}).outcome == "fail"


@pytest.mark.slow
def test_an_import_that_hangs_is_ended(fake_tensorflow: Path) -> None:
    (fake_tensorflow / "__init__.py").write_text("import time; time.sleep(3600)")
    answer = child.fresh(fake_trials.report, limit_s=1)
    assert (answer.values, str(answer.failure)) == ([], "timeout")


@pytest.mark.slow
def test_its_child_processes_are_ended_too() -> None:
    answer = child.fresh(fake_trials.leave_a_child, limit_s=60)
    assert answer.failure is None
    assert gone(answer.values[0])


@pytest.mark.slow
def test_the_child_dies_with_its_parent(tmp_path: Path) -> None:
    """The process is a worker that the supervisor kills at a check's limit."""
    begun = tmp_path / "begun"
    code = (
        "from validator.probe import child; from tests.probe.fakes import fake_trials;"
        f" child.fresh(fake_trials.say_and_hang, {str(begun)!r}, limit_s=600)"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT) as worker:
        deadline = time.monotonic() + 30
        while not begun.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        worker.kill()
    child = int(begun.read_text())
    assert gone(child)


@pytest.mark.slow
def test_calling_a_function_works_from_the_archive(tmp_path: Path) -> None:
    archive = tmp_path / "probe.pyz"
    archive.write_bytes(probe_archive())
    (tmp_path / "trial.py").write_text(
        "def trial(tensorflow, x):\n    yield [tensorflow.NAME, __name__, x]\n"
    )
    code = (
        f"import sys, json; sys.path.insert(0, {str(archive)!r}); import trial;"
        " from validator.probe.child import fresh;"
        " print(json.dumps(fresh(trial.trial, 7, limit_s=60).values))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd="/", check=True)
    assert json.loads(done.stdout) == [["fake", "trial", 7]]
