"""The run store: what was asked of a fleet, written down before it is asked.

A *run* is the work of one command: cells, each with up to ATTEMPTS units. The stages of a unit:

    PLANNED ─▶ BATCHED ─▶ SUBMITTED ─▶ KEPT ─▶ DONE
                   │           └─────▶ LOST (then another unit, PLANNED)
                   └─────────────────▶ MISSING

Units become BATCHED, with the name of their batch, before they are submitted. A process that finds them so
submits the same batch again, and the engine recognizes what it already has. KEPT holds the finished record,
so that the same record, not a second one, is added to the store of records.

Every step of a unit is one transaction, so that a submitter that was killed between any two of them finds out
what to do next. The file is SQLite in this machine's state directory. It contains no credentials.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec

from ..engines.protocol import ProbeRequest
from ..errors import InputError, MissingError
from ..model.codec import format_timestamp, now_utc
from ..system.files import machine_directory, make_machine_directory, writing
from .protocol import Fault, Handle, Phase, Unit

DIRECTORY = "fleet"
_FILE = "runs.db"
#: Seconds to wait for the transaction of another process.
_WAIT_S = 30.0


class Stage(str, Enum):
    """The stage of a unit, see the module's picture. CANCELLED: a person ended the run before it."""

    PLANNED = "planned"
    BATCHED = "batched"
    SUBMITTED = "submitted"
    KEPT = "kept"
    DONE = "done"
    LOST = "lost"
    MISSING = "missing"
    CANCELLED = "cancelled"

    @property
    def is_end(self) -> bool:
        """True if nothing will happen to the unit any more."""
        return self in (Stage.DONE, Stage.LOST, Stage.MISSING, Stage.CANCELLED)


@dataclass(frozen=True)
class Work:
    """A unit with what it needs. question: the caller's own bytes about the cell, which are given back."""

    unit: Unit
    request: ProbeRequest
    question: bytes = b""


class Tried(msgspec.Struct, dict=True):
    """A unit in the run store.

    batch, position: the name of the list that it is submitted with, and its place there. submitted: when it
    was, UTC, or "".
    phase, node, detail: what the scheduler last reported, or why the unit was lost or is missing.
    record: the caller's bytes while the unit is KEPT; dropped when it is DONE, since they are large.
    record_id: the record's id, for KEPT and DONE. failed: the record says that the cell failed.
    """

    unit: Unit
    question: bytes
    stage: Stage = Stage.PLANNED
    batch: str = ""
    position: int = 0
    handle: Handle = ""
    submitted: str = ""
    phase: Phase | None = None
    node: str = ""
    detail: str = ""
    fault: Fault | None = None
    record: bytes = b""
    record_id: str = ""
    failed: bool = False

    @functools.cached_property
    def name(self) -> str:
        """The unit's name. It is cached because it is a digest that is needed often."""
        return self.unit.name

    @property
    def word(self) -> str:
        """Return the state of the cell, one of WORDS."""
        if self.stage in (Stage.KEPT, Stage.DONE):
            return "failed" if self.failed else "done"
        if self.stage is Stage.SUBMITTED and self.phase in (Phase.RUNNING, Phase.ENDED):
            return "running"
        return self.stage.value if self.stage.is_end else "waiting"

    @property
    def why(self) -> str:
        """Return what went wrong, for people; empty if nothing did."""
        return ": ".join(filter(None, (self.fault.sentence if self.fault else "", self.detail)))


#: The states of cells in the order in which people see them.
WORDS = ("waiting", "running", "done", "failed", "lost", "missing", "cancelled")


def tally(tries: Iterable[Tried]) -> dict[str, Counter[str]]:
    """Return, for each host class, how many cells are in each state.

    A unit that was lost counts only if there is no further attempt.
    """
    newest = {(tried.unit.cell, tried.unit.image_digest, tried.unit.after): tried for tried in tries}
    found: dict[str, Counter[str]] = {}
    for tried in newest.values():
        found.setdefault(tried.unit.host_class, Counter())[tried.word] += 1
    return found


@dataclass(frozen=True)
class FleetRun:
    """A run. key: identifies the command, also when it is given again. command: its words, for messages.

    place: what the submitter needs to continue. ended: when, or "". cancelled: somebody asked for its end.
    """

    id: str
    key: str
    fleet: str
    command: tuple[str, ...]
    place: Mapping[str, str]
    created: str
    ended: str = ""
    cancelled: bool = False


class Runs:
    """The run store of this machine. Several processes may use it at once; one submits each run."""

    def __init__(self, directory: Path | None = None) -> None:
        """directory: None for `fleet` in this machine's state directory. Raises MissingError."""
        if directory is None:
            make_machine_directory()
            directory = machine_directory() / DIRECTORY
        self.directory = directory
        self._contents: dict[str, bytes] = {}
        with writing(directory):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = directory / _FILE
        with self._explained():
            self._connection = sqlite3.connect(self._path, timeout=_WAIT_S, isolation_level=None)
            self._connection.execute("PRAGMA journal_mode=WAL")
            # A killed process loses nothing. After a power failure the last transactions may be missing; then
            # the names of units find what was submitted.
            self._connection.execute("PRAGMA synchronous=NORMAL")
            with self.transaction():
                for statement in _TABLES:
                    self._connection.execute(statement)

    def __enter__(self) -> Runs:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

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

    # Runs.

    def open_run(self, key: str, fleet: str, command: Sequence[str], place: Mapping[str, str]) -> FleetRun:
        """Return the run of this key that has not ended, or begin one.

        A run whose cancellation was not finished goes on, because its command was given again.
        """
        with self.transaction():
            self._all("UPDATE runs SET cancelled = 0 WHERE key = ? AND ended = ''", key)
            found = self._run_where("key = ? AND ended = ''", key)
            if found:
                return found[0]
            created = format_timestamp(now_utc(), "milliseconds")
            number = len(self.all())
            identifier = "run-" + hashlib.sha256(f"{key} {created} {number}".encode()).hexdigest()[:12]
            self._all(
                "INSERT INTO runs (id, key, fleet, command, place, created) VALUES (?, ?, ?, ?, ?, ?)",
                *(identifier, key, fleet, json.dumps(list(command)), json.dumps(dict(place)), created),
            )
        return self.run(identifier)

    def run(self, identifier: str) -> FleetRun:
        """Return the run whose id is or begins with this text. Raises InputError unless there is one."""
        found = self._run_where("substr(id, 1, length(?)) = ?", identifier, identifier)
        if len(found) != 1:
            problem = "several runs have" if found else "no run has"
            raise InputError(f"{problem} an id that begins with {identifier}", hint="see `fleet status`")
        return found[0]

    def all(self) -> list[FleetRun]:
        """Return all runs, newest first."""
        return self._run_where("1")

    def end(self, run: FleetRun) -> None:
        """Note that all units of a run have ended."""
        now = format_timestamp(now_utc(), "milliseconds")
        self._all("UPDATE runs SET ended = ? WHERE id = ?", now, run.id)

    def ask_to_cancel(self, run: FleetRun) -> None:
        """Ask the process that submits a run to cancel it."""
        self._all("UPDATE runs SET cancelled = 1 WHERE id = ?", run.id)

    def is_cancelled(self, run: FleetRun) -> bool:
        """Return True if somebody asked to cancel a run."""
        return bool(self._all("SELECT 1 FROM runs WHERE id = ? AND cancelled", run.id))

    @contextlib.contextmanager
    def submitting(self, key: str) -> Iterator[None]:
        """Be the only process that submits runs of this key. Raises MissingError if another one does.

        The kernel ends this with the process, however it ends.
        """
        path = self.directory / f"{key}.lock"
        with writing(path):
            held = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                owner = os.pread(held, 20, 0).decode(errors="replace").strip() or "unknown"
                raise MissingError(
                    f"another process does this already (process {owner})",
                    hint="`fleet status` shows how far it is; wait for it, or end it and start this again",
                ) from None
            os.ftruncate(held, 0)
            os.pwrite(held, str(os.getpid()).encode(), 0)
            yield
        finally:
            os.close(held)

    def is_submitted(self, run: FleetRun) -> bool:
        """Return True if a process is submitting a run now."""
        try:
            with self.submitting(run.key):
                return False
        except MissingError:
            return True

    # Units.

    def add(self, run: FleetRun, works: Iterable[Work]) -> None:
        """Add first attempts to a run.

        A cell that an open run has already is not added again, whatever record it is to follow. A cell whose
        earlier run ended without a record gets a new name, so that nothing of that run is taken for it.
        """
        with self.transaction():
            for work in works:
                unit = work.unit
                if self.owner(unit) is not None:
                    continue
                while self._all("SELECT 1 FROM units WHERE name = ?", unit.name):
                    [(newest,)] = self._all(
                        "SELECT name FROM units WHERE identity = ? ORDER BY number DESC LIMIT 1",
                        _identity(unit),
                    )
                    unit = msgspec.structs.replace(unit, after=newest)
                asked = work.request
                files = {name: self._keep_content(content) for name, content in asked.files.items()}
                archive = self._keep_content(asked.archive)
                request = _Request(archive, asked.arguments, files, asked.timeout_s)
                self._insert(run, unit, msgspec.json.encode(request), work.question)

    def owner(self, unit: Unit) -> str | None:
        """Return the id of the open run that has a unit that measures the same."""
        rows = self._all(
            "SELECT runs.id FROM units JOIN runs ON runs.id = units.run"
            " WHERE units.identity = ? AND runs.ended = '' ORDER BY number DESC LIMIT 1",
            _identity(unit),
        )
        return rows[0][0] if rows else None

    def units(self, run: FleetRun) -> list[Tried]:
        """Return all units of a run, in the order in which they were added."""
        rows = self._all("SELECT tried FROM units WHERE run = ? ORDER BY number", run.id)
        return [msgspec.msgpack.decode(content, type=Tried) for (content,) in rows]

    def request(self, name: str) -> ProbeRequest:
        """Return the run of the probe that a unit stands for."""
        [(content,)] = self._all("SELECT request FROM units WHERE name = ?", name)
        stored = msgspec.json.decode(content, type=_Request)
        return ProbeRequest(
            archive=self._content(stored.archive),
            arguments=stored.arguments,
            files={file: self._content(digest) for file, digest in stored.files.items()},
            timeout_s=stored.timeout_s,
        )

    def save(self, *tries: Tried) -> None:
        """Write down the state of these units, in one transaction."""
        rows = [(msgspec.msgpack.encode(tried), tried.name) for tried in tries]
        with self.transaction():
            self._connection.executemany("UPDATE units SET tried = ? WHERE name = ?", rows)

    def retry(self, run: FleetRun, tried: Tried, after: Unit) -> None:
        """Add the next attempt after a unit that was lost."""
        [(request,)] = self._all("SELECT request FROM units WHERE name = ?", tried.name)
        self._insert(run, after, request, tried.question)

    # Below: SQL.

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

    def _all(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Run a statement, and return the rows that it gives."""
        with self._explained():
            return self._connection.execute(statement, values).fetchall()

    def _insert(self, run: FleetRun, unit: Unit, request: bytes, question: bytes) -> None:
        tried = msgspec.msgpack.encode(Tried(unit, question))
        self._all(
            "INSERT INTO units (name, run, identity, request, tried) VALUES (?, ?, ?, ?, ?)",
            *(unit.name, run.id, _identity(unit), request, tried),
        )

    def _keep_content(self, content: bytes) -> str:
        digest = hashlib.sha256(content).hexdigest()
        self._all("INSERT OR IGNORE INTO contents VALUES (?, ?)", digest, content)
        return digest

    def _content(self, digest: str) -> bytes:
        # The same object for all units, since they are submitted by the thousand.
        if digest not in self._contents:
            [(content,)] = self._all("SELECT content FROM contents WHERE digest = ?", digest)
            self._contents[digest] = content
        return self._contents[digest]

    def _run_where(self, condition: str, *values: object) -> list[FleetRun]:
        rows = self._all(
            "SELECT id, key, fleet, command, place, created, ended, cancelled FROM runs"
            f" WHERE {condition} ORDER BY created DESC, rowid DESC",
            *values,
        )
        return [
            FleetRun(*(run, key, fleet, tuple(json.loads(words)), json.loads(place)), made, ended, bool(off))
            for run, key, fleet, words, place, made, ended, off in rows
        ]


class _Request(msgspec.Struct):
    """A ProbeRequest whose files are named by their SHA-256."""

    archive: str
    arguments: tuple[str, ...]
    files: dict[str, str]
    timeout_s: float


_TABLES = (
    "CREATE TABLE IF NOT EXISTS runs (id TEXT PRIMARY KEY, key TEXT NOT NULL, fleet TEXT NOT NULL,"
    " command TEXT NOT NULL, place TEXT NOT NULL, created TEXT NOT NULL, ended TEXT NOT NULL DEFAULT '',"
    " cancelled INTEGER NOT NULL DEFAULT 0)",
    "CREATE TABLE IF NOT EXISTS contents (digest TEXT PRIMARY KEY, content BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS units (number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE,"
    " run TEXT NOT NULL REFERENCES runs (id), identity TEXT NOT NULL, request BLOB NOT NULL,"
    " tried BLOB NOT NULL)",
    "CREATE INDEX IF NOT EXISTS units_run ON units (run)",
    "CREATE INDEX IF NOT EXISTS units_identity ON units (identity)",
)


def _identity(unit: Unit) -> str:
    """Return a name for what a unit measures, whatever its attempt, record before it, and number of tasks."""
    return msgspec.structs.replace(unit, attempt=1, after="", tasks=1).name
