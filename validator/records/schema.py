"""Define the tables, and create or migrate them with Alembic, on either database.

Alembic is imported only when there is something to migrate: it would double the time to open a store.
"""

from __future__ import annotations

import importlib.resources

from sqlalchemy import Column, Connection, Engine, MetaData, Table, Text, inspect, select

from ..errors import InputError, MissingError

#: The newest migration. A test compares it with the files in `migrations/versions/`.
HEAD = "0001"
#: Alembic's table gets this name, since other programs may use Alembic in the same database.
VERSION_TABLE = "records_schema"
#: In PostgreSQL, only the process that holds this lock migrates. No other program is likely to use it.
LOCK = 0x7265636F726473

_metadata = MetaData()
#: `document` holds the whole record as JSON in ASCII; the other columns are for searching.
records = Table(
    "records",
    _metadata,
    Column("id", Text, primary_key=True),
    *(Column(name, Text) for name in ("cell", "image", "verdict", "key", "finished", "document")),
)
_versions = Table(VERSION_TABLE, MetaData(), Column("version_num", Text))


def bring_up(engine: Engine, location: str, *, read_only: bool = False) -> None:
    """Create or migrate the tables, in one transaction. A second process waits and finds it done.

    read_only: change nothing where that isn't necessary; a database without records is an error.
    Raises InputError for tables of another program, and MissingError for tables that a newer version of this
    program made.
    """
    with engine.connect() as connection:
        found = _version(connection)
        if found == HEAD:
            return
        if found is None and read_only:
            if not inspect(connection).has_table(records.name):
                raise InputError(
                    f"{location}: there are no records in this database",
                    hint="name another store with --store",
                )
            # A store that is older than the migrations has the same table.
            _check(connection, location)
            return
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({LOCK})")
        else:
            # The driver doesn't begin a transaction before a CREATE.
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        _check(connection, location)
        _migrate(connection, location)


def _version(connection: Connection) -> str | None:
    """Return the store's migration; None for an empty database, or a store older than migrations."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    found = connection.execute(select(_versions.c.version_num)).scalars().all()
    return str(found[0]) if found else None


def _check(connection: Connection, location: str) -> None:
    """Raise InputError for another program's table of the same name."""
    inspector = inspect(connection)
    if not inspector.has_table(records.name):
        return
    missing = set(records.c.keys()) - {column["name"] for column in inspector.get_columns(records.name)}
    if missing:
        raise InputError(
            f"{location}: not a store of records: its table records has no {', '.join(sorted(missing))}",
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
