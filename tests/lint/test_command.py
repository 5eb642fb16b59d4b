"""The command: its formats, its exit codes, and hostile names and text."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest

from validator import cli
from validator.lint.findings import CODES
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


@pytest.mark.parametrize("version", ["2.45.0", "2.99.1", "2.16.99"])
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
    assert line.startswith(f'{path}:1: not checked: tensorflow "2.99.0" is not known')


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


#: The schema of SARIF 2.1.0 with its errata, unchanged: sarif-2.1/schema/ of github.com/oasis-tcs/sarif-spec
#: at a560296ca8c921f3bdb8d4a8db57ab83dae968a7.
SCHEMA = (Path(__file__).parent / "sarif-schema-2.1.0.json").read_bytes()


def sarif(capsys: pytest.CaptureFixture[str], *paths: Path) -> dict[str, Any]:
    """Return the run in the SARIF log for these files, which is valid."""
    cli.run(["lint", *map(str, paths), "--format", "sarif"])
    log = json.loads(capsys.readouterr().out)
    schema = json.loads(SCHEMA)
    assert log["$schema"] == schema["id"]
    jsonschema.Draft4Validator(schema, format_checker=jsonschema.FormatChecker()).validate(log)
    (found,) = log["runs"]
    assert isinstance(found, dict)
    return found


def test_the_schema_is_the_published_one() -> None:
    digest = "c3b4bb2d6093897483348925aaa73af03b3e3f4bd4ca38cef26dcb4212a2682e"
    assert hashlib.sha256(SCHEMA).hexdigest() == digest


def test_sarif(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = sarif(capsys, write(tmp_path, "requirements/dev 1:x.txt", WRONG))
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == list(CODES)
    assert all(rule["shortDescription"]["text"] and rule["fullDescription"]["text"] for rule in rules)
    assert all(
        rule["id"] in rule["help"]["text"] and rule["helpUri"].startswith("https://") for rule in rules
    )
    (result,) = run["results"]
    assert (result["ruleId"], result["level"]) == ("cudnn_of_another_major", "error")
    assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
    (location,) = result["locations"]
    assert location["physicalLocation"] == {
        "artifactLocation": {"uri": "requirements/dev%201%3Ax.txt"},
        "region": {"startLine": 2, "startColumn": 1},
    }
    assert result["message"]["text"].startswith("TensorFlow was compiled with cuDNN 9.3.0, and ")
    assert "Leave out NVIDIA's wheels" in result["message"]["text"]


def test_sarif_without_a_finding_has_the_rules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = sarif(capsys, write(tmp_path, "requirements.txt", "tensorflow\n"))
    assert (run["results"], len(run["tool"]["driver"]["rules"])) == ([], len(CODES))


def test_a_finding_keeps_its_fingerprint_when_lines_are_added(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    twice = "FROM tensorflow/tensorflow:2.18.0-gpu\nENV CUDA_VISIBLE_DEVICES=-1\n" * 2
    found = [
        [one["partialFingerprints"]["finding/v1"] for one in sarif(capsys, path)["results"]]
        for above in ("", "# a comment\n")
        for path in [write(tmp_path, "Dockerfile", above + twice)]
    ]
    assert found[0] == found[1]
    assert len(set(found[0])) == len(found[0]) >= 2


def test_sarif_of_hostile_names_and_text_is_valid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = write(tmp_path, "a{0}\x1b[31m#%?.txt", WRONG + "numpy==1.{0}.x\n")
    (tmp_path / "inside").mkdir()
    monkeypatch.chdir(tmp_path / "inside")
    results = sarif(capsys, outside)["results"]
    (address,) = {one["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for one in results}
    assert address.startswith("file:///")
    assert address.endswith("/a%7B0%7D%1B%5B31m%23%25%3F.txt")
    assert not [one for one in results if re.search(r"(?<!\{)\{0\}", one["message"]["text"])]
