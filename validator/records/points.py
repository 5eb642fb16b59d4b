"""What may be compared: a store, a file or directory of JSON Lines, or this store as it was at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from ..errors import InputError
from ..model.record import Record
from . import jsonl
from .compared import Source
from .entry import Entry
from .history import moment, state
from .store import Store

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
        at = moment(text, now)
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
