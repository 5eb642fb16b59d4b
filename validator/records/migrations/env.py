"""What Alembic runs before the migrations: it takes the connection, and the transaction, of its caller."""

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    version_table=context.config.attributes["version_table"],
)
context.run_migrations()
