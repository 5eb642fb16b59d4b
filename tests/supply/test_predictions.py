"""The difference of predictions that a reviewer reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from validator.supply.release_facts import Answer, answers, difference

WORKS, FAILS, UNKNOWN = (
    Answer("works", "w [f1]"),
    Answer("fails", "no kernels [f2]"),
    Answer("unknown", "? [f3]"),
)


def test_equal_predictions_change_nothing() -> None:
    assert difference({"a": WORKS}, {"a": WORKS}) == ["Predictions of the profile full: 0 of 1 cells change."]


def test_another_reason_for_the_same_outcome_is_no_change() -> None:
    assert difference({"a": WORKS}, {"a": Answer("works", "other")})[1:] == []


def test_cells_that_change_are_grouped_by_the_change_and_its_reason_largest_first() -> None:
    before = dict.fromkeys("abcdef", WORKS) | {"u": UNKNOWN}
    after = dict.fromkeys("abcde", FAILS) | {"f": UNKNOWN, "u": WORKS}
    assert difference(before, after) == [
        "Predictions of the profile full: 7 of 7 cells change.",
        "  works -> fails, 5 cells: a, b, c and 2 more",
        "    was: w [f1]",
        "    now: no kernels [f2]",
        "  unknown -> works, 1 cell: u",
        "    was: ? [f3]",
        "    now: w [f1]",
        "  works -> unknown, 1 cell: f",
        "    was: w [f1]",
        "    now: ? [f3]",
    ]


def test_new_cells_have_reasons_unless_they_work_and_missing_cells_are_named() -> None:
    after = {"a": WORKS, "b": Answer("works", "another reason"), "c": FAILS}
    assert difference({"x": WORKS}, after) == [
        "Predictions of the profile full: 0 of 1 cells change.",
        "New cells: 3.",
        "  works, 2 cells: a, b",
        "  fails, 1 cell: c",
        "    no kernels [f2]",
        "Cells that are gone: 1 cell: x.",
    ]


@pytest.mark.slow
def test_the_predictions_of_a_checkout_are_those_of_plan() -> None:
    found = answers(Path(__file__).resolve().parents[2])
    assert len(found) > 3000
    assert {answer.outcome for answer in found.values()} >= {"works", "fails"}
    cell = found["tf2.21.0-cuda12.5-cudnn9.3-py312@r525-h100"]
    assert cell.outcome == "fails" and cell.why.endswith("]")
