"""The comparison of two checkouts, with packages that always give the same answer."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from . import compare, reader

ROOT = Path(__file__).parents[2]
NAMES = [entry.name for entry in reader.entries("written") if entry.name.startswith("written/a")]
ANSWER: dict[str, Any] = {
    "causes": [
        {
            "code": "driver_too_old",
            "strength": "certain",
            "title": "The driver is too old.",
            "means": "It does not know this CUDA.",
            "evidence": [{"text": "cuInit: 35", "where": "line 3", "count": 1}],
            "remedies": [{"way": "host", "says": "Upgrade it.", "commands": ["apt install driver"]}],
            "sources": ["https://docs.nvidia.com"],
            "explains": ["silent_cpu"],
        }
    ],
    "harmless": [
        {
            "code": "numa_notice",
            "says": "No harm.",
            "evidence": [{"text": "NUMA", "where": "line 1", "count": 2}],
        }
    ],
    "unknown": [{"text": "what?", "where": "line 9", "count": 1}],
    "facts": {"tensorflow": "2.18.0"},
    "read": "9 lines",
    "next_step": "upgrade it",
}


def checkout(place: Path, printed: str, code: int = 1) -> Path:
    """Make a checkout with this repository's corpus, and with a doctor that always prints this."""
    package = place / "validator"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(f"import sys\nprint(end={printed!r})\nsys.exit({code})\n")
    (place / "tests").symlink_to(ROOT / "tests")
    return place


def compared(*arguments: str | Path) -> int:
    return compare.main([*map(str, arguments), "--only", "written/a"])


def changed(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    answer = copy.deepcopy(ANSWER)
    change(answer)
    return answer


def differences(
    new: dict[str, Any], *, wording: bool, name: str = "written/a.txt", code: int = 1
) -> list[str]:
    return list(compare.differences(name, [1, ANSWER, ""], [code, new, ""], wording=wording))


@pytest.mark.slow
def test_two_checkouts_of_one_answer_do_not_differ(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = json.dumps(ANSWER)
    assert compared(checkout(tmp_path / "old", printed), checkout(tmp_path / "new", printed)) == 0
    assert capsys.readouterr().out == f"{len(NAMES)} answers compared: no difference\n"


@pytest.mark.slow
def test_a_difference_is_reported_for_each_entry(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = changed(lambda answer: answer["causes"][0].update(title="Too old.", code="driver_not_loaded"))
    old, new = checkout(tmp_path / "old", json.dumps(ANSWER)), checkout(tmp_path / "new", json.dumps(other))
    assert compared(old, new) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [
        NAMES[0],
        '  causes[0].code: "driver_too_old" -> "driver_not_loaded"',
        '  causes[0].title: "The driver is too old." -> "Too old."',
    ]
    assert lines[-1] == f"{len(NAMES)} answers compared: {len(NAMES)} differ"
    assert compared(old, new, "--ignore-wording") == 1
    assert "title" not in capsys.readouterr().out


@pytest.mark.slow
def test_two_errors_are_a_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    places = [checkout(tmp_path / name, "", code=2) for name in ("old", "new")]
    assert compared(*places) == 1
    assert "  no answer: " in capsys.readouterr().out


@pytest.mark.slow
def test_the_doctor_of_this_checkout_is_understood(capsys: pytest.CaptureFixture[str]) -> None:
    for name in (NAMES[0], next(entry.name for entry in reader.entries("reports"))):
        assert compare.main([str(ROOT), str(ROOT), "--only", name]) == 0
        assert capsys.readouterr().out.endswith(" answers compared: no difference\n")


@pytest.mark.slow
def test_no_entry_shows_nothing(tmp_path: Path) -> None:
    place = checkout(tmp_path / "old", json.dumps(ANSWER))
    assert compare.main([str(place), str(place), "--only", "nothing"]) == 1


@pytest.mark.slow
def test_the_package_of_another_place_is_refused(tmp_path: Path) -> None:
    old, new = tmp_path / "old", checkout(tmp_path / "new", json.dumps(ANSWER))
    old.mkdir()
    with pytest.raises(SystemExit, match=r"is not the validator of|No module named 'validator'"):
        compared(old, new)


@pytest.mark.parametrize(
    "change",
    [
        lambda answer: answer["causes"][0].update(title="x", means="x"),
        lambda answer: answer["causes"][0]["remedies"][0].update(says="x"),
        lambda answer: answer["harmless"][0].update(says="x"),
        lambda answer: answer.update(read="x", next_step="x"),
    ],
)
def test_wording_can_be_ignored(change: Callable[[dict[str, Any]], object]) -> None:
    assert differences(changed(change), wording=True)
    assert not differences(changed(change), wording=False)


@pytest.mark.parametrize(
    "change",
    [
        lambda answer: answer["causes"].append(answer["causes"][0]),
        lambda answer: answer["causes"].clear(),
        lambda answer: answer["causes"][0].update(strength="likely"),
        lambda answer: answer["causes"][0].update(explains=[]),
        lambda answer: answer["causes"][0].update(sources=[]),
        lambda answer: answer["causes"][0]["evidence"][0].update(where="line 4"),
        lambda answer: answer["causes"][0]["evidence"][0].update(count=2),
        lambda answer: answer["causes"][0]["evidence"][0].update(text="another line"),
        lambda answer: answer["causes"][0]["remedies"][0].update(way="docker"),
        lambda answer: answer["causes"][0]["remedies"][0]["commands"].append("reboot"),
        lambda answer: answer["harmless"][0].update(code="x"),
        lambda answer: answer["harmless"][0]["evidence"][0].update(count=3),
        lambda answer: answer["unknown"].clear(),
        lambda answer: answer["unknown"][0].update(text="x"),
        lambda answer: answer["facts"].update(driver="535"),
    ],
)
@pytest.mark.parametrize("wording", [True, False])
def test_only_wording_is_ignored(change: Callable[[dict[str, Any]], object], wording: bool) -> None:
    assert differences(changed(change), wording=wording)


def test_exit_codes_and_reports() -> None:
    assert differences(ANSWER, wording=False, code=0) == ["exit code: 1 -> 0"]
    reworded = changed(lambda answer: answer["causes"][0]["evidence"][0].update(text="x"))
    assert not differences(reworded, wording=False, name="reports/a.json")
    assert differences(reworded, wording=True, name="reports/a.json")
