"""Rows are changed in the text of the facts, and nothing else is."""

from __future__ import annotations

import pytest
import yaml

from validator.compat import facts
from validator.supply.news import Row, Table, flow

from ..support import read_yaml

TEXT = """\
# What this is.
first:
  - {id: a, n: 1}  # why
  # About the next row.
  - {id: c, n: 3}
second:
  - {id: a, n: 9}
"""
#: In these, a row is more than one line, or there are no rows.
OTHER = ("builds", "known_issues", "reported", "sources")
FILES = sorted(path for path in facts.DATA.glob("*.yaml") if path.stem not in OTHER)


def by_n(row: Row) -> int:
    number: int = row["n"]
    return number


def test_a_row_is_inserted_in_order_and_everything_else_stays() -> None:
    table = Table(TEXT)
    table.put("first", {"id": "b", "n": 2}, by_n)
    table.put("first", {"id": "d", "n": 4}, by_n)
    table.put("second", {"id": "z", "n": 1}, by_n)
    assert table.text.splitlines() == [
        "# What this is.",
        "first:",
        "  - {id: a, n: 1}  # why",
        "  # About the next row.",
        "  - {id: b, n: 2}",
        "  - {id: c, n: 3}",
        "  - {id: d, n: 4}",
        "second:",
        "  - {id: z, n: 1}",
        "  - {id: a, n: 9}",
    ]


def test_a_row_is_replaced_in_its_place_and_only_in_its_section() -> None:
    table = Table(TEXT)
    table.put("first", {"id": "c", "n": 0}, by_n)
    assert table.text == TEXT.replace("{id: c, n: 3}", "{id: c, n: 0}")
    table.remove("second", "a")
    table.remove("second", "no-such-row")
    assert table.text == TEXT.replace("n: 3", "n: 0").replace("  - {id: a, n: 9}\n", "")


def test_a_section_without_rows_gets_its_first_and_an_unknown_one_is_an_error() -> None:
    table = Table("rows:\n")
    table.put("rows", {"id": "a"}, lambda row: row["id"])
    assert table.text == "rows:\n  - {id: a}\n"
    with pytest.raises(KeyError):
        table.put("others", {"id": "a"}, lambda row: row["id"])


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_row_of_the_facts_can_be_written_back(path: object) -> None:
    text = path.read_text(encoding="utf-8")  # type: ignore[attr-defined]
    table = Table(text)
    for section, rows in read_yaml(text).items():
        assert table.rows(section) == rows
        for row in rows:
            table.put(section, row, lambda _: 0)
    assert read_yaml(table.text) == read_yaml(text)
    comments = [line for line in text.splitlines() if line.lstrip().startswith("#")]
    assert [line for line in table.text.splitlines() if line.lstrip().startswith("#")] == comments


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tensorflow", "wheels"])
def test_rows_that_refresh_writes_are_spelled_as_the_others(name: str) -> None:
    text = (facts.DATA / f"{name}.yaml").read_text(encoding="utf-8")
    table = Table(text)
    for section in read_yaml(text):
        for row in table.rows(section):
            table.put(section, row, lambda _: 0)
    assert table.text == text


@pytest.mark.parametrize(
    "value",
    ["3.10", "1e3", "true", "null", "2026-11-21", "a: b", "a,b", "[x]", "it's", 'a "b"', "", "2.22.0rc0", "{",
     "12:30", "#x", "x #y", "é", 3, None, True, ["3.9", {"90": "8.5"}], {"3.10": 1}],
)  # fmt: skip
def test_a_value_reads_back_as_itself(value: object) -> None:
    assert yaml.safe_load(f"- {{a: {flow(value)}}}") == [{"a": value}]
