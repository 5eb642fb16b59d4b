"""Where records are kept: SQLite by default, any SQLAlchemy URL otherwise. Append-only.

One transaction writes one record, so that a killed process leaves whole records or none. There is no way
here to change or delete one, and SQLite is told to refuse it as well.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import (
    Column,
    Engine,
    Index,
    MetaData,
    Select,
    String,
    Table,
    Text,
    create_engine,
    event,
    insert,
    select,
)
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, IntegrityError, NoSuchModuleError

from ..errors import InputError, MissingError
from ..model.record import Record, Verdict
from ..system.files import full_disk, says_full_disk

#: Relative to the directory that holds the matrix.
DEFAULT_PATH = Path(".validator") / "records.db"
#: How long a writer waits for another one, in seconds.
_BUSY_S = 60.0

_metadata = MetaData()
#: `document` holds the whole record as JSON; the other columns are there to search by.
_records = Table(
    "records",
    _metadata,
    Column("id", String(32), primary_key=True),
    Column("cell", Text, nullable=False),
    Column("image", Text, nullable=False),
    Column("verdict", String(16), nullable=False),
    Column("key", String(64), nullable=False),
    Column("finished", String(40), nullable=False),
    Column("document", Text, nullable=False),
    Index("records_by_key", "key", "finished"),
    Index("records_by_cell", "cell", "finished"),
)
_TRIGGERS = tuple(
    f"CREATE TRIGGER IF NOT EXISTS records_no_{change.lower()} BEFORE {change} ON records "
    "BEGIN SELECT RAISE(ABORT, 'records are never changed'); END"
    for change in ("UPDATE", "DELETE")
)


class Store:
    """A store of records. Use as a context manager, or call `close`."""

    def __init__(self, url: str) -> None:
        """Open, and create what is not there yet.

        url: a SQLAlchemy URL, or the path of an SQLite file. Raises InputError for what is no store,
        MissingError when the database can't be reached.
        """
        self._engine, self.location = _connect(url)
        with self._faults():
            _create(self._engine)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._engine.dispose()

    def add(self, record: Record) -> bool:
        """Write a record, in a transaction of its own. False when this very record is there already."""
        row = {
            "id": record.id,
            "cell": record.cell,
            "image": record.image,
            "verdict": record.verdict.value,
            "key": record.key,
            "finished": record.finished,
            "document": json.dumps(record.as_json(), sort_keys=True),
        }
        with self._faults():
            try:
                with self._engine.begin() as connection:
                    connection.execute(insert(_records).values(row))
            except IntegrityError:
                return False
        return True

    def all(self, *, cell: str | None = None, image: str | None = None) -> Iterator[Record]:
        """Records, oldest first."""
        query = select(_records.c.document).order_by(_records.c.finished, _records.c.id)
        if cell is not None:
            query = query.where(_records.c.cell == cell)
        if image is not None:
            query = query.where(_records.c.image == image)
        yield from (_record(document) for document in self._rows(query))

    def get(self, identifier: str) -> Record:
        """The record with this id, or with the only id that begins so. Raises InputError otherwise."""
        query = select(_records.c.document).where(_records.c.id.startswith(identifier, autoescape=True))
        found = self._rows(query.limit(2))
        if len(found) != 1:
            problem = "several records have" if found else "no record has"
            raise InputError(f"{problem} an id that begins with {identifier}", hint="see `records list`")
        return _record(found[0])

    def measured(self, key: str) -> Record | None:
        """The newest record with this key that holds a measurement, so not a `broken` one."""
        query = (
            select(_records.c.document)
            .where(_records.c.key == key, _records.c.verdict != Verdict.BROKEN.value)
            .order_by(_records.c.finished.desc())
            .limit(1)
        )
        found = self._rows(query)
        return _record(found[0]) if found else None

    def latest(self) -> dict[str, Record]:
        """The newest record of every cell, by cell."""
        return {record.cell: record for record in self.all()}

    def _rows(self, query: Select[tuple[str]]) -> list[str]:
        with self._faults(), self._engine.connect() as connection:
            return [str(document) for document in connection.execute(query).scalars()]

    @contextlib.contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except DatabaseError as error:
            raise _explain(error, self.location) from error


def _create(engine: Engine) -> None:
    try:
        _metadata.create_all(engine)
    except DatabaseError as error:
        # Two processes may create the store at once; the loser finds everything there.
        if "already exists" not in str(error.orig):
            raise
    if _is_sqlite(engine.dialect.name):
        # At every opening: whoever made the table may have been killed before it made these.
        with engine.begin() as connection:
            for trigger in _TRIGGERS:
                connection.exec_driver_sql(trigger)


def _connect(text: str) -> tuple[Engine, str]:
    try:
        url = make_url(text if "://" in text else f"sqlite:///{text}")
        location = url.database if url.drivername.startswith("sqlite") else url.render_as_string()
        if url.drivername.startswith("sqlite") and url.database not in (None, "", ":memory:"):
            Path(str(url.database)).parent.mkdir(parents=True, exist_ok=True)
        engine = create_engine(url, connect_args={"timeout": _BUSY_S} if _is_sqlite(url.drivername) else {})
    except (ArgumentError, NoSuchModuleError, ValueError) as error:
        raise InputError(
            f"--store: not a database URL: {error}", hint="for example sqlite:///records.db"
        ) from error
    except ModuleNotFoundError as error:
        raise MissingError(
            f"--store: its driver {error.name} is not installed", hint="install the driver with pip"
        ) from error
    except OSError as error:
        if says_full_disk(str(error)):
            raise full_disk(text) from error
        raise MissingError(f"--store: {error}", hint="name a place where files can be written") from error
    if _is_sqlite(engine.dialect.name):
        event.listen(engine, "connect", _prepare_sqlite)
    return engine, location or text


def _is_sqlite(name: str) -> bool:
    return name.startswith("sqlite")


def _prepare_sqlite(connection: Any, _: object) -> None:
    # WAL lets readers go on while another process writes; FULL keeps a committed record through a
    # power cut, which a whole measurement is worth.
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")


def _explain(error: DatabaseError, location: str) -> MissingError | InputError:
    text = str(error.orig)
    if says_full_disk(text) or "disk I/O error" in text:
        return full_disk(location)
    if "not a database" in text or "malformed" in text:
        return InputError(
            f"{location}: is not a store of records ({text})", hint="name another one with --store"
        )
    return MissingError(
        f"{location}: {text.strip()}", hint="look at the store, or name another one with --store"
    )


def _record(document: str) -> Record:
    try:
        content = json.loads(document)
        if not isinstance(content, dict):
            raise ValueError("a record in the store is not a JSON object")
        return Record.from_json(content)
    except (ValueError, RecursionError) as error:
        raise InputError(str(error), hint="the store was changed by other means; use another one") from error
