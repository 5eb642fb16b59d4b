"""Challenges: made for one cell and one run, and used by one record."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from validator.certify.trust import LIFETIME, Challenges, Ledger, new_challenge, read_challenges
from validator.errors import InputError, MissingError

NOW = datetime(2026, 11, 22, 1, 17, tzinfo=timezone.utc)
IMAGE, CELL = "tf2.21.0-cuda12.5-cudnn9.3-py312", "tf2.21.0-cuda12.5-cudnn9.3-py312@r580-h100"


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return Ledger()


def file(directory: Path, *rows: Any) -> Path:
    path = directory / "cells.json"
    path.write_text(json.dumps({"include": rows}))
    return path


def row(**changes: str) -> dict[str, str]:
    return {
        "id": CELL,
        "challenge": "a" * 64,
        "issued": "2026-11-22T01:17:00+00:00",
        "runner": "x",
        **changes,
    }


def test_a_challenge_is_for_one_cell_or_one_image() -> None:
    for_cell, for_image = new_challenge(CELL, NOW), new_challenge(IMAGE, NOW)
    assert for_cell.value != for_image.value
    assert len(bytes.fromhex(for_cell.value)) == 32
    assert for_cell.is_for(IMAGE, CELL)
    assert not for_cell.is_for(IMAGE, f"{IMAGE}@r535-t4")
    assert for_image.is_for(IMAGE, f"{IMAGE}@r535-t4")
    assert not for_image.is_for("tf2.20.0-cuda12.5-cudnn9.3-py312", CELL)


def test_the_ledger_remembers_what_it_issued(ledger: Ledger) -> None:
    assert ledger.find("a" * 64) is None, "nothing was issued yet"
    made = ledger.issue(IMAGE, NOW)
    assert Ledger().find(made.value) == made
    assert ledger.find("a" * 64) is None
    assert os.stat(ledger.path.parent).st_mode & 0o077 == 0, "nobody else can read it"


def check_used_once(challenges: Challenges, value: str) -> None:
    assert challenges.use(value, "first") is None
    assert challenges.use(value, "first") is None, "an interrupted `certify` may be repeated"
    assert challenges.use(value, "second") == "first"
    assert challenges.use(value, "first") is None


def test_a_challenge_of_the_ledger_is_used_by_one_record(ledger: Ledger) -> None:
    check_used_once(ledger, ledger.issue(IMAGE).value)


def test_a_challenge_of_a_workflow_is_used_by_one_record(tmp_path: Path) -> None:
    check_used_once(read_challenges(file(tmp_path, row())), "a" * 64)


def test_of_many_processes_one_uses_a_challenge(ledger: Ledger) -> None:
    value = ledger.issue(IMAGE).value
    with ThreadPoolExecutor(8) as pool:
        before = list(pool.map(lambda number: Ledger().use(value, f"record {number}"), range(16)))
    assert before.count(None) == 1
    assert len(set(before)) == 2


def test_old_challenges_are_forgotten(ledger: Ledger) -> None:
    old = ledger.issue(IMAGE, NOW - 2 * LIFETIME - timedelta(seconds=1))
    young = ledger.issue(IMAGE, NOW - LIFETIME)
    ledger.issue(IMAGE, NOW)
    assert ledger.find(old.value) is None
    assert ledger.find(young.value) == young


def test_a_damaged_ledger_is_reported(ledger: Ledger) -> None:
    ledger.issue(IMAGE)
    ledger.path.write_bytes(b"not a database " * 100)
    with pytest.raises(MissingError, match="the challenges can't be read"):
        ledger.find("a" * 64)


def test_the_challenges_of_a_workflow_are_read_from_its_cells(tmp_path: Path) -> None:
    found = read_challenges(file(tmp_path, row(), row(id="other", challenge="b" * 64)))
    challenge = found.find("a" * 64)
    assert challenge is not None
    assert (challenge.asked, challenge.issued) == (CELL, NOW)
    assert found.find("c" * 64) is None


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('{"include": [{"id": "x"}]}', "include[0].challenge: missing"),
        ("[]", "not a file of challenges"),
        ("{", "not a file of challenges"),
        (json.dumps({"include": [row(challenge="A" * 64)]}), f"the challenge of {CELL} can't be read"),
        (json.dumps({"include": [row(issued="yesterday")]}), f"the challenge of {CELL} can't be read"),
        (json.dumps({"include": [row(), row(id="x")]}), "x has the challenge of another cell"),
    ],
)
def test_a_wrong_file_of_challenges_is_refused(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "cells.json"
    path.write_text(content)
    with pytest.raises(InputError) as caught:
        read_challenges(path)
    assert says in str(caught.value)
    with pytest.raises(InputError, match="can't be read"):
        read_challenges(tmp_path / "none")
