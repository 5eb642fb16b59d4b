"""The table of answers to the usual questions about machines."""

from __future__ import annotations

import datetime
import itertools
import json
import random
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from validator.answers import ask, table
from validator.answers.table import MARKS, last_month, make_table, question
from validator.compat.hardware import branches, ended, gpu_names, gpus, plain_words
from validator.reports.page import answers

#: Some of each kind: none, a compute capability, models with and without a condition or a measurement.
GROUPS = ("", "8.9", "9.0", "9.0 aarch64", "9.0 h200", "9.0 alone", "7.5 t4", "8.7 jetson")
DRIVERS = ("", "535", "580", "580.9999.99")
ALL_DRIVERS = ("470", "525", *DRIVERS)


def small_table(
    systems: Sequence[str] = ("linux x86_64", "wsl2 x86_64", "linux jetson"),
    drivers: Sequence[str] = DRIVERS,
    pythons: Sequence[str] = ("", "3.12"),
) -> dict[str, Any]:
    """Return a table of some answers, which is made in seconds. The whole one takes minutes."""
    made = make_table(systems, GROUPS, drivers, pythons)
    return json.loads(json.dumps(made))  # type: ignore[no-any-return]


def summed(found: dict[str, Any]) -> dict[str, Any]:
    """Return a table with its numbers instead of their differences."""
    nodes = [
        (kind, size, [list(itertools.accumulate(column)) for column in columns])
        for kind, size, columns in found["nodes"]
    ]
    return found | {"nodes": nodes}


def expanded(found: dict[str, Any], number: int, fills: dict[str, str]) -> Any:
    """Return a part of an answer, as the page's script does it."""
    if number >= 0:
        text = found["texts"][number]
        for mark, value in fills.items():
            text = text.replace(mark, value) if isinstance(text, str) else text
        return text
    place = -1 - number
    for kind, size, columns in found["nodes"]:
        if place < size:
            values = [expanded(found, column[place], fills) for column in columns]
            return dict(zip(found["kinds"][kind - 1], values, strict=True)) if kind else values
        place -= size
    raise AssertionError(number)


def answer(
    found: dict[str, Any], system: str, group: str, row: str, python: str, fills: tuple[str, ...] = ()
) -> Any:
    """Return an answer of a table, or None. fills: for MARKS, if they are not the row's."""
    place = 0
    for name, value in (("systems", system), ("groups", group), ("drivers", row), ("pythons", python)):
        place = place * len(found[name]) + found[name].index(value)
    number, machine = found["roots"][place], table.machines()[group]
    name = f"{machine.asked}, " if machine.asked and not machine.asked[0].isdigit() else ""
    branch = row.partition(".")[0]
    own = (name, machine.label, f"driver {row}", row, branch, branch)
    return expanded(found, number, dict(zip(MARKS, fills or own, strict=True))) if number else None


def compared(found: dict[str, Any]) -> tuple[list[tuple[str, ...]], int]:
    """Return the questions that a table answers otherwise than the rules, and how many it does not answer."""
    wrong: list[tuple[str, ...]] = []
    missing = 0
    for key in itertools.product(found["systems"], found["groups"], found["drivers"], found["pythons"]):
        system, group, driver, python = key
        given = answer(found, *key)
        asked = question(table.machines()[group].asked, driver, system, python)
        missing += given is None
        if given is not None and given != json.loads(ask(json.dumps(asked))):
            wrong.append(key)
    return wrong, missing


@pytest.mark.slow
def test_each_answer_of_the_table_is_that_of_the_rules() -> None:
    # A GPU that is not in a Jetson is asked about with the system of one only by mistake.
    assert compared(summed(small_table(drivers=ALL_DRIVERS))) == ([], 5 * len(ALL_DRIVERS) * 2)


@pytest.mark.slow
def test_a_random_part_of_the_table_has_the_answers_of_the_rules() -> None:
    some = random.SystemRandom().sample
    everything = (table.SYSTEMS, tuple(table.machines()), table.known_drivers(), table.known_pythons())
    chosen = [some(all_of_one, 2) for all_of_one in everything]
    found = summed(json.loads(json.dumps(make_table(*chosen))))
    wrong, _ = compared(found)
    assert wrong == []
    # One wrong number is noticed.
    answered = next((place for place, root in enumerate(found["roots"]) if root), None)
    if answered is not None:
        found["roots"][answered] = -1
        assert compared(found)[0]


@pytest.mark.slow
@pytest.mark.parametrize("driver", ["535.183.01", "R580.65.06"])
def test_gpus_of_a_group_and_releases_of_a_branch_share_answers(driver: str) -> None:
    release = driver.removeprefix("R")
    branch = release.partition(".")[0]
    row = "580.9999.99" if branch == "580" else branch
    found = summed(small_table(("linux x86_64",), (row,), ("3.12",)))
    for name in ("RTX 4090", "L40S", "RTX 4000 Ada", "H100", "GH200", "Tesla T4", "NVIDIA H200", "9.0"):
        known = None if name[0].isdigit() else table.known_gpus()[plain_words(name)]
        said, label = (f"{known.name}, ", known.slug) if known else ("", "sm90")
        fills = (said, label, f"driver {release}", release, branch, branch)
        given = answer(found, "linux x86_64", table.group(known or name), row, "3.12", fills)
        wanted = ask(json.dumps(question(name, driver, "linux x86_64", "3.12")))
        assert given == json.loads(wanted), name


@pytest.mark.slow
def test_every_gpu_that_the_page_suggests_is_in_the_table() -> None:
    known, groups = table.known_gpus(), table.machines()
    for name in (*gpu_names(), *(gpu.name for gpu in gpus())):
        found = known[plain_words(name)]
        assert (found.name, table.group(found) in groups) == (name, True)
    assert {table.group(one) for one in table.capabilities()} <= groups.keys()


def test_a_table_of_other_facts_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "table.bin"
    monkeypatch.setattr(answers, "TABLE", file)
    (tmp_path / "table.py").write_text("")
    assert answers.read_table() is None
    file.write_bytes(answers.digest().encode() + zlib.compress(b"{}"))
    assert answers.read_table() == "{}"
    (tmp_path / "table.py").write_text("# Another program.")
    assert answers.read_table() is None


def test_the_answers_are_right_until_the_month_in_which_a_branch_ends() -> None:
    today = datetime.date(2026, 11, 28)
    last = datetime.date.fromisoformat(f"{last_month(today)}-01")

    def ended_on(day: datetime.date) -> set[int]:
        return {branch.number for branch in branches() if ended(branch.number, day)}

    assert ended_on(today) == ended_on(last) < ended_on(last + datetime.timedelta(days=32))
