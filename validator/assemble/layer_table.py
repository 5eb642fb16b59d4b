"""The layer table: the digest and size of each layer that was made, so that it need not be made again.

There are two tables. This machine's own is a database in the cache directory, written as layers are made. The
other is shared: see `SharedRow`. A row of either is enough to publish an image whose layers the registry
has. Only the own table shows that this machine made a layer itself.
"""

from __future__ import annotations

import json
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from ..errors import InputError, MissingError, ValidatorError
from ..system.files import cache_directory, full_disk, write_atomically
from . import layers
from .layers import Encoded, LayerSource, layer_key

# The layer table that is shared: `layers.json`, next to the locks. Each row says what the layer was made
# from, so that anyone can make it again from these wheels and compare.

FILE = "layers.json"

_SHA256 = re.compile(r"[0-9a-f]{64}")
_Digest = Annotated[str, Meta(pattern=r"\Asha256:[0-9a-f]{64}\Z")]


class SharedRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A layer that was made. name: for people. recipe: of its encoding. The rest: see `LayerSource`."""

    name: str
    recipe: str
    made_from: tuple[str, ...]
    digest: _Digest
    size: Annotated[int, Meta(ge=0)]
    diff_id: _Digest
    media_type: str
    read_from: tuple[str, ...] = ()
    annotations: dict[str, str] = {}

    @classmethod
    def of(cls, source: LayerSource, made: Encoded) -> SharedRow:
        return cls(
            source.name, layers.RECIPE, source.made_from, made.digest, made.size, made.diff_id,
            made.media_type, source.read_from, dict(made.annotations),
        )  # fmt: skip

    @property
    def key(self) -> str:
        return layer_key(self.recipe, self.made_from)

    @property
    def wheels(self) -> tuple[str, ...]:
        """The SHA-256 of the wheels from which the layer can be made again."""
        return self.read_from or tuple(part for part in self.made_from if _SHA256.fullmatch(part))

    @property
    def encoded(self) -> Encoded:
        return Encoded(self.digest, self.size, self.diff_id, self.media_type, self.annotations)


def read_rows(path: Path) -> tuple[SharedRow, ...]:
    """Return the rows of a shared table; none without the file. Raises InputError if it is not valid."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=tuple[SharedRow, ...])
    except FileNotFoundError:
        return ()
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not a table of layers: {error}") from error


def write_rows(path: Path, rows: Iterable[SharedRow]) -> None:
    """Write a shared table: sorted by name, one row a line, so that changes can be reviewed."""
    lines = [msgspec.json.encode(row).decode() for row in sorted(rows, key=lambda row: (row.name, row.key))]
    write_atomically(path, ("[\n" + ",\n".join(lines) + "\n]\n" if lines else "[]\n").encode())


_NAME = "layers.sqlite"
#: Seconds to wait for another process that writes.
_PATIENCE_S = 30.0
#: Changes when the meaning of the rows changes. Rows of another version are dropped.
_VERSION = 1
_TABLES = (
    "layers (key TEXT PRIMARY KEY, row BLOB NOT NULL)",
    "contents (diff_id TEXT PRIMARY KEY)",
    "facts (key TEXT PRIMARY KEY, value BLOB NOT NULL)",
)


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A layer that was made. name: for people. made_here: True if this machine made it."""

    key: Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
    name: str
    digest: _Digest
    size: Annotated[int, Meta(ge=0)]
    diff_id: _Digest
    media_type: str
    annotations: dict[str, str] = {}
    made_here: bool = True

    @property
    def encoded(self) -> Encoded:
        return Encoded(self.digest, self.size, self.diff_id, self.media_type, self.annotations)


class LayerTable:
    """Both tables. Several threads and processes may use the same one.

    directory: where the own table is (None: the cache directory). shared: files with rows, which need not
    exist.
    """

    def __init__(self, directory: Path | None = None, shared: Iterable[Path] = ()) -> None:
        self._path = (directory or cache_directory()) / _NAME
        self._shared: dict[str, tuple[Row, Path]] = {}
        for path in shared:
            for row in read_rows(path):
                self._shared[row.key] = (_row(row.key, row.name, row.encoded, made_here=False), path)
        self._guard = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    def row(self, key: str) -> Row | None:
        """Return the row with this key, preferably this machine's own."""
        found = self._one("SELECT row FROM layers WHERE key = ?", key)
        if found is not None:
            try:
                return msgspec.json.decode(found, type=Row)
            except (msgspec.DecodeError, UnicodeDecodeError):
                self._write("DELETE FROM layers WHERE key = ?", key)
        return self._shared[key][0] if key in self._shared else None

    def add(self, key: str, name: str, encoded: Encoded) -> None:
        """Add a layer that this machine has just made."""
        row = msgspec.json.encode(_row(key, name, encoded, made_here=True))
        self._write("INSERT OR REPLACE INTO layers VALUES (?, ?)", key, row)
        self.add_content(encoded.diff_id)

    def add_content(self, diff_id: str) -> None:
        """Note that this machine has computed a layer from its sources, or a configuration."""
        self._write("INSERT OR IGNORE INTO contents VALUES (?)", diff_id)

    def has_content(self, diff_id: str) -> bool:
        """Return True if this machine has computed this layer or configuration from its sources."""
        return self._one("SELECT 1 FROM contents WHERE diff_id = ?", diff_id) is not None

    def refuse(self, row: Row, found: Encoded) -> ValidatorError:
        """Return the error for a row that is wrong, and drop it from this machine's table."""
        if row.made_here:
            self._write("DELETE FROM layers WHERE key = ?", row.key)
            where, hint = str(self._path), "repeat the command; the row was removed"
        else:
            where, hint = str(self._shared[row.key][1]), "remove the row, and find out who wrote it"
        return ValidatorError(
            f"{where} says that the layer {row.name!r} is {row.encoded.digest}, but making it gives"
            f" {found.digest} (row {row.key[:12]})",
            hint=hint,
        )

    def facts(self, key: str, read: Callable[[], Mapping[str, object]]) -> Mapping[str, object]:
        """Return facts about an immutable thing, reading them only if no process has done so before."""
        found = self._one("SELECT value FROM facts WHERE key = ?", key)
        if found is not None:
            try:
                value = json.loads(found)
            except ValueError:
                value = None
            if isinstance(value, dict):
                return value
        facts = read()
        self._write("INSERT OR REPLACE INTO facts VALUES (?, ?)", key, json.dumps(facts).encode())
        return facts

    def close(self) -> None:
        with self._guard:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _one(self, query: str, *values: object) -> bytes | None:
        with self._database() as database:
            found = database.execute(query, values).fetchone()
        return None if found is None else found[0]

    def _write(self, query: str, *values: object) -> None:
        with self._database() as database, database:
            database.execute(query, values)

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        with self._guard:
            try:
                if self._connection is None:
                    self._connection = _open(self._path)
                yield self._connection
            except sqlite3.Error as error:
                if "full" in str(error):
                    raise full_disk(self._path) from error
                raise MissingError(
                    f"{self._path}: the layer table can't be used: {error}",
                    hint="delete the file; layers are then made again",
                ) from error


def _row(key: str, name: str, made: Encoded, *, made_here: bool) -> Row:
    annotations = dict(made.annotations)
    return Row(key, name, made.digest, made.size, made.diff_id, made.media_type, annotations, made_here)


def _open(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path, timeout=_PATIENCE_S, check_same_thread=False)
    # Switch to a log of what is written, so that readers don't wait for a writer. A killed process leaves
    # one, which the next process applies. SQLite does not wait by itself if another process does the same.
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            break
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
        time.sleep(0.01)
    connection.execute("PRAGMA synchronous = NORMAL")
    if not _is_current(connection):
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            # Another process may have done it while this one waited.
            if not _is_current(connection):
                for table in _TABLES:
                    connection.execute(f"DROP TABLE IF EXISTS {table.split()[0]}")
                    connection.execute(f"CREATE TABLE {table} WITHOUT ROWID")
                connection.execute(f"PRAGMA user_version = {_VERSION}")
    return connection


def _is_current(connection: sqlite3.Connection) -> bool:
    found: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return found == _VERSION
