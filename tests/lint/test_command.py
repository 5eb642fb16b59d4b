"""The command: its formats, its exit codes, and hostile names and text."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args

import pytest

from validator import cli
from validator.lint.blame import CODES
from validator.model.prediction import Rule

from .support import write

WRONG = "tensorflow==2.18.0\nnvidia-cudnn-cu12==8.9.7.29\n"


def test_every_code_is_that_of_a_rule() -> None:
    assert set(CODES) <= set(get_args(Rule))


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, "requirements.txt", WRONG)
    assert cli.run(["lint", str(path), "--json"]) == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["file"], finding["line"], finding["column"]) == (str(path), 2, 1)
    assert finding["code"] == "cudnn_of_another_major"
    assert {"message", "fix", "fact", "source"} < set(finding)


def test_nothing_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, "requirements.txt", "tensorflow\n")
    assert cli.run(["lint", str(path)]) == 0
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "Nothing found in 1 file.\n")


@pytest.mark.parametrize("version", ["2.45", "2.99", "2.16.99"])
def test_a_release_that_may_be_newer_than_the_facts_is_not_checked(
    version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, "requirements.txt", f"numpy\ntensorflow=={version}\n")
    assert cli.run(["lint", str(path)]) == 0
    shown = capsys.readouterr()
    first, last = shown.err.splitlines()
    assert first.startswith(f'{path}:2: not checked: tensorflow "{version}" is not known; the nearest are ')
    assert (shown.out, last) == ("", "Nothing found in 1 file.")


@pytest.mark.parametrize(("format_", "out"), [("json", '{\n  "findings": []\n}\n'), ("github", "")])
def test_every_format_says_on_stderr_that_a_release_is_not_checked(
    format_: str, out: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, "requirements.txt", "tensorflow==2.99\n")
    assert cli.run(["lint", str(path), "--format", format_]) == 0
    shown = capsys.readouterr()
    assert shown.out == out
    (line,) = shown.err.splitlines()
    assert line.startswith(f'{path}:1: not checked: tensorflow "2.99" is not known')


def test_annotations_of_a_hostile_name_stay_one_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, "a,line=1::\n::error::x%0A\x1b[31m.txt", WRONG)
    assert cli.run(["lint", str(path), "--format", "github"]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    properties = re.fullmatch(
        r"::error file=([^:,\n]*),line=2,col=1,title=cudnn_of_another_major::[^\x1b]*", line
    )
    assert properties is not None
    assert properties[1].endswith("x%250A\\x1b[31m.txt")


def test_text_of_a_hostile_name_does_not_reach_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.run(["lint", str(write(tmp_path, "\x1b[31m\n::error::.txt", WRONG))])
    assert "\x1b" not in capsys.readouterr().out


def test_codes_can_be_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(write(tmp_path, "requirements.txt", WRONG))
    assert cli.run(["lint", path, "--ignore", "cudnn_of_another_major"]) == 0
    assert cli.run(["lint", path, "--ignore", "cudnn"]) == 2
    assert 'there is no code "cudnn"' in capsys.readouterr().err


def test_a_fault_that_two_files_share_is_reported_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inner = write(tmp_path, "requirements.txt", WRONG)
    outer = write(tmp_path, "dev.txt", "-r requirements.txt\npytest\n")
    cli.run(["lint", str(outer), str(inner), "--json"])
    assert len(json.loads(capsys.readouterr().out)["findings"]) == 1
