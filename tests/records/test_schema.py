"""The tables are created completely or not at all, and a store of another version is refused."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import NoReturn

import pytest

from validator.errors import InputError, MissingError
from validator.records.store import Store

from ..support import FORKED
from .values import record


def tables(path: Path) -> set[tuple[str, str]]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return set(connection.execute("SELECT type, name FROM sqlite_master"))


def test_records_can_be_neither_changed_nor_deleted(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    with Store(str(path)) as store:
        store.add(record(1))
    with contextlib.closing(sqlite3.connect(path)) as connection:
        for change in ("UPDATE records SET cell = ''", "DELETE FROM records"):
            with pytest.raises(sqlite3.IntegrityError, match="records are never changed"):
                connection.execute(change)


def test_an_interrupted_creation_leaves_nothing(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        # The version is written last.
        patch.setattr("sqlalchemy.insert", stop)
        with pytest.raises(KeyboardInterrupt):
            Store(url)
    with pytest.raises(InputError, match="there are no records in"):
        Store(url, read_only=True)
    with Store(url) as store:
        assert store.add(record(1))


def open_together(url: str, together: Barrier) -> None:
    together.wait(timeout=60)
    Store(url).close()


def test_many_processes_may_create_a_store_at_once(url: str) -> None:
    together = FORKED.Barrier(4)
    makers = [FORKED.Process(target=open_together, args=(url, together)) for _ in range(4)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()
        assert maker.exitcode == 0
    with Store(url) as store:
        assert store.add(record(1))


def test_the_store_waits_for_another_process_that_writes(tmp_path: Path) -> None:
    # Not in WAL yet, as it is while its maker makes it.
    path = tmp_path / "records.db"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        end = threading.Timer(0.3, writer.execute, ["ROLLBACK"])
        end.start()
        with Store(str(path)) as store:
            assert not end.is_alive()
            assert store.add(record(1))


def test_a_file_that_stays_locked_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("validator.records.store._BUSY_S", 0.2)
    path = tmp_path / "records.db"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        with pytest.raises(MissingError, match=f"{path}: database is locked"):
            Store(str(path))


@pytest.mark.parametrize(
    ("change", "shown"),
    [("UPDATE records_schema SET version_num = '9999'", "9999"), ("DELETE FROM records_schema", "unknown")],
)
def test_a_store_of_another_version_is_not_changed(tmp_path: Path, change: str, shown: str) -> None:
    path = tmp_path / "records.db"
    with Store(str(path)) as store:
        store.add(record(1))
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(change)
    before = tables(path)
    for read_only in (False, True):
        with pytest.raises(
            MissingError, match=rf"another version of this program made its tables \(schema {shown}; "
        ) as caught:
            Store(str(path), read_only=read_only)
        assert caught.value.hint == ("use that version of the program, or name another store with --store")
    assert tables(path) == before


@pytest.mark.parametrize("columns", ["id INTEGER, cell TEXT, artist TEXT", "id TEXT, document TEXT"])
def test_the_table_of_another_program_is_not_used(tmp_path: Path, columns: str) -> None:
    path = tmp_path / "music.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(f"CREATE TABLE records ({columns})")
    before = tables(path)
    for read_only in (False, True):
        with pytest.raises(InputError, match="another program made its table records"):
            Store(str(path), read_only=read_only)
    assert tables(path) == before
