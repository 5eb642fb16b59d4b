"""Keep records in an SQLite file, the default, or on a PostgreSQL server that many machines write to.

The store is append-only: this module can't change or delete a record, and triggers in the database refuse it
too. Records that are added together are written in one transaction, so that a killed process or a lost
connection leaves all of them or none.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import sqlalchemy as sql
from sqlalchemy import URL, Engine, create_engine, event, make_url
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.pool import NullPool, QueuePool

from ..errors import InputError, MissingError, ValidatorError
from ..model.codec import now_utc
from ..model.record import Record, RecordError, Verdict, read_record
from ..model.verdict import as_judged
from ..system.files import full_disk, says_full_disk
from ..system.runs import temporary_directory
from .history import Entry, credible_time, finish_time, newest_by_cell

#: Relative to the directory that holds the matrix.
DEFAULT_PATH = Path(".validator") / "records.db"
#: Pauses between attempts to reach a server, in seconds: half a minute together, enough for a restart.
_PAUSES_S = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0)
#: Documents that are read or written at once. One may have several megabytes.
_PAGE = 50
#: Longer text is cut for the index: PostgreSQL's indexes take at most 2,703 bytes per entry.
_SEARCHED = 400
_VERDICTS = frozenset(Verdict)

#: The version of the tables. A store of any other version is refused.
VERSION = "0001"
#: In PostgreSQL, only the process that holds this lock creates the tables. No other program is likely to use
#: it.
LOCK = 0x7265636F726473

_metadata = sql.MetaData()
# Times and ids are ordered by code point, whatever the language of the database.
_TEXT = sql.Text().with_variant(sql.Text(collation="C"), "postgresql")
#: `document` holds the whole record as JSON in ASCII; the other columns are for searching.
RECORDS = sql.Table(
    "records",
    _metadata,
    sql.Column("id", _TEXT, primary_key=True),
    *(sql.Column(name, _TEXT, nullable=False) for name in ("cell", "image", "verdict", "key", "finished")),
    sql.Column("document", sql.Text, nullable=False),
)
sql.Index("records_by_key", RECORDS.c.key, RECORDS.c.finished)
sql.Index("records_by_cell", RECORDS.c.cell, RECORDS.c.finished)
_versions = sql.Table("records_schema", _metadata, sql.Column("version_num", sql.Text, primary_key=True))

#: What refuses changes, by dialect.
_APPEND_ONLY = {
    "sqlite": tuple(
        f"CREATE TRIGGER records_no_{change.lower()} BEFORE {change} ON records "
        "BEGIN SELECT RAISE(ABORT, 'records are never changed'); END"
        for change in ("UPDATE", "DELETE")
    ),
    "postgresql": (
        "CREATE FUNCTION records_refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'records are never changed'; END $$",
        "CREATE TRIGGER records_no_change BEFORE UPDATE OR DELETE OR TRUNCATE ON records "
        "FOR EACH STATEMENT EXECUTE FUNCTION records_refuse()",
    ),
}

T = TypeVar("T")
_log = logging.getLogger(__name__)


class Store:
    """A store of records. Use as a context manager, or call `close`. Threads may share one."""

    def __init__(self, url: str, *, read_only: bool = False) -> None:
        """Open a store, and create what is missing.

        url: a database URL (`postgresql+psycopg://user@host/database`), or the path of an SQLite file.
        read_only: for a reader, which needs no permission to write; where there is no store, none is made.
        Raises InputError for something that is not a store, MissingError when the database can't be reached.
        """
        self._database = database(url, read_only=read_only)
        self._opened = False
        #: The stored id of each record whose verdict is only claimed, which gives it another id.
        self._stored: dict[str, str] = {}
        self._attempt(lambda: _bring_up(self._database.engine, self._database.location, read_only=read_only))
        self._opened = True

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def location(self) -> str:
        """The store's name in messages, without a password."""
        return self._database.location

    def close(self) -> None:
        self._database.engine.dispose()

    def add(self, record: Record) -> bool:
        """Write a record in its own transaction. Return False when it is in the store already.

        That also makes it safe to repeat the attempt after a lost connection.
        """
        return self.add_all([record]) == 1

    def add_all(self, records: Iterable[Record]) -> int:
        """Write records in one transaction, all or none, and return how many were new."""
        return self.add_rows(rows_of(records))

    def add_rows(self, rows: Mapping[str, Mapping[str, str]]) -> int:
        """Write what `rows_of` returned; otherwise like `add_all`."""
        if not rows:
            return 0
        # Sorted, so that two machines that write the same records can't deadlock.
        ordered = [rows[identifier] for identifier in sorted(rows)]
        dialect = postgresql if self._database.is_server else sqlite
        statement = dialect.insert(RECORDS).on_conflict_do_nothing().returning(RECORDS.c.id)
        options = {"insertmanyvalues_page_size": _PAGE}

        def write(connection: sql.Connection) -> int:
            return len(connection.execute(statement, ordered, execution_options=options).all())

        return self._run(write)

    def all(self, *, cell: str | None = None, image: str | None = None) -> Iterator[Record]:
        """Yield records, oldest first."""
        query = sql.select(RECORDS.c.id).order_by(RECORDS.c.finished, RECORDS.c.id)
        if cell is not None:
            query = query.where(RECORDS.c.cell == _searchable(cell))
        if image is not None:
            query = query.where(RECORDS.c.image == _searchable(image))
        for record in self.each([str(row.id) for row in self._rows(query)]):
            if cell in (None, record.cell) and image in (None, record.image):
                yield record

    def entries(self, cell: str | None = None) -> list[Entry]:
        """Return the entry of every record, oldest first, with the verdict that its row states.

        Another program may have written the row: `judged` returns the verdicts that count.
        """
        columns = (RECORDS.c.id, RECORDS.c.cell, RECORDS.c.verdict, RECORDS.c.finished, RECORDS.c.key)
        query = sql.select(*columns).order_by(RECORDS.c.finished, RECORDS.c.id)
        if cell is not None:
            query = query.where(RECORDS.c.cell == _searchable(cell))
        found = []
        for row in self._rows(query):
            if row.verdict not in _VERDICTS or not all(isinstance(value, str) for value in row):
                self._refuse(row.id, f"its row has a value of another kind: {tuple(row)!r:.300}")
            found.append(Entry(row.id, row.cell, Verdict(row.verdict), row.finished, bool(row.key)))
        return found

    def judged(self, entries: Iterable[Entry]) -> list[Entry]:
        """Return entries with the verdicts that their reports give; see `as_judged`."""
        asked = list(entries)
        return [
            replace(entry, verdict=record.verdict, keyed=bool(record.key))
            for entry, record in zip(asked, self.each([entry.id for entry in asked]), strict=True)
        ]

    def newest(self, now: datetime, at: datetime | None = None) -> dict[str, Entry]:
        """Return the newest entry of every cell, judged, as of a time or of now; see `history`."""
        entries = self.entries()
        stated = newest_by_cell(entries, now, at)
        judged = {entry.cell: entry for entry in self.judged(stated.values())}
        # A verdict that is only claimed does not count in a cell that was measured.
        claimed = {cell for cell, entry in judged.items() if entry != stated[cell]}
        again = self.judged(entry for entry in entries if entry.cell in claimed)
        return judged | newest_by_cell(again, now, at)

    def fetch(self, identifiers: Iterable[str]) -> dict[str, Record]:
        """Return the records with these ids, by id."""
        asked = list(dict.fromkeys(identifiers))
        return dict(zip(asked, self.each(asked), strict=True))

    def get(self, identifier: str) -> Record:
        """Return the record whose id is or begins with this text. Raises InputError unless there is one."""
        begins = RECORDS.c.id.startswith(_searchable(identifier), autoescape=True)
        query = sql.select(RECORDS.c.id).where(begins).limit(2)
        found = list(self.each([row.id for row in self._rows(query)]))
        if not found and len(shown := [one for one in self.all() if one.id.startswith(identifier)]) == 1:
            return shown[0]
        if len(found) != 1:
            problem = "several records have" if found else "no record has"
            raise InputError(f"{problem} an id that begins with {identifier}", hint="see `records list`")
        return found[0]

    def measured(self, key: str) -> Record | None:
        """Return the newest record with this key that holds a measurement, so not a `broken` one."""
        query = sql.select(RECORDS.c.id, RECORDS.c.finished).where(
            RECORDS.c.key == _searchable(key), RECORDS.c.verdict != Verdict.BROKEN.value
        )
        now = now_utc()
        dated = [(when, row.id) for row in self._rows(query) if (when := credible_time(row.finished, now))]
        # A record whose verdict is only claimed does not stand for a measurement, and has no key.
        newest_first = (identifier for _, identifier in sorted(dated, reverse=True))
        found = (next(self.each([identifier])) for identifier in newest_first)
        return next((record for record in found if record.key == key), None)

    def latest(self) -> dict[str, Record]:
        """Return the newest record of every cell, by cell; see `history` for what counts."""
        found = self.fetch(entry.id for entry in self.newest(now_utc()).values())
        return {record.cell: record for record in found.values()}

    def each(self, identifiers: Sequence[str]) -> Iterator[Record]:
        """Yield the records with these ids, in that order. No connection is held meanwhile.

        An id is the one in the store, or that of a record which this object returned. Raises InputError for
        the row of another program.
        """
        for start in range(0, len(identifiers), _PAGE):
            page = [self._stored.get(one, one) for one in identifiers[start : start + _PAGE]]
            found = {row.id: row for row in self._rows(sql.select(RECORDS).where(RECORDS.c.id.in_(page)))}
            for identifier in page:
                if identifier not in found:
                    raise damaged(self.location, f"there is no record {identifier}")
                row = found[identifier]
                try:
                    record = read_record(row.document)
                    columns = _columns(record)
                except (RecordError, TypeError) as error:
                    self._refuse(row.id, str(error))
                if wrong := [name for name, value in columns.items() if getattr(row, name) != value]:
                    self._refuse(row.id, f"its columns {', '.join(wrong)} differ from its document")
                # The report proves the verdict.
                judged = as_judged(record)
                if judged is not record:
                    self._stored[judged.id] = record.id
                yield judged

    def _refuse(self, identifier: object, why: str) -> NoReturn:
        raise InputError(
            f"{self.location}: the record {str(identifier)[:80]!r} can't be used: {why}",
            hint="another program changed this store: use another one, or `records salvage`",
        )

    def _rows(self, query: sql.Select[Any]) -> Sequence[sql.Row[Any]]:
        return self._run(lambda connection: connection.execute(query).all())

    def _run(self, work: Callable[[sql.Connection], T]) -> T:
        """Call `work` in one transaction."""

        def transaction() -> T:
            with self._database.engine.begin() as connection:
                return work(connection)

        return self._attempt(transaction)

    def _attempt(self, work: Callable[[], T]) -> T:
        """Call `work`, a transaction; repeat it while the server may be back in a moment."""
        for pause in (*(_PAUSES_S if self._database.is_server else ()), None):
            try:
                return work()
            except UnicodeDecodeError as error:
                raise damaged(self.location, str(error)) from error
            except DBAPIError as error:
                told = explain(error, self._database)
                if pause is None or not passes(error, opened=self._opened):
                    raise told from error
                # Say what the command is waiting for.
                _log.warning("%s; trying again in %g s", told, pause)
                time.sleep(pause)
        raise AssertionError("unreachable")


def _bring_up(engine: sql.Engine, location: str, *, read_only: bool = False) -> None:
    """Create the tables of an empty database, in one transaction. A second process waits and finds them.

    read_only: a database without records is an error. Raises InputError for tables of another program, and
    MissingError for tables of another version of this program.
    """
    with engine.connect() as connection:
        if _has_tables(connection, location):
            return
    if read_only:
        raise InputError(
            f"{location}: there are no records in this database", hint="name another store with --store"
        )
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({LOCK})")
        else:
            # The driver doesn't begin a transaction before a CREATE.
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        if not _has_tables(connection, location):
            _metadata.create_all(connection, checkfirst=False)
            for statement in _APPEND_ONLY[engine.dialect.name]:
                connection.exec_driver_sql(statement)
            connection.execute(sql.insert(_versions).values(version_num=VERSION))


def _has_tables(connection: sql.Connection, location: str) -> bool:
    """Return True if the store has its tables. Raises as `_bring_up` if another program made them."""
    # One question, so that another process which creates them in between is not taken for another program.
    names = sql.inspect(connection).get_table_names()
    if _versions.name not in names:
        if RECORDS.name in names:
            raise InputError(
                f"{location}: not a store of records: another program made its table {RECORDS.name}",
                hint="name another one with --store",
            )
        return False
    found = connection.execute(sql.select(_versions.c.version_num)).scalars().all()
    if found != [VERSION]:
        raise MissingError(
            f"{location}: another version of this program made its tables (schema"
            f" {', '.join(map(str, found)) or 'unknown'}; this one uses {VERSION})",
            hint="use that version of the program, or name another store with --store",
        )
    return True


def rows_of(records: Iterable[Record]) -> dict[str, dict[str, str]]:
    """Return the rows of records, by id. They take much less memory than the records."""
    # In ASCII, since databases refuse NUL and lone surrogates.
    rows = ({**_columns(one), "document": json.dumps(one.document(), sort_keys=True)} for one in records)
    return {row["id"]: row for row in rows}


def _columns(record: Record) -> dict[str, str]:
    """Return what a row has for searching."""
    return {
        "id": record.id,
        "cell": _searchable(record.cell),
        "image": _searchable(record.image),
        "verdict": record.verdict.value,
        "key": _searchable(record.key),
        "finished": _searchable(finish_time(record)),
    }


def _searchable(text: str) -> str:
    """Return text as a column holds it; characters that databases refuse are escaped as in JSON."""
    if any(character == "\0" or "\ud800" <= character <= "\udfff" for character in text):
        text = json.dumps(text)[1:-1]
    return text[:_SEARCHED]


# Turn the text after `--store` into a database, SQLite or PostgreSQL. No password is ever shown.

#: How long a writer of an SQLite file waits for another one, in seconds.
_BUSY_S = 60.0
#: The pause between attempts to set an SQLite file's mode, in seconds.
_AGAIN_S = 0.02
_POSTGRESQL = "postgresql+psycopg"
#: The names that people and hosting providers use.
_DRIVERS = {
    "sqlite": "sqlite",
    "sqlite+pysqlite": "sqlite",
    _POSTGRESQL: _POSTGRESQL,
    "postgresql": _POSTGRESQL,
    "postgres": _POSTGRESQL,
}
#: libpq's parameters (https://www.postgresql.org/docs/current/libpq-connect.html), unless the URL has
#: its own. With them, a server that is gone is noticed within a minute, instead of after the kernel's two
#: hours.
_LIBPQ = {
    "application_name": "tensorflow-gpu-matrix",
    "client_encoding": "utf8",
    "connect_timeout": "10",
    "keepalives_idle": "20",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
#: Parameters that are secrets. In a query they would be shown by SQLAlchemy's own repr.
_SECRET = ("password", "sslpassword")

_EXAMPLES = "for example records.db, sqlite:///records.db or postgresql+psycopg://user@host/database"
_ENCODE = (
    "write special characters of user and password percent-encoded (@ is %40), or leave the password out and"
    " set PGPASSWORD"
)


@dataclass(frozen=True)
class Database:
    """An engine, not yet connected. location: its name in messages, without a password."""

    engine: Engine
    location: str

    @property
    def is_server(self) -> bool:
        return self.engine.dialect.name == "postgresql"


def database(text: str, *, read_only: bool = False) -> Database:
    """Return the database for a URL or the path of an SQLite file.

    read_only: open an SQLite file to read it, for which nothing has to be written; it must exist. Raises
    InputError for text that isn't a store's URL, MissingError when there is no file or none can be made.
    """
    if "://" not in text:
        return _file(URL.create("sqlite", database=text), read_only)
    driver = _DRIVERS.get(text.partition("://")[0])
    if driver is None:
        raise InputError(
            f"--store: {text.partition('://')[0]} is not a supported kind of database", hint=_EXAMPLES
        )
    try:
        url = make_url(text).set(drivername=driver)
    except (ArgumentError, ValueError):
        # Its message may quote the part of a password that was taken for a port.
        raise InputError("--store: not a database URL", hint=f"{_EXAMPLES}; {_ENCODE}") from None
    return _file(url, read_only) if driver == "sqlite" else _server(url)


def _file(url: URL, read_only: bool) -> Database:
    path = url.database
    if path not in (None, "", ":memory:"):
        file = Path(str(path))
        if read_only:
            if not file.exists():
                raise MissingError(f"--store: there is no store at {path}", hint="`records import` makes one")
            reader = create_engine("sqlite://", creator=lambda: _open_to_read(file), poolclass=QueuePool)
            return Database(reader, str(path))
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            if says_full_disk(str(error)):
                raise full_disk(str(path)) from error
            raise MissingError(f"--store: {error}", hint="name a writable directory") from error
    engine = create_engine(url, connect_args={"timeout": _BUSY_S})
    event.listen(engine, "connect", _prepare_sqlite)
    return Database(engine, path or "the store in memory")


def _open_to_read(path: Path) -> sqlite3.Connection:
    """Open a file that may be on a read-only file system, or in a directory that this user can't write to."""
    if os.access(path, os.W_OK) and os.access(path.parent, os.W_OK):
        return _open(path, "mode=rw")
    try:
        # If another process is writing, respect its lock.
        return _open(path, "mode=ro")
    except sqlite3.OperationalError as error:
        # A store has a write-ahead log, for which SQLite needs a file of shared memory next to it.
        if not any(words in str(error) for words in ("unable to open", "readonly")):
            raise
    log = path.with_name(f"{path.name}-wal")
    if not log.exists() or not log.stat().st_size:
        return _open(path, "immutable=1")
    with temporary_directory("store") as directory:
        # The newest records are only in the log, which SQLite has to apply first.
        copy = directory / path.name
        shutil.copyfile(path, copy)
        shutil.copyfile(log, copy.with_name(log.name))
        return _open(copy, "mode=rw")


def _open(path: Path, parameters: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.resolve().as_uri()}?{parameters}", uri=True, timeout=_BUSY_S, check_same_thread=False
    )
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare_sqlite(connection: sqlite3.Connection, _: object) -> None:
    # WAL lets readers go on while another process writes; FULL keeps a committed record through a
    # power cut, because measuring again takes minutes.
    # While another process writes to a file that is not in this mode yet, or changes its mode too, SQLite
    # refuses at once, whatever time limit the connection has: waiting while it reads could take forever.
    deadline = time.monotonic() + _BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            break
        except sqlite3.OperationalError as error:
            if "database is locked" not in str(error) or time.monotonic() > deadline:
                raise
        time.sleep(_AGAIN_S)
    connection.execute("PRAGMA synchronous=FULL")


def _server(url: URL) -> Database:
    if "@" in (url.host or "") or "@" in (url.database or ""):
        # Everything before the last @ belongs to the password; shown as a host name it would leak.
        raise InputError("--store: not a database URL: it has more than one @", hint=_ENCODE)
    arguments: dict[str, Any] = {name: value for name, value in _LIBPQ.items() if name not in url.query}
    for name in _SECRET:
        if name in url.query:
            arguments[name] = str(url.query[name])
    url = url.difference_update_query(_SECRET)
    # No pool: a measurement takes minutes. A firewall may drop a connection that is idle for so long, and the
    # server's other clients could use it. Prepared statements confuse PgBouncer.
    try:
        engine = create_engine(
            url,
            poolclass=NullPool,
            hide_parameters=True,
            connect_args={**arguments, "prepare_threshold": None},
        )
    except ImportError as error:
        raise MissingError(
            f"psycopg, the client for PostgreSQL, can't be loaded: {error}",
            hint="unset PSYCOPG_IMPL; if that doesn't help, install this program's packages again",
        ) from error
    # Leave out the query: libpq's parameters, of which there are more and more, may name files and services.
    shown = URL.create(_POSTGRESQL, url.username, None, url.host, url.port, url.database)
    return Database(engine, shown.render_as_string())


# Decide what a database's error means: whether to try again, and what to tell people.

#: SQLSTATEs (https://www.postgresql.org/docs/current/errcodes-appendix.html) of temporary errors: the server
#: is stopping or starting, has no connection left, or let another transaction go first.
_PASSING = {"57P01", "57P02", "57P03", "53300", "40001", "40P01"}
_CONNECTION_CLASS = "08"
#: The same while connecting, when libpq passes on the server's message without its SQLSTATE.
_PASSING_WORDS = (
    "the database system is starting up",
    "the database system is shutting down",
    "the database system is in recovery mode",
    "too many clients",
    "remaining connection slots",
)
_GRANT = (
    "let the database's owner create the tables with `records import --store URL /dev/null`, then: GRANT"
    " SELECT, INSERT ON records TO <user>; GRANT SELECT ON records_schema TO <user>"
)
_PARAMETERS = "correct the parameters after the ? in --store; they are libpq's"
#: What the server or libpq says -> what to do.
_HINTS = (
    (
        "password authentication failed",
        "check the user and the password, which PGPASSWORD or ~/.pgpass can contain",
    ),
    ("no password supplied", "set PGPASSWORD, or write the password into ~/.pgpass"),
    ("does not exist", "create it with createdb and createuser, or correct --store"),
    ("invalid connection option", _PARAMETERS),
    ("invalid sslmode value", _PARAMETERS),
    ("does not support SSL", _PARAMETERS),
    ("permission denied", _GRANT),
    ("must be owner", _GRANT),
    ("read-only transaction", "this server is a replica; name the one that accepts writes"),
)
_UNREACHED = "check that the server runs and can be reached from here; no incomplete record was written"


def passes(error: DBAPIError, *, opened: bool) -> bool:
    """Tell whether the same attempt may succeed in a moment.

    opened: the store was reached before. A server that never answered has a wrong name or is down, which is
    reported at once; one that answered before is worth waiting for.
    """
    state = getattr(error.orig, "sqlstate", None)
    if state is not None:
        return state in _PASSING or state.startswith(_CONNECTION_CLASS)
    if opened and _is_connection_loss(error):
        return True
    return any(words in str(error.orig) for words in _PASSING_WORDS)


def explain(error: DBAPIError, database: Database) -> ValidatorError:
    """Return the error for people. It has no password: neither libpq nor the server quotes one."""
    # `str(error)` would show the statement and its values.
    text = " ".join(str(error.orig).split())
    location = database.location
    if says_full_disk(text) or "disk I/O error" in text:
        return full_disk(location)
    hint = "check the store, or name another one with --store"
    if database.is_server:
        unreached = _is_connection_loss(error) or passes(error, opened=True)
        otherwise = _UNREACHED if unreached else hint
        hint = next((told for words, told in _HINTS if words in text), otherwise)
    elif "not a database" in text or "malformed" in text:
        return damaged(location, text)
    return MissingError(f"{location}: {text}", hint=hint)


def damaged(location: str, text: str) -> InputError:
    """Return the error for a file that SQLite can't read."""
    return InputError(
        f"{location}: not a store of records ({text})",
        hint="name another one with --store; `records salvage` gets the records out of a damaged one",
    )


def _is_connection_loss(error: DBAPIError) -> bool:
    # psycopg gives no SQLSTATE when the error isn't an answer of the server.
    without_answer = getattr(error.orig, "sqlstate", "") is None
    return without_answer and type(error.orig).__name__ in ("OperationalError", "ConnectionTimeout")
