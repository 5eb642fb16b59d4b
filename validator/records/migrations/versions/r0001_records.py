"""The table of records, which is only ever added to.

A store that was made before there were migrations has the same table. It is kept, and gets whatever is
missing because the process that created it was killed.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

# Times and ids are ordered by code point, whatever the language of the database.
_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")

_SQLITE = tuple(
    f"CREATE TRIGGER IF NOT EXISTS records_no_{change.lower()} BEFORE {change} ON records "
    "BEGIN SELECT RAISE(ABORT, 'records are never changed'); END"
    for change in ("UPDATE", "DELETE")
)
_POSTGRESQL = (
    "CREATE FUNCTION records_refuse() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN RAISE EXCEPTION 'records are never changed'; END $$",
    "CREATE TRIGGER records_no_change BEFORE UPDATE OR DELETE OR TRUNCATE ON records "
    "FOR EACH STATEMENT EXECUTE FUNCTION records_refuse()",
)


def upgrade() -> None:
    names = ("cell", "image", "verdict", "key", "finished")
    op.create_table(
        "records",
        sa.Column("id", _TEXT, primary_key=True),
        *(sa.Column(name, _TEXT, nullable=False) for name in names),
        sa.Column("document", sa.Text(), nullable=False),
        if_not_exists=True,
    )
    op.create_index("records_by_key", "records", ["key", "finished"], if_not_exists=True)
    op.create_index("records_by_cell", "records", ["cell", "finished"], if_not_exists=True)
    for statement in _SQLITE if op.get_bind().dialect.name == "sqlite" else _POSTGRESQL:
        op.execute(statement)
