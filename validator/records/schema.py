"""Define the tables, and create them, on either database."""

from __future__ import annotations

from sqlalchemy import Column, Connection, Engine, Index, MetaData, Table, Text, insert, inspect, select

from ..errors import InputError, MissingError

#: The version of the tables. A store of any other version is refused.
VERSION = "0001"
#: In PostgreSQL, only the process that holds this lock creates the tables. No other program is likely to use
#: it.
LOCK = 0x7265636F726473

_metadata = MetaData()
# Times and ids are ordered by code point, whatever the language of the database.
_TEXT = Text().with_variant(Text(collation="C"), "postgresql")
#: `document` holds the whole record as JSON in ASCII; the other columns are for searching.
records = Table(
    "records",
    _metadata,
    Column("id", _TEXT, primary_key=True),
    *(Column(name, _TEXT, nullable=False) for name in ("cell", "image", "verdict", "key", "finished")),
    Column("document", Text, nullable=False),
)
Index("records_by_key", records.c.key, records.c.finished)
Index("records_by_cell", records.c.cell, records.c.finished)
_versions = Table("records_schema", _metadata, Column("version_num", Text, primary_key=True))

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


def bring_up(engine: Engine, location: str, *, read_only: bool = False) -> None:
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
            connection.execute(insert(_versions).values(version_num=VERSION))


def _has_tables(connection: Connection, location: str) -> bool:
    """Return True if the store has its tables. Raises what `bring_up` raises if they are others."""
    # One question, so that another process which creates them in between is not taken for another program.
    names = inspect(connection).get_table_names()
    if _versions.name not in names:
        if records.name in names:
            raise InputError(
                f"{location}: not a store of records: another program made its table {records.name}",
                hint="name another one with --store",
            )
        return False
    found = connection.execute(select(_versions.c.version_num)).scalars().all()
    if found != [VERSION]:
        raise MissingError(
            f"{location}: another version of this program made its tables (schema"
            f" {', '.join(map(str, found)) or 'unknown'}; this one uses {VERSION})",
            hint="use that version of the program, or name another store with --store",
        )
    return True
