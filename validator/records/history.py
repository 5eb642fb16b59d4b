"""What became of cells over time: their state at a moment, what differs, since when a cell is bad.

Pure functions over entries. A report that was brought from elsewhere is never `certified` and answers for no
image, so it counts only in a cell that has nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from ..model.record import Verdict
from ..model.timestamps import NEVER, parse_timestamp
from .entry import Entry

#: From worst to best.
_RANK = {Verdict.BROKEN: 0, Verdict.FAILED: 1, Verdict.UNPROVEN: 2, Verdict.CERTIFIED: 3}
_BAD = (Verdict.BROKEN, Verdict.FAILED)

#: The records of one cell, oldest first.
History = Sequence[Entry]


@dataclass(frozen=True)
class Turn:
    """Where a cell turned bad.

    last_good: the newest record that is as good as the cell was; None where it never was good.
    first_bad: the first after it with a verdict of `failed` or `broken`, or failing that the first that is
        merely unproven; None where nothing is worse.
    between: records between the two, which are `unproven`: neither good nor bad.
    """

    newest: Entry
    last_good: Entry | None
    first_bad: Entry | None
    between: int = 0


@dataclass(frozen=True)
class Differing:
    """A cell whose newest verdict is another one. None on the side where it has no record."""

    cell: str
    before: Entry | None
    after: Entry | None


def rank(verdict: Verdict) -> int:
    """The greater the better."""
    return _RANK[verdict]


def finished(entry: Entry) -> datetime:
    """When it was measured. A time that can't be read lies before every other."""
    return parse_timestamp(entry.finished) or NEVER


def by_cell(entries: Iterable[Entry]) -> dict[str, History]:
    """The history of every cell, cells sorted by name."""
    cells: dict[str, list[Entry]] = {}
    for entry in sorted(entries, key=lambda entry: (finished(entry), entry.id)):
        cells.setdefault(entry.cell, []).append(entry)
    return {cell: [entry for entry in cells[cell] if entry.keyed] or cells[cell] for cell in sorted(cells)}


def state(entries: Iterable[Entry], at: datetime | None = None) -> dict[str, Entry]:
    """The newest record of every cell, at that time or now."""
    known = entries if at is None else [entry for entry in entries if finished(entry) <= at]
    return {cell: history[-1] for cell, history in by_cell(known).items()}


def differing(before: Mapping[str, Entry], after: Mapping[str, Entry]) -> list[Differing]:
    """The cells whose verdict is another one, and those that only one of two states has."""
    found = [
        Differing(cell, before.get(cell), after.get(cell)) for cell in sorted(before.keys() | after.keys())
    ]
    return [
        pair
        for pair in found
        if not (pair.before and pair.after and pair.before.verdict is pair.after.verdict)
    ]


def turn(history: History, measure: Verdict | None = None) -> Turn:
    """The last good and the first bad record of a cell.

    measure: how good is good; by default as good as the cell ever was.
    """
    newest = history[-1]
    best = measure or max((entry.verdict for entry in history), key=rank)
    if best in _BAD:
        return Turn(newest, None, history[0])
    good = max(number for number, entry in enumerate(history) if rank(entry.verdict) >= rank(best))
    worse = history[good + 1 :]
    if not worse:
        return Turn(newest, history[good], None)
    between = next((number for number, entry in enumerate(worse) if entry.verdict in _BAD), 0)
    return Turn(newest, history[good], worse[between], between)


def regressions(entries: Iterable[Entry], since: datetime) -> list[Turn]:
    """Cells that are worse now than they were at a time, or at any time since.

    A cell that was failed or broken all the while did not get worse.
    """
    found = []
    for history in by_cell(entries).values():
        before = [entry for entry in history if finished(entry) <= since][-1:]
        window = [*before, *(entry for entry in history if finished(entry) > since)]
        best = max((entry.verdict for entry in window), key=rank)
        if best not in _BAD and rank(history[-1].verdict) < rank(best):
            found.append(turn(history, best))
    return found
