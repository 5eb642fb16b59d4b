"""One line on a terminal if the facts are out of date, and nothing anywhere else."""

from __future__ import annotations

import datetime
import io
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from validator import supply
from validator.cli.options import say_if_stale
from validator.compat import facts
from validator.supply import remember

ROOT = Path(__file__).parents[2]
NOW = datetime.datetime(2026, 1, 2, 3, 4, 5)
OLD = facts.read_on() + supply.OLDEST + datetime.timedelta(days=1)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VALIDATOR_CACHE", str(tmp_path))


def test_old_facts_are_one_line_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    say_if_stale(OLD, Terminal())
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert printed.err.startswith("These facts are 61 days old")


def test_young_facts_and_no_terminal_are_silent(capsys: pytest.CaptureFixture[str]) -> None:
    say_if_stale(facts.read_on(), Terminal())
    say_if_stale(OLD, io.StringIO())
    assert capsys.readouterr() == ("", "")


def test_what_the_last_check_saw_is_said_until_the_facts_know_it(capsys: pytest.CaptureFixture[str]) -> None:
    remember({"TensorFlow": ["99.1.0"]}, NOW)
    say_if_stale(facts.read_on(), Terminal())
    assert "These facts don't know TensorFlow 99.1.0, which the package index has." in capsys.readouterr().err
    remember({"TensorFlow": ["2.21.0"]}, NOW)
    say_if_stale(facts.read_on(), Terminal())
    assert capsys.readouterr().err == ""


@pytest.mark.slow
@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize(
    "words",
    [
        ["plan"],
        ["predict", "--tensorflow", "2.21.0"],
        ["predict", "--tensorflow", "2.21.0", "--driver", "580", "--gpu", "l4"],
        ["doctor", "tests/corpus/captured/2.18.1/visible_devices_99.log"],
    ],
    ids=" ".join,
)
def test_plan_predict_and_doctor_say_it(words: list[str], terminal: bool) -> None:
    remember({"TensorFlow": ["99.1.0"]}, NOW)
    said = errors_of(words, terminal)
    assert said.count("These facts don't know TensorFlow 99.1.0") == (1 if terminal else 0)


def errors_of(words: list[str], terminal: bool) -> str:
    """Run a command whose stderr is a terminal or a pipe; return what it writes there."""
    ours, theirs = pty.openpty() if terminal else os.pipe()
    child = subprocess.Popen(
        [sys.executable, "-m", "validator", *words],
        cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    said = b""
    try:
        while piece := os.read(ours, 65536):
            said += piece
    except OSError:
        # Linux reports the closed end of a pty as an I/O error.
        pass
    os.close(ours)
    assert child.wait() in (0, 1)
    return said.decode()
