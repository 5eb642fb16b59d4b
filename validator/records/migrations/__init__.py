"""Alembic's migrations of the store: data of the package, run by `records/schema.py`."""
