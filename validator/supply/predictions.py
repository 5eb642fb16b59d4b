"""Compare the predictions of two states of the facts, for whoever reviews the change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from .checkout import run_module

#: The profile of matrix.yaml whose cells are compared.
PROFILE = "full"
#: How many cells are named in each group of cells with the same change.
_NAMED = 3


class _Reason(msgspec.Struct):
    outcome: str
    text: str
    fact: str


class _Prediction(msgspec.Struct):
    outcome: str
    reasons: list[_Reason]


class _Cell(msgspec.Struct):
    id: str
    prediction: _Prediction


Group = TypeVar("Group", bound=tuple[str, ...])


@dataclass(frozen=True)
class Answer:
    """The outcome of a cell, and the first reason with this outcome."""

    outcome: str
    why: str


def answers(root: Path) -> dict[str, Answer]:
    """Return the predictions of the code, the facts and the matrix at `root`, by cell."""
    printed = run_module(root, "validator", "plan", "--profile", PROFILE, "--format", "json")
    return {cell.id: _answer(cell.prediction) for cell in msgspec.json.decode(printed, type=list[_Cell])}


def difference(before: Mapping[str, Answer], after: Mapping[str, Answer]) -> list[str]:
    """Return lines that say which cells change their outcome, appear or disappear, and why.

    Cells with the same change for the same reason are one entry.
    """
    changed: dict[tuple[str, str, str], list[str]] = {}
    for cell in before.keys() & after.keys():
        old, new = before[cell], after[cell]
        if old.outcome != new.outcome:
            changed.setdefault((f"{old.outcome} -> {new.outcome}", old.why, new.why), []).append(cell)
    new_cells: dict[tuple[str, str], list[str]] = {}
    for cell in after.keys() - before.keys():
        # A reviewer does not need the reasons why new cells work.
        why = "" if after[cell].outcome == "works" else after[cell].why
        new_cells.setdefault((after[cell].outcome, why), []).append(cell)
    gone = sorted(before.keys() - after.keys())
    count = sum(map(len, changed.values()))
    lines = [f"Predictions of the profile {PROFILE}: {count:,} of {len(before):,} cells change."]
    for (arrow, was, now), cells in _largest_first(changed):
        lines += [f"  {arrow}, {_cells(cells)}", f"    was: {was}", f"    now: {now}"]
    if new_cells:
        lines.append(f"New cells: {sum(map(len, new_cells.values())):,}.")
        for (outcome, why), cells in _largest_first(new_cells):
            lines += [f"  {outcome}, {_cells(cells)}", *([f"    {why}"] if why else [])]
    if gone:
        lines.append(f"Cells that are gone: {_cells(gone)}.")
    return lines


def _largest_first(groups: Mapping[Group, list[str]]) -> list[tuple[Group, list[str]]]:
    return sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))


def _cells(cells: Iterable[str]) -> str:
    ordered = sorted(cells)
    more = f" and {len(ordered) - _NAMED:,} more" if len(ordered) > _NAMED else ""
    return f"{len(ordered):,} {'cell' if len(ordered) == 1 else 'cells'}: {', '.join(ordered[:_NAMED])}{more}"


def _answer(prediction: _Prediction) -> Answer:
    for reason in prediction.reasons:
        if reason.outcome == prediction.outcome:
            return Answer(prediction.outcome, f"{reason.text} [{reason.fact}]")
    return Answer(prediction.outcome, "no reason is given")
