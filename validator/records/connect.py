"""Turn the text after `--store` into a database, SQLite or PostgreSQL. No password is ever shown."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.pool import NullPool, QueuePool

from ..errors import InputError, MissingError, ValidatorError
from ..system.files import full_disk, says_full_disk
from ..system.runs import temporary_directory

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
            f"--store: {text.partition('://')[0]} is not a supported kind of database",
            hint=_EXAMPLES,
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
