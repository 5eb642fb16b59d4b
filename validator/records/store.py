"""Keep records in an SQLite file, the default, or on a PostgreSQL server that many machines write to.

The store is append-only: this module can't change or delete a record, and triggers in the database refuse it
too. Records that are added together are written in one transaction, so that a killed process or a lost
connection leaves all of them or none.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from operator import itemgetter
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import sqlalchemy as sql
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError

from ..errors import InputError, MissingError
from ..model.codec import now_utc, parse_time
from ..model.record import Record, RecordError, Verdict, read_record
from ..model.verdict import as_judged
from ..system.files import open_file
from .connect import damaged, database, explain, passes
from .history import Decline, Difference, Entry, credible_time, finish_time, newest_by_cell

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


# Read what a person compares: stores, files and earlier states of a store.

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
        from . import record_files

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
