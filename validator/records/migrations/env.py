"""Alembic runs this module for the migrations, in the connection and transaction of the caller."""

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    version_table=context.config.attributes["version_table"],
)
context.run_migrations()
