"""Compare records of a store, now or at an earlier time, and records in files; return comparisons as JSON."""

from __future__ import annotations

import contextlib
import hashlib
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any, TypedDict

from ..errors import InputError
from ..model.codec import encode, parse_time
from ..model.record import Record
from ..system.files import open_file
from . import record_files
from .history import Decline, Difference, Entry, credible_time, finish_time, newest_by_cell
from .store import Store

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


def changes(before: Record, after: Record) -> tuple[Change, ...]:
    """Return what changed: first in the environment and the host, then in what measured them."""
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


def changed_checks(before: Record, after: Record) -> tuple[CheckChange, ...]:
    """Return the checks whose outcome differs, in the newer record's order."""
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


_SQLITE = b"SQLite format 3\0"


#: Returns the records with these ids, by id.
Fetch = Callable[[Iterable[str]], dict[str, Record]]


@dataclass(frozen=True)
class Snapshot:
    """The newest record of every cell as of some time. fetch: returns these records."""

    newest: dict[str, Entry]
    fetch: Fetch


def open_snapshot(
    text: str, store_url: str, now: datetime, stack: contextlib.ExitStack, believe: Callable[[Record], Record]
) -> Snapshot:
    """Open what a person named: a store, a file or directory of JSON Lines, or a time.

    store_url: the store whose earlier state a time stands for. stack: closes what is opened here. believe:
    returns a record of a file as it counts here. Raises InputError for anything else.
    """
    path = Path(text)
    # A URL may have a password in it, so it is never opened as a file.
    is_store = "://" in text
    if not is_store:
        with contextlib.suppress(OSError), open_file(path, sys.maxsize) as stream:
            is_store = stream.read(len(_SQLITE)) == _SQLITE
    if is_store:
        store = stack.enter_context(Store(text, read_only=True))
        return Snapshot(store.newest(now), store.fetch)
    if path.exists():
        limits = record_files.Limits()
        files = (
            record
            for file in record_files.files_of(path)
            for record in record_files.read_file(file, limits=limits)
        )
        read = {record.id: record for record in map(believe, _newest(files, now))}
        newest = newest_by_cell(map(Entry.of, read.values()), now)
        return Snapshot(newest, lambda identifiers: {each: read[each] for each in identifiers})
    try:
        at = parse_time(text, now)
    except InputError:
        raise InputError(
            f"{text}: not a file, a store's URL or a time",
            hint="for example records.jsonl, postgresql+psycopg://user@host/database, 2026-11-01 or 7d (ago)",
        ) from None
    store = stack.enter_context(Store(store_url, read_only=True))
    return Snapshot(store.newest(now, at), store.fetch)


def _newest(records: Iterable[Record], now: datetime) -> list[Record]:
    """Return the newest record of each cell with a key and without one, so that only those are in memory."""
    newest: dict[tuple[str, bool], tuple[datetime, str, Record]] = {}
    for record in records:
        if when := credible_time(finish_time(record), now):
            place = record.cell, bool(record.key)
            newest[place] = max(
                newest.get(place, (when, record.id, record)), (when, record.id, record), key=itemgetter(0, 1)
            )
    return [record for _, _, record in newest.values()]


def fetch_differences(
    found: Iterable[Difference[Entry]], before: Fetch, after: Fetch
) -> list[Difference[Record]]:
    """Return differences with their records, read in one go from each source."""
    found = list(found)
    old = before(pair.before.id for pair in found if pair.before)
    new = after(pair.after.id for pair in found if pair.after)
    return [Difference(_record(pair.before, old), _record(pair.after, new)) for pair in found]


def fetch_declines(found: Iterable[Decline[Entry]], store: Store) -> list[Decline[Record]]:
    """Return declines with their records, read in one go."""
    found = list(found)
    entries = [entry for each in found for entry in (each.newest, each.last_good, each.first_bad) if entry]
    records = store.fetch(entry.id for entry in entries)
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


class ChangedFields(TypedDict):
    """What changed besides the verdict."""

    changes: Annotated[
        list[dict[str, Any]],
        "What else changed between the two; empty if one of them is null. The fields of each are below.",
    ]
    checks: Annotated[
        list[dict[str, Any]],
        "The checks whose outcomes differ; empty if one of the two is null. The fields of each are below.",
    ]


class _Before(CellFields):
    """The first fields of a difference."""

    kind: Annotated[str, "`worse`, `better`, `appeared` (A has no record of it) or `vanished` (B has none)."]
    before: Annotated[RecordInShort | None, "The newest record in A, or null."]
    after: Annotated[RecordInShort | None, "The newest record in B, or null."]


class DifferenceDocument(_Before, ChangedFields):
    """An entry of `records compare --json`."""


class _Since(CellFields):
    """The first fields of a decline."""

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
        int,
        "How many records lie between the two; they are `unproven`, so neither good nor bad.",
    ]


class DeclineDocument(_Since, ChangedFields):
    """An entry of `records bisect --json` and `records regressions --json`, without its causes."""


def difference_document(difference: Difference[Record]) -> DifferenceDocument:
    """Return an entry of `records compare --json`."""
    return {
        **_cell(difference.either),
        "kind": difference.kind,
        "before": _if_any(difference.before),
        "after": _if_any(difference.after),
        **_changed(difference.before, difference.after),
    }


def decline_document(decline: Decline[Record]) -> DeclineDocument:
    """Return an entry of `records bisect --json` and `records regressions --json`, without its causes."""
    return {
        **_cell(decline.newest),
        "newest": _in_short(decline.newest),
        "last_good": _if_any(decline.last_good),
        "first_bad": _if_any(decline.first_bad),
        "between": decline.between,
        **_changed(decline.last_good, decline.first_bad),
    }


def _cell(record: Record) -> CellFields:
    return {"cell": record.cell, "image": record.image, "host_class": record.host_class}


def _if_any(record: Record | None) -> RecordInShort | None:
    return None if record is None else _in_short(record)


def _in_short(record: Record) -> RecordInShort:
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


def _changed(before: Record | None, after: Record | None) -> ChangedFields:
    if before is None or after is None:
        return {"changes": [], "checks": []}
    return {"changes": encode(changes(before, after)), "checks": encode(changed_checks(before, after))}
