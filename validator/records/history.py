"""The history of cells: their newest record at a time, the differences, and when a cell became worse.

Pure functions over entries, which are records without their reports. An imported report is never `certified`
and is not about an image, so it counts only in a cell that has no other record.

The newest record of a cell decides what is shown and certified. So a record whose finish time can't be read,
or lies in the future, is refused on import; if a store already has one, it is shown, but belongs to no
history.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from ..model import codec
from ..model.codec import NEVER, TOLERANCE, DocumentError, format_timestamp, parse_timestamp
from ..model.record import MeasurementError, Record, Verdict, measurement_of

_WORST_FIRST = (
    Verdict.BROKEN,
    Verdict.FAILED,
    Verdict.UNPROVEN,
    Verdict.WORKS_ON_CPU,
    Verdict.CERTIFIED,
)
_BAD = (Verdict.BROKEN, Verdict.FAILED)
WRONG_TIME_HINT = (
    "correct the wrong clock, and measure again; `records import --any-time` imports such a record as one"
    " that is never the newest"
)


def finish_time(record: Record) -> str:
    """Return the finish time that a record's runner signed (unverified), or else the record's own."""
    if record.measurement is None:
        return record.finished
    try:
        bundle = codec.parse(record.measurement)
        payload = base64.b64decode(bundle["dsseEnvelope"]["payload"], validate=True)
        return measurement_of(payload).finished
    except (DocumentError, MeasurementError, LookupError, TypeError, ValueError):
        return record.finished


def credible_time(text: str, now: datetime) -> datetime | None:
    """Return a finish time, or None where it can't be read or is more than `TOLERANCE` in the future."""
    found = parse_timestamp(text)
    return None if found is None or found > now + TOLERANCE else found


def wrong_time(record: Record, now: datetime) -> str | None:
    """Return why a record's finish time can't be right, with both clocks; None where it can."""
    text = finish_time(record)
    if credible_time(text, now) is not None:
        return None
    clock = f"this machine's clock says {format_timestamp(now)}"
    if parse_timestamp(text) is None:
        return f"record {record.id}: its finish time {text[:80]!r} is not a timestamp; {clock}"
    return f"record {record.id}: it finished at {text[:80]}, which is in the future; {clock}"


@dataclass(frozen=True)
class Entry:
    """A record without its report. finished: ISO 8601, see `finish_time`. keyed: it was measured here."""

    id: str
    cell: str
    verdict: Verdict
    finished: str
    keyed: bool

    @classmethod
    def of(cls, record: Record) -> Entry:
        return cls(record.id, record.cell, record.verdict, finish_time(record), bool(record.key))


#: An entry, or the record that it stands for.
T = TypeVar("T", Entry, Record)

#: The records of one cell, oldest first.
History = Sequence[Entry]


@dataclass(frozen=True)
class Difference(Generic[T]):
    """A cell whose newest verdict differs between two states. None on the side where it has no record."""

    before: T | None
    after: T | None

    @property
    def either(self) -> T:
        """The newer side, or the only one."""
        found = self.after or self.before
        assert found is not None
        return found

    @property
    def kind(self) -> str:
        """`worse`, `better`, `appeared` or `vanished`."""
        if self.before is None:
            return "appeared"
        if self.after is None:
            return "vanished"
        return "better" if goodness(self.after.verdict) > goodness(self.before.verdict) else "worse"


@dataclass(frozen=True)
class Decline(Generic[T]):
    """The decline of a cell.

    last_good: the newest record that is as good as the cell was; None if it was never good.
    first_bad: the first after it that is `failed` or `broken`, or else the first `unproven` one; None if
        there is none. between: the number of records between the two; they are `unproven`.
    """

    newest: T
    last_good: T | None
    first_bad: T | None
    between: int = 0


def goodness(verdict: Verdict) -> int:
    """Return a number that is greater for a better verdict."""
    return _WORST_FIRST.index(verdict)


def finished(entry: Entry) -> datetime:
    """Return when the measurement ended; for a time that can't be read, `NEVER`."""
    return parse_timestamp(entry.finished) or NEVER


def histories(entries: Iterable[Entry], now: datetime) -> dict[str, History]:
    """Return the history of every cell, cells sorted by name, without entries whose time can't be right."""
    cells: dict[str, list[Entry]] = {}
    dated = [(when, entry.id, entry) for entry in entries if (when := credible_time(entry.finished, now))]
    for _, _, entry in sorted(dated, key=lambda each: each[:2]):
        cells.setdefault(entry.cell, []).append(entry)
    return {cell: [entry for entry in cells[cell] if entry.keyed] or cells[cell] for cell in sorted(cells)}


def newest_by_cell(entries: Iterable[Entry], now: datetime, at: datetime | None = None) -> dict[str, Entry]:
    """Return the newest record of every cell, as of a time or of now."""
    known = entries if at is None else [entry for entry in entries if finished(entry) <= at]
    return {cell: history[-1] for cell, history in histories(known, now).items()}


def differences(before: Mapping[str, Entry], after: Mapping[str, Entry]) -> list[Difference[Entry]]:
    """Return the cells whose verdict differs between two states, and those that only one of them has."""
    pairs = [(before.get(cell), after.get(cell)) for cell in sorted(before.keys() | after.keys())]
    return [Difference(old, new) for old, new in pairs if not (old and new and old.verdict is new.verdict)]


def decline(history: History, standard: Verdict | None = None) -> Decline[Entry]:
    """Return the last good and first bad record of a cell. standard: what is good; by default its best."""
    newest = history[-1]
    standard = standard or _best(history)
    if standard in _BAD:
        return Decline(newest, None, history[0])
    good = [goodness(entry.verdict) >= goodness(standard) for entry in history]
    last = len(good) - 1 - good[::-1].index(True)
    after = history[last + 1 :]
    if not after:
        return Decline(newest, history[last], None)
    between = next((number for number, entry in enumerate(after) if entry.verdict in _BAD), 0)
    return Decline(newest, history[last], after[between], between)


def regressions(
    entries: Iterable[Entry],
    since: datetime,
    now: datetime,
    judge: Callable[[Iterable[Entry]], Iterable[Entry]] = iter,
) -> list[Decline[Entry]]:
    """Return the cells that are worse now than they were at a time, or at any time since.

    A cell that was `failed` or `broken` all the time did not get worse. judge: see `Store.judged`; it gets
    only the entries that decide, because it reads their reports.
    """
    counting: list[Entry] = []
    for history in histories(entries, now).values():
        earlier = sum(finished(entry) <= since for entry in history)
        counting += history[max(0, earlier - 1) :]
    found = []
    for history in histories(judge(counting), now).values():
        best = _best(history)
        if best not in _BAD and goodness(history[-1].verdict) < goodness(best):
            found.append(decline(history, best))
    return found


def _best(history: History) -> Verdict:
    return max((entry.verdict for entry in history), key=goodness)
