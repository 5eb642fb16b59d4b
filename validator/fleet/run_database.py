"""The database of the run store: SQLite, with nested transactions and errors that say what to do."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ..errors import MissingError

Row = tuple[Any, ...]

#: Seconds to wait for the transaction of another process.
_WAIT_S = 30.0


class Database:
    """A file with tables. Several processes may use it at once."""

    def __init__(self, path: Path, tables: Iterable[str]) -> None:
        """tables: the statements that make the tables. Raises MissingError."""
        self._path = path
        with self._explained():
            self._connection = sqlite3.connect(path, timeout=_WAIT_S, isolation_level=None)
            self._connection.execute("PRAGMA journal_mode=WAL")
            # A killed process loses nothing. After a power failure the last transactions may be missing; then
            # the names of units find what was submitted.
            self._connection.execute("PRAGMA synchronous=NORMAL")
            with self.transaction():
                for statement in tables:
                    self._connection.execute(statement)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def execute(self, statement: str, *values: object) -> None:
        """Run a statement that changes rows."""
        with self._explained():
            self._connection.execute(statement, values)

    def execute_many(self, statement: str, rows: Sequence[Row]) -> None:
        """Run a statement that changes rows, once with each of these rows of values."""
        with self._explained():
            self._connection.executemany(statement, rows)

    def one(self, statement: str, *values: object) -> Row | None:
        """Return the first row, or None."""
        with self._explained():
            row: Row | None = self._connection.execute(statement, values).fetchone()
            return row

    def all(self, statement: str, *values: object) -> list[Row]:
        """Return all rows."""
        with self._explained():
            return self._connection.execute(statement, values).fetchall()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Make all changes or none. A transaction inside another one is part of the outer one."""
        if self._connection.in_transaction:
            yield
            return
        with self._explained():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise MissingError(
                f"{self._path}: the run store can't be read or written: {error}",
                hint="free some space, or set XDG_STATE_HOME to a directory that you may write to; jobs that"
                " were submitted are found again by their names",
            ) from error
