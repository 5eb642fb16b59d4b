"""Two records of a cell side by side, and where a cell turned bad: what commands and reports tell."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from ..errors import InputError
from ..model.codec import encode
from ..model.record import Record
from ..model.timestamps import parse_time
from . import jsonl
from .changes import changed_checks, changes
from .entry import Entry
from .history import Differing, Turn, rank, state
from .store import Store


class Source(Protocol):
    """Where records are: a store, or what was read from files."""

    def entries(self, cell: str | None = None) -> list[Entry]:
        """Every record in short."""
        ...

    def fetch(self, identifiers: Iterable[str]) -> dict[str, Record]:
        """The records with these ids, by id."""
        ...


@dataclass(frozen=True)
class Difference:
    """A cell whose verdict differs. None on the side where it has no record."""

    before: Record | None
    after: Record | None

    @property
    def kind(self) -> str:
        """`worse`, `better`, `appeared` or `vanished`."""
        if self.before is None:
            return "appeared"
        if self.after is None:
            return "vanished"
        return "better" if rank(self.after.verdict) > rank(self.before.verdict) else "worse"

    def as_json(self) -> dict[str, Any]:
        shown = self.after or self.before
        assert shown is not None
        return {
            **_cell(shown),
            "kind": self.kind,
            "before": _short(self.before),
            "after": _short(self.after),
            **_between(self.before, self.after),
        }


@dataclass(frozen=True)
class Turned:
    """`history.Turn` with its records."""

    newest: Record
    last_good: Record | None
    first_bad: Record | None
    between: int

    def as_json(self) -> dict[str, Any]:
        return {
            **_cell(self.newest),
            "newest": _short(self.newest),
            "last_good": _short(self.last_good),
            "first_bad": _short(self.first_bad),
            "between": self.between,
            **_between(self.last_good, self.first_bad),
        }


def differences(pairs: Iterable[Differing], before: Source, after: Source) -> list[Difference]:
    """The records of two states, read all at once."""
    pairs = list(pairs)
    old = before.fetch(pair.before.id for pair in pairs if pair.before)
    new = after.fetch(pair.after.id for pair in pairs if pair.after)
    return [Difference(_of(pair.before, old), _of(pair.after, new)) for pair in pairs]


def turned(turns: Iterable[Turn], source: Source) -> list[Turned]:
    """The records of turns, read all at once."""
    turns = list(turns)
    entries = [entry for turn in turns for entry in (turn.newest, turn.last_good, turn.first_bad) if entry]
    records = source.fetch(entry.id for entry in entries)
    return [
        Turned(
            records[turn.newest.id],
            _of(turn.last_good, records),
            _of(turn.first_bad, records),
            turn.between,
        )
        for turn in turns
    ]


def _of(entry: Entry | None, records: Mapping[str, Record]) -> Record | None:
    return None if entry is None else records[entry.id]


def _cell(record: Record) -> dict[str, str]:
    return {"cell": record.cell, "image": record.image, "host_class": record.host_class}


def _short(record: Record | None) -> dict[str, Any] | None:
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


def _between(before: Record | None, after: Record | None) -> dict[str, Any]:
    if before is None or after is None:
        return {"changes": [], "checks": []}
    return {
        "changes": encode(changes(before, after)),
        "checks": encode(changed_checks(before, after)),
    }


# What may be compared: a store, a file or directory of JSON Lines, or this store as it was at a time.

_SQLITE = b"SQLite format 3\0"


@dataclass(frozen=True)
class Point:
    """The newest record of every cell, and where they are read."""

    state: dict[str, Entry]
    source: Source


class Kept:
    """Records that were read from files."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._records = {record.id: record for record in records}

    def entries(self, cell: str | None = None) -> list[Entry]:
        entries = (Entry.of(record) for record in self._records.values())
        return [entry for entry in entries if cell in (None, entry.cell)]

    def fetch(self, identifiers: Iterable[str]) -> dict[str, Record]:
        return {identifier: self._records[identifier] for identifier in identifiers}


def point(text: str, store_url: str, now: datetime, stack: contextlib.ExitStack) -> Point:
    """What a person named.

    store_url: the store that times are times of. stack: closes what is opened here. Raises InputError for
    what is neither a store, nor a file, nor a time.
    """
    path = Path(text)
    if "://" in text or _is_sqlite(path):
        store = stack.enter_context(Store(text, must_exist=True))
        return Point(state(store.entries()), store)
    if path.exists():
        kept = Kept(record for file in jsonl.files_of(path) for record in jsonl.read_file(file))
        return Point(state(kept.entries()), kept)
    try:
        at = parse_time(text, now)
    except InputError:
        raise InputError(
            f"{text}: neither a file, nor a store's URL, nor a time",
            hint="for example records.jsonl, postgresql+psycopg://user@host/database, 2026-11-01 or 7d (ago)",
        ) from None
    store = stack.enter_context(Store(store_url, must_exist=True))
    return Point(state(store.entries(), at), store)


def _is_sqlite(path: Path) -> bool:
    try:
        with open(path, "rb") as stream:
            return stream.read(len(_SQLITE)) == _SQLITE
    except OSError:
        return False
