"""The history of cells: their newest record at a time, when a cell became worse, and what changed with it.

Pure functions over records, and over entries, which are records without their reports. An imported report is
never `certified` and is not about an image, so it counts only in a cell that has no other record.

The newest record of a cell decides what is shown and certified. So a record whose finish time can't be read,
or lies in the future, is refused on import; if a store already has one, it is shown, but belongs to no
history.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Generic, TypedDict, TypeVar

from ..model import codec
from ..model.codec import NEVER, TOLERANCE, DocumentError, encode, format_timestamp, parse_timestamp
from ..model.record import MeasurementError, Record, Verdict, measurement_of

_WORST_FIRST = (Verdict.BROKEN, Verdict.FAILED, Verdict.UNPROVEN, Verdict.WORKS_ON_CPU, Verdict.CERTIFIED)
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


# Get the records that entries stand for.

#: Returns the records with these ids, by id.
Fetch = Callable[[Iterable[str]], dict[str, Record]]


def fetch_differences(
    found: Iterable[Difference[Entry]], before: Fetch, after: Fetch
) -> list[Difference[Record]]:
    """Return differences with their records, read in one go from each source."""
    found = list(found)
    old = before(pair.before.id for pair in found if pair.before)
    new = after(pair.after.id for pair in found if pair.after)
    return [Difference(_record(pair.before, old), _record(pair.after, new)) for pair in found]


def fetch_declines(found: Iterable[Decline[Entry]], fetch: Fetch) -> list[Decline[Record]]:
    """Return declines with their records, read in one go."""
    found = list(found)
    entries = [entry for each in found for entry in (each.newest, each.last_good, each.first_bad) if entry]
    records = fetch(entry.id for entry in entries)
    return [
        Decline(
            records[each.newest.id],
            _record(each.last_good, records),
            _record(each.first_bad, records),
            each.between,
        )
        for each in found
    ]


def _record(entry: Entry | None, records: Mapping[str, Record]) -> Record | None:
    return None if entry is None else records[entry.id]


# Find what else changed between two records of a cell, as the possible causes of another verdict.
#
# Where one side could not know a fact (nothing was probed, the engine has no images), no change is reported.

#: Facts of the host, as its probe names them (docs/reference/report.md).
_HOST = ("driver", "driver_cuda", "kernel_driver", "kernel", "os", "glibc", "container")


@dataclass(frozen=True)
class Change:
    """One thing that differs."""

    kind: Annotated[str, "What differs: see below."]
    name: Annotated[str | None, "The package, version or variable; null where there is only one of the kind."]
    before: Annotated[str | None, "Null for something that was not there."]
    after: Annotated[str | None, "Null for something that is not there any more."]


@dataclass(frozen=True)
class CheckChange:
    """A check whose outcome differs."""

    id: Annotated[str, "Which check it is."]
    before: Annotated[str | None, "The outcome; null if it did not run."]
    after: Annotated[str | None, "The outcome; null if it did not run."]
    summary: Annotated[str | None, "One sentence, from the newer record."]


def changes(before: Record | None, after: Record | None) -> tuple[Change, ...]:
    """Return what changed: first in the environment and the host, then in what measured them."""
    if before is None or after is None:
        return ()
    old, new = before.environment, after.environment
    return (
        *_one("lock", before.lock_digest, after.lock_digest),
        *_each("package", old.packages, new.packages),
        *_each("version", before.versions, after.versions),
        *_one("base", before.base, after.base),
        *(
            Change(change.name or "", None, change.before, change.after)
            for change in _each("host", _host(before), _host(after))
        ),
        *_each("variable", old.variables, new.variables),
        *_one("engine", before.engine, after.engine),
        *_one("probe", before.probe_version, after.probe_version),
        *_one("image", before.image_digest, after.image_digest),
    )


def changed_checks(before: Record | None, after: Record | None) -> tuple[CheckChange, ...]:
    """Return the checks whose outcome differs, in the newer record's order."""
    if before is None or after is None:
        return ()
    old = {check.id: check for check in before.results}
    new = {check.id: check for check in after.results}
    names = (*new, *(name for name in old if name not in new))
    found = []
    for name in names:
        was = old[name].outcome.value if name in old else None
        now = new[name].outcome.value if name in new else None
        if was != now:
            found.append(CheckChange(name, was, now, new[name].sentence if name in new else None))
    return tuple(found)


def _one(kind: str, before: str | None, after: str | None) -> list[Change]:
    if before is None or after is None or before == after:
        return []
    return [Change(kind, None, before, after)]


def _each(kind: str, before: Mapping[str, str | None], after: Mapping[str, str | None]) -> list[Change]:
    """Compare name by name. An empty mapping means that its side knows nothing."""
    if not before or not after:
        return []
    names = [*before, *(name for name in after if name not in before)]
    pairs = [(name, before.get(name), after.get(name)) for name in names]
    return [Change(kind, name, old, new) for name, old, new in pairs if old != new]


def _host(record: Record) -> dict[str, str | None]:
    if not record.host:
        return {}
    facts = record.facts
    models = Counter(f"{gpu.name} ({gpu.compute_capability})" for gpu in facts.gpus)
    uuids = "\n".join(sorted(gpu.uuid for gpu in facts.gpus if gpu.uuid))
    return {
        **{name: getattr(facts, name) for name in _HOST},
        # `2 NVIDIA H100 80GB HBM3 (9.0)`.
        "gpu": ", ".join(f"{count} {model}" for model, count in sorted(models.items())) or None,
        # UUIDs identify a person's hardware and must not be shown.
        "machine": hashlib.sha256(uuids.encode(errors="replace")).hexdigest()[:12] if uuids else None,
        "cpu": facts.cpu.model if facts.cpu else None,
    }


# As JSON (docs/reference/json.md).


class CellFields(TypedDict):
    """The names of a cell."""

    cell: Annotated[str, "The image spec and the host class, joined."]
    image: Annotated[str, "The identifier of the image spec."]
    host_class: Annotated[str, "The host class."]


class RecordInShort(TypedDict):
    """A summary of a record."""

    record: Annotated[str, "Its id."]
    verdict: Annotated[str, "Its verdict."]
    reason: Annotated[str, "One sentence that explains the verdict."]
    engine: Annotated[str, "What ran the image."]
    image_digest: Annotated[str | None, "As in the record."]
    lock_digest: Annotated[str | None, "As in the record."]
    probe_version: Annotated[str | None, "As in the record."]
    finished: Annotated[str, "UTC, ISO 8601."]


_Changes = Annotated[
    list[dict[str, Any]],
    "What else changed between the two; empty if one of them is null. The fields of each are below.",
]
_Checks = Annotated[
    list[dict[str, Any]],
    "The checks whose outcomes differ; empty if one of the two is null. The fields of each are below.",
]


class DifferenceDocument(CellFields):
    """An entry of `records compare --json`."""

    kind: Annotated[str, "`worse`, `better`, `appeared` (A has no record of it) or `vanished` (B has none)."]
    before: Annotated[RecordInShort | None, "The newest record in A, or null."]
    after: Annotated[RecordInShort | None, "The newest record in B, or null."]
    changes: _Changes
    checks: _Checks


class DeclineDocument(CellFields):
    """An entry of `records bisect --json` and `records regressions --json`, without its causes."""

    newest: Annotated[RecordInShort, "Its newest record."]
    last_good: Annotated[
        RecordInShort | None,
        "The newest record that is as good as the cell ever was (for `regressions`: as it was at that"
        " time or since); null if it was never good.",
    ]
    first_bad: Annotated[
        RecordInShort | None,
        "The first record after it that is `failed` or `broken`; if there is none, the first one after"
        " it, which is `unproven`. Null if nothing is worse.",
    ]
    between: Annotated[
        int, "How many records lie between the two; they are `unproven`, so neither good nor bad."
    ]
    changes: _Changes
    checks: _Checks


def difference_document(difference: Difference[Record]) -> DifferenceDocument:
    """Return an entry of `records compare --json`."""
    return {
        **_cell(difference.either),
        "kind": difference.kind,
        "before": _in_short(difference.before),
        "after": _in_short(difference.after),
        "changes": encode(changes(difference.before, difference.after)),
        "checks": encode(changed_checks(difference.before, difference.after)),
    }


def decline_document(decline: Decline[Record]) -> DeclineDocument:
    """Return an entry of `records bisect --json` and `records regressions --json`, without its causes."""
    newest = _in_short(decline.newest)
    assert newest is not None
    return {
        **_cell(decline.newest),
        "newest": newest,
        "last_good": _in_short(decline.last_good),
        "first_bad": _in_short(decline.first_bad),
        "between": decline.between,
        "changes": encode(changes(decline.last_good, decline.first_bad)),
        "checks": encode(changed_checks(decline.last_good, decline.first_bad)),
    }


def _cell(record: Record) -> CellFields:
    return {"cell": record.cell, "image": record.image, "host_class": record.host_class}


def _in_short(record: Record | None) -> RecordInShort | None:
    if record is None:
        return None
    return {
        "record": record.id,
        "verdict": record.verdict.value,
        "reason": record.reason,
        "engine": record.engine,
        "image_digest": record.image_digest,
        "lock_digest": record.lock_digest,
        "probe_version": record.probe_version,
        "finished": record.finished,
    }
