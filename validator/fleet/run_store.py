"""The run store: what was asked of a fleet, written down before it is asked.

Every step of a unit is one transaction, so that a submitter that was killed between any two of them finds out
what to do next.

The file is SQLite in this machine's state directory. It contains no credentials.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from ..engines.protocol import ProbeRequest
from ..errors import InputError, MissingError
from ..model.timestamps import format_timestamp, now_utc
from ..system.files import machine_directory, make_machine_directory, writing
from .protocol import Fault, Handle, Phase
from .run_database import Database, Row
from .run_state import Added, FleetRun, Stage, Tried, Work
from .units import Unit, array_name

DIRECTORY = "fleet"
_FILE = "runs.db"


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
        self._database = Database(directory / _FILE, _TABLES)

    def __enter__(self) -> Runs:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    # Runs.

    def open_run(self, key: str, fleet: str, command: Sequence[str], place: Mapping[str, str]) -> FleetRun:
        """Return the run of this key that has not ended, or begin one.

        A run whose cancellation was not finished goes on, because its command was given again.
        """
        with self._database.transaction():
            self._database.execute("UPDATE runs SET cancelled = 0 WHERE key = ? AND ended = ''", key)
            found = self._run_where("key = ? AND ended = ''", key)
            if found:
                return found[0]
            created = format_timestamp(now_utc(), "milliseconds")
            number = len(self.all())
            identifier = "run-" + hashlib.sha256(f"{key} {created} {number}".encode()).hexdigest()[:12]
            self._database.execute(
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
        self._set_run(run, "ended", format_timestamp(now_utc(), "milliseconds"))

    def ask_to_cancel(self, run: FleetRun) -> None:
        """Ask the process that submits a run to cancel it."""
        self._set_run(run, "cancelled", 1)

    def is_cancelled(self, run: FleetRun) -> bool:
        """Return True if somebody asked to cancel a run."""
        row = self._database.one("SELECT cancelled FROM runs WHERE id = ?", run.id)
        return bool(row and row[0])

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

    def add(self, run: FleetRun, works: Iterable[Work]) -> Added:
        """Add first attempts to a run.

        A cell that an open run has already is not added again, whatever record it is to follow. A cell whose
        earlier run ended without a record gets a new name, so that nothing of that run is taken for it.
        """
        new, known, busy = [], [], {}
        with self._database.transaction():
            for work in works:
                found = self._open_unit(work.unit)
                if found is not None:
                    name, owner = found
                    if owner == run.id:
                        known.append(work.unit)
                    else:
                        busy[name] = owner
                    continue
                unit = self._unused(work.unit)
                self._insert(run, unit, self._keep_request(work.request), work.question)
                new.append(unit)
        return Added(tuple(new), tuple(known), busy)

    def owner(self, unit: Unit) -> str | None:
        """Return the id of the open run that has a unit that measures the same."""
        found = self._open_unit(unit)
        return found[1] if found else None

    def units(self, run: FleetRun) -> list[Tried]:
        """Return all units of a run, in the order in which they were added."""
        rows = self._database.all(f"SELECT {_COLUMNS} FROM units WHERE run = ? ORDER BY number", run.id)
        return [_tried(row) for row in rows]

    def request(self, name: str) -> ProbeRequest:
        """Return the run of the probe that a unit stands for."""
        row = self._database.one("SELECT request FROM units WHERE name = ?", name)
        assert row is not None, f"{name} is not in the run store"
        stored = msgspec.json.decode(row[0], type=_Request)
        return ProbeRequest(
            archive=self._content(stored.archive),
            arguments=stored.arguments,
            files={file: self._content(digest) for file, digest in stored.files.items()},
            timeout_s=stored.timeout_s,
        )

    def batch(self, units: Sequence[Unit]) -> str:
        """Note that these units will be submitted together, in this order. Return the batch's name."""
        name = array_name(units)
        with self._database.transaction():
            for position, unit in enumerate(units):
                self._database.execute(
                    "UPDATE units SET stage = ?, batch = ?, position = ? WHERE name = ?",
                    *(Stage.BATCHED.value, name, position, unit.name),
                )
        return name

    def batched(self, name: str) -> list[str]:
        """Return the names of the units of a batch, in its order."""
        rows = self._database.all("SELECT name FROM units WHERE batch = ? ORDER BY position", name)
        return [row[0] for row in rows]

    def submitted(self, handles: Mapping[str, Handle]) -> str:
        """Note the handles of units that the scheduler has, by name. Return the time."""
        now = format_timestamp(now_utc(), "milliseconds")
        with self._database.transaction():
            for name, handle in handles.items():
                self._database.execute(
                    "UPDATE units SET stage = ?, handle = ?, phase = ?, submitted ="
                    " CASE submitted WHEN '' THEN ? ELSE submitted END WHERE name = ?",
                    *(Stage.SUBMITTED.value, handle, Phase.WAITING.value, now, name),
                )
        return now

    def seen(self, states: Mapping[str, tuple[Phase, str, str]]) -> None:
        """Note phase, node and detail of units, by name, for people who ask."""
        with self._database.transaction():
            self._database.execute_many(
                "UPDATE units SET phase = ?, node = ?, detail = ? WHERE name = ?",
                [(phase.value, node, detail, name) for name, (phase, node, detail) in states.items()],
            )

    def keep(self, name: str, record: bytes, record_id: str, *, failed: bool) -> None:
        """Keep the record of a unit, before it is added to the store of records."""
        self._update(
            name, stage=Stage.KEPT.value, record=record, record_id=record_id, failed=int(failed)
        )  # fmt: skip

    def done(self, name: str) -> None:
        """Note that the record of a unit is in the store of records."""
        self._update(name, stage=Stage.DONE.value, record=b"")

    def lost(self, run: FleetRun, tried: Tried, fault: Fault, detail: str, after: Unit | None) -> None:
        """Note the infrastructure fault of a unit, and in the same transaction its next attempt, if any."""
        with self._database.transaction():
            self._change(tried.name, stage=Stage.LOST.value, fault=fault.value, detail=detail)
            if after is not None:
                row = self._database.one("SELECT request FROM units WHERE name = ?", tried.name)
                assert row is not None
                self._insert(run, after, row[0], tried.question)

    def ended(self, name: str, stage: Stage, detail: str) -> None:
        """Note that a unit is MISSING or CANCELLED."""
        self._update(name, stage=stage.value, detail=detail)

    @contextlib.contextmanager
    def in_one_transaction(self) -> Iterator[None]:
        """Write everything that is noted meanwhile in one transaction, all or none."""
        with self._database.transaction():
            yield

    # Below: SQL.

    def _open_unit(self, unit: Unit) -> tuple[str, str] | None:
        """Return the name and the run of the newest unit that measures the same in an open run."""
        row = self._database.one(
            "SELECT units.name, runs.id FROM units JOIN runs ON runs.id = units.run"
            " WHERE units.identity = ? AND runs.ended = '' ORDER BY number DESC LIMIT 1",
            _identity(unit),
        )
        return (row[0], row[1]) if row else None

    def _unused(self, unit: Unit) -> Unit:
        """Return the unit under a name that no ended run has used."""
        while self._database.one("SELECT 1 FROM units WHERE name = ?", unit.name):
            row = self._database.one(
                "SELECT name FROM units WHERE identity = ? ORDER BY number DESC LIMIT 1", _identity(unit)
            )
            assert row is not None
            unit = msgspec.structs.replace(unit, after=row[0])
        return unit

    def _insert(self, run: FleetRun, unit: Unit, request: bytes, question: bytes) -> None:
        self._database.execute(
            "INSERT INTO units (name, run, identity, content, request, question, stage)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            *(unit.name, run.id, _identity(unit), msgspec.json.encode(unit), request, question),
            Stage.PLANNED.value,
        )

    def _keep_request(self, request: ProbeRequest) -> bytes:
        """Store the files of a request, each once, and return the rest of it."""
        return msgspec.json.encode(
            _Request(
                archive=self._keep_content(request.archive),
                arguments=request.arguments,
                files={name: self._keep_content(content) for name, content in request.files.items()},
                timeout_s=request.timeout_s,
            )
        )

    def _keep_content(self, content: bytes) -> str:
        digest = hashlib.sha256(content).hexdigest()
        self._database.execute("INSERT OR IGNORE INTO contents VALUES (?, ?)", digest, content)
        return digest

    def _content(self, digest: str) -> bytes:
        if digest in self._contents:
            return self._contents[digest]
        row = self._database.one("SELECT content FROM contents WHERE digest = ?", digest)
        assert row is not None, f"{digest} is not in the run store"
        # The same object for all units, since they are submitted by the thousand.
        content: bytes = row[0]
        return self._contents.setdefault(digest, content)

    def _set_run(self, run: FleetRun, column: str, value: object) -> None:
        with self._database.transaction():
            self._database.execute(f"UPDATE runs SET {column} = ? WHERE id = ?", value, run.id)

    def _update(self, name: str, **values: object) -> None:
        with self._database.transaction():
            self._change(name, **values)

    def _change(self, name: str, **values: object) -> None:
        changes = ", ".join(f"{column} = ?" for column in values)
        self._database.execute(f"UPDATE units SET {changes} WHERE name = ?", *values.values(), name)

    def _run_where(self, condition: str, *values: object) -> list[FleetRun]:
        rows = self._database.all(
            "SELECT id, key, fleet, command, place, created, ended, cancelled FROM runs"
            f" WHERE {condition} ORDER BY created DESC, rowid DESC",
            *values,
        )
        return [
            FleetRun(
                id=row[0],
                key=row[1],
                fleet=row[2],
                command=msgspec.json.decode(row[3], type=tuple[str, ...]),
                place=msgspec.json.decode(row[4], type=dict[str, str]),
                created=row[5],
                ended=row[6],
                cancelled=bool(row[7]),
            )
            for row in rows
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
    " run TEXT NOT NULL REFERENCES runs (id), identity TEXT NOT NULL, content BLOB NOT NULL,"
    " request BLOB NOT NULL, question BLOB NOT NULL, stage TEXT NOT NULL, batch TEXT NOT NULL DEFAULT '',"
    " position INTEGER NOT NULL DEFAULT 0, handle TEXT NOT NULL DEFAULT '',"
    " submitted TEXT NOT NULL DEFAULT '', phase TEXT NOT NULL DEFAULT '', node TEXT NOT NULL DEFAULT '',"
    " detail TEXT NOT NULL DEFAULT '', fault TEXT NOT NULL DEFAULT '', record BLOB NOT NULL DEFAULT x'',"
    " record_id TEXT NOT NULL DEFAULT '', failed INTEGER NOT NULL DEFAULT 0)",
    "CREATE INDEX IF NOT EXISTS units_run ON units (run)",
    "CREATE INDEX IF NOT EXISTS units_identity ON units (identity)",
    "CREATE INDEX IF NOT EXISTS units_batch ON units (batch)",
)
_COLUMNS = (
    "content, question, stage, batch, handle, submitted, phase, node, detail, fault, record, record_id,"
    " failed"
)


def _tried(row: Row) -> Tried:
    return Tried(
        unit=msgspec.json.decode(row[0], type=Unit),
        question=row[1],
        stage=Stage(row[2]),
        batch=row[3],
        handle=row[4],
        submitted=row[5],
        phase=Phase(row[6]) if row[6] else None,
        node=row[7],
        detail=row[8],
        fault=Fault(row[9]) if row[9] else None,
        record=row[10],
        record_id=row[11],
        failed=bool(row[12]),
    )


def _identity(unit: Unit) -> str:
    """Return a name for what a unit measures: the same for all attempts, whatever record they come after, and
    on however many nodes they run."""
    return msgspec.structs.replace(unit, attempt=1, after="", tasks=1).name
