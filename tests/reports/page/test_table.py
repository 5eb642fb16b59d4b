"""The table of answers to the usual questions about machines."""

from __future__ import annotations

import functools
import itertools
import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from validator.answers import table
from validator.answers.browser import ask
from validator.answers.table import MARKS, make_table, question
from validator.compat.gpus import gpu_names, gpus, plain_words
from validator.reports.page import answers

#: Some of each kind: none, a compute capability, models with and without a condition or a measurement.
GROUPS = ("", "8.9", "9.0", "9.0 h200", "9.0 alone", "7.5 t4", "8.7 jetson")
DRIVERS = ("", "470", "525", "535", "580", "580.9999.99")


@functools.cache
def small_table() -> dict[str, Any]:
    """Return a table of some answers, which is made in seconds. The whole one takes minutes."""
    made = make_table(("linux x86_64", "wsl2 x86_64", "linux jetson"), GROUPS, DRIVERS, ("", "3.12"))
    return json.loads(json.dumps(made))  # type: ignore[no-any-return]


@functools.cache
def _columns() -> list[list[list[int]]]:
    nodes = small_table()["nodes"]
    return [[list(itertools.accumulate(column)) for column in columns] for _, _, columns in nodes]


def expanded(found: dict[str, Any], number: int, fills: dict[str, str]) -> Any:
    """Return a part of an answer, as the page's script does it."""
    if number >= 0:
        text = found["texts"][number]
        for mark, value in fills.items():
            text = text.replace(mark, value) if isinstance(text, str) else text
        return text
    place = -1 - number
    for (kind, size, _), columns in zip(found["nodes"], _columns(), strict=True):
        if place < size:
            values = [expanded(found, column[place], fills) for column in columns]
            return dict(zip(found["kinds"][kind - 1], values, strict=True)) if kind else values
        place -= size
    raise AssertionError(number)


def answer(system: str, group: str, driver: str, python: str) -> Any:
    """Return an answer of the small table; None if it does not have it."""
    found = small_table()
    place = 0
    for name, value in (("systems", system), ("groups", group), ("drivers", driver), ("pythons", python)):
        place = place * len(found[name]) + found[name].index(value)
    number, machine = found["roots"][place], table.machines()[group]
    name = f"{machine.asked}, " if machine.asked and not machine.asked[0].isdigit() else ""
    branch = driver.partition(".")[0]
    fills = dict(zip(MARKS, (name, machine.label, f"driver {driver}", driver, branch, branch), strict=True))
    return expanded(found, number, fills) if number else None


@pytest.mark.slow
def test_each_answer_of_the_table_is_that_of_the_rules() -> None:
    found, missing = small_table(), 0
    keys = itertools.product(found["systems"], found["groups"], found["drivers"], found["pythons"])
    for system, group, driver, python in keys:
        asked = question(table.machines()[group].asked, driver, system, python)
        given = answer(system, group, driver, python)
        missing += given is None
        assert given is None or given == json.loads(ask(json.dumps(asked))), (system, group, driver, python)
    # A GPU that is not in a Jetson is asked about with the system of one only by mistake.
    assert missing == 5 * len(DRIVERS) * 2


@pytest.mark.slow
@pytest.mark.parametrize("driver", ["535.183.01", "R580.65.06"])
def test_gpus_of_a_group_and_releases_of_a_branch_share_answers(driver: str) -> None:
    release = driver.removeprefix("R")
    branch = release.partition(".")[0]
    row = "580.9999.99" if branch == "580" else branch
    for name in ("RTX 4090", "L40S", "RTX 4000 Ada", "H100", "GH200", "Tesla T4", "NVIDIA H200", "9.0"):
        known = None if name[0].isdigit() else table.known_gpus()[plain_words(name)]
        given = json.dumps(answer("linux x86_64", table.group(known or name), row, "3.12"))
        machine = table.machines()[table.group(known or name)]
        for old, new in (
            (f"{machine.asked}, ", f"{known.name}, " if known else f"{machine.asked}, "),
            (f'-{machine.label}"', f'-{known.slug}"' if known else f'-{machine.label}"'),
            (row, release),
        ):
            given = given.replace(old, new)
        given = given.replace(f"lifecycle-{release}", f"lifecycle-{branch}").replace(
            f"@r{release}", f"@r{branch}"
        )
        wanted = ask(json.dumps(question(name, driver, "linux x86_64", "3.12")))
        assert json.loads(given.replace(f"R{release}", f"R{branch}")) == json.loads(wanted), name


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
