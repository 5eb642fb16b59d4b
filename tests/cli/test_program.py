"""Printed commands start the program the way it was started."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from validator import cli
from validator.cli import as_started, program
from validator.cli.options import print_status
from validator.diagnosis.remedies import ANYWHERE

ROOT = Path(__file__).parents[2]
LOG = "E tensorflow/x.cc:1] failed call to cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: unsupported\n"
#: The last line of what `doctor` says about a log, without the program.
MEASURE = 'doctor --python "$(command -v python)"'
#: argv[0], the Python, its prefix, and how to start the program again.
STARTS = [
    ("{here}/validator/__main__.py", "{here}/.venv/bin/python", "{here}/.venv", ".venv/bin/validator"),
    ("{here}/validator/__main__.py", "{tools}/python", "{tools}", "validator"),
    ("{here}/validator/__main__.py", "{bare}/python", "{bare}", "{bare}/python -m validator"),
    ("{tools}/validator", "{tools}/python", "{tools}", "validator"),
    ("{here}/.venv/bin/validator", "{here}/.venv/bin/python", "{here}/.venv", ".venv/bin/validator"),
    ("{other}/validator", "{other}/python", "{other}", "{other}/validator"),
    ("{other}/validator", "{other}/python", "{other}/uv/archive-v0/x1", ANYWHERE),
]

#: Makes the program look as if a row of STARTS had started it, and returns the row's last value, with paths.
Start = Callable[[str, str, str, str], str]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    places = {name: tmp_path / name for name in ("here", "here/.venv/bin", "tools", "other", "bare")}
    for name, place in places.items():
        place.mkdir(parents=True)
        for file in ("python", "validator") if name != "bare" else ("python",):
            (place / file).touch(mode=0o755)
    monkeypatch.chdir(places["here"])
    monkeypatch.setenv("PATH", str(places["tools"]))

    def start(argv: str, executable: str, prefix: str, shown: str) -> str:
        monkeypatch.setattr(sys, "argv", [argv.format(**places)])
        monkeypatch.setattr(sys, "executable", executable.format(**places))
        monkeypatch.setattr(sys, "prefix", prefix.format(**places))
        return shown.format(**places)

    return start


@pytest.mark.parametrize("way", STARTS, ids=[shown for *_, shown in STARTS])
def test_commands_start_the_program_as_it_was_started(
    way: tuple[str, str, str, str], start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = start(*way)
    print_status("run `validator plan`: validator lock\nvalidator run")
    assert capsys.readouterr().err == f"run `{shown} plan`: {shown} lock\n{shown} run\n"

    (log := tmp_path / "train.log").write_text(LOG)
    cli.run(["doctor", str(log)])
    assert capsys.readouterr().out.splitlines()[-1].strip() == f"{shown} {MEASURE}"
    # JSON may be read on another machine.
    cli.run(["doctor", "--json", str(log)])
    assert json.loads(capsys.readouterr().out)["next_command"] == f"{ANYWHERE} {MEASURE}"

    cli.run(["predict", "--gpu", "t4", "--driver", "470"])
    assert f"\n      {shown} build-matrix --profile full --select image=tf" in capsys.readouterr().out


def test_a_command_for_another_directory_has_the_full_path(start: Start) -> None:
    start(*STARTS[0])
    assert program(Path("deeper")) == f"{Path.cwd()}/.venv/bin/validator"
    assert program(Path.cwd()) == ".venv/bin/validator"


@pytest.mark.parametrize(
    "text", [
        "python -m validator.probe.cli", "/opt/validator plan", ".venv/bin/validator plan", "validators plan",
        "validator plans", "the validator", f"{ANYWHERE} plan",
    ],
)  # fmt: skip
def test_other_commands_are_left_unchanged(text: str, start: Start) -> None:
    start(*STARTS[3])
    assert as_started(text) == text


def test_a_program_that_imports_this_one_is_not_taken_for_it(start: Start) -> None:
    start("{here}/manage.py", "{here}/.venv/bin/python", "{here}/.venv", "")
    assert as_started("validator plan") == "validator plan"


def test_an_embedding_program_may_have_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [])
    assert as_started("validator plan") == "validator plan"


@pytest.mark.service
def test_the_hint_of_an_error_is_a_command_that_runs() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "validator", "plan", "--select", "image=none"],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    command = done.stderr.split("hint: `")[1].split("`")[0]
    again = subprocess.run(["sh", "-c", command], cwd=ROOT, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert "tf2.21.0" in again.stdout
