"""The tables, and how a store comes up to them: by Alembic's migrations, whatever the database.

Alembic is imported only where there is something to migrate: it would double what opening a store takes.
"""

from __future__ import annotations

import importlib.resources

from sqlalchemy import Column, Connection, Engine, MetaData, Table, Text, inspect, select

from ..errors import InputError, MissingError

#: The newest migration. A test compares it with what lies in `migrations/versions/`.
HEAD = "0001"
#: Alembic's own table has a name of ours: the database may belong to others too.
VERSION_TABLE = "records_schema"
#: Whoever holds this lock in a PostgreSQL database migrates; a number that nobody else is likely to take.
LOCK = 0x7265636F726473

_metadata = MetaData()
#: `document` holds the whole record as JSON in ASCII; the other columns are there to search by.
records = Table(
    "records",
    _metadata,
    Column("id", Text, primary_key=True),
    *(Column(name, Text) for name in ("cell", "image", "verdict", "key", "finished", "document")),
)
_versions = Table(VERSION_TABLE, MetaData(), Column("version_num", Text))


def bring_up(engine: Engine, location: str, *, must_exist: bool = False) -> None:
    """Make or migrate the tables, all of it or nothing. Of two processes the second finds it done.

    must_exist: a database without records is an error. Raises InputError for tables that are not ours, or
    that a newer version of this program made.
    """
    with engine.connect() as connection:
        found = _version(connection)
        if found == HEAD:
            return
        if found is None and must_exist and not inspect(connection).has_table(records.name):
            raise InputError(f"{location}: holds no records", hint="name a store that does")
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({LOCK})")
        else:
            # The driver itself begins no transaction before a CREATE.
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        _check(connection, location)
        _migrate(connection, location)


def _version(connection: Connection) -> str | None:
    """The migration that the store stands at; None for one without migrations."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    found = connection.execute(select(_versions.c.version_num)).scalars().all()
    return str(found[0]) if found else None


def _check(connection: Connection, location: str) -> None:
    """Refuse to take over another program's table of the same name."""
    inspector = inspect(connection)
    if not inspector.has_table(records.name):
        return
    missing = set(records.c.keys()) - {column["name"] for column in inspector.get_columns(records.name)}
    if missing:
        raise InputError(
            f"{location}: is not a store of records: its table records has no {', '.join(sorted(missing))}",
            hint="name another one with --store",
        )


def _migrate(connection: Connection, location: str) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config(attributes={"connection": connection, "version_table": VERSION_TABLE})
    with importlib.resources.as_file(importlib.resources.files(__package__) / "migrations") as place:
        # A path may hold a percent sign, which the configuration would interpolate.
        config.set_main_option("script_location", str(place).replace("%", "%%"))
        known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
        found = _version(connection)
        if found is not None and found not in known:
            raise MissingError(
                f"{location}: a newer version of this program made its tables"
                f" (schema {found}; this one knows up to {HEAD})",
                hint="update this program",
            )
        command.upgrade(config, HEAD)
