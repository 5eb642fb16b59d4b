"""Provide stores of both kinds: an SQLite file, and a database on a real server."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from validator.records.store import Store

from ..postgresql import Server

_numbers = itertools.count()


@pytest.fixture
def database(postgresql: Server) -> Iterator[str]:
    """Yield the name of an empty database on the server."""
    name = f"test{next(_numbers)}"
    postgresql.sql(f"CREATE DATABASE {name}")
    yield name
    postgresql.sql(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.service)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the place of a store that does not exist yet."""
    if request.param == "sqlite":
        return str(tmp_path / "records.db")
    running: Server = request.getfixturevalue("postgresql")
    name: str = request.getfixturevalue("database")
    return running.url(name)


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with Store(url) as opened:
        yield opened
