"""The store keeps whole records, keeps them unchanged, and says what is wrong with itself."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import small_disk
from validator.errors import InputError, MissingError, ValidatorError
from validator.model.record import Verdict
from validator.records.store import Store

from .values import record

SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(str(tmp_path / "records.db")) as opened:
        yield opened


def test_what_was_written_is_read_again(store: Store) -> None:
    assert store.add(record(1))
    assert list(store.all()) == [record(1)]
    assert store.get(record(1).id[:8]) == record(1)


def test_the_same_record_is_written_once(store: Store) -> None:
    assert store.add(record(1))
    assert not store.add(record(1))
    assert len(list(store.all())) == 1


def test_records_come_oldest_first_and_by_cell(store: Store) -> None:
    for number in (5, 1, 9):
        store.add(record(number))
    assert [found.key for found in store.all()] == ["key1", "key5", "key9"]
    assert [found.key for found in store.all(cell=record(5).cell)] == ["key1", "key5", "key9"]
    assert list(store.all(image="another")) == []


def test_the_latest_of_every_cell(store: Store) -> None:
    for number in (0, 1, 4):
        store.add(record(number))
    assert {cell: found.key for cell, found in store.latest().items()} == {
        record(0).cell: "key4",
        record(1).cell: "key1",
    }


def test_a_broken_record_is_no_measurement(store: Store) -> None:
    store.add(record(1, key="k", verdict=Verdict.BROKEN))
    assert store.measured("k") is None
    store.add(record(2, key="k"))
    store.add(record(3, key="k", verdict=Verdict.FAILED))
    found = store.measured("k")
    assert found is not None and found.verdict is Verdict.FAILED


def test_an_id_must_name_one_record(store: Store) -> None:
    store.add(record(1))
    store.add(record(2))
    with pytest.raises(InputError, match="several records have an id that begins with"):
        store.get("")
    with pytest.raises(InputError, match="no record has an id that begins with zz%"):
        store.get("zz%")


@pytest.mark.parametrize("change", ["UPDATE records SET verdict = 'certified'", "DELETE FROM records"])
def test_the_database_refuses_changes(store: Store, tmp_path: Path, change: str) -> None:
    store.add(record(1))
    with (
        contextlib.closing(sqlite3.connect(tmp_path / "records.db")) as connection,
        pytest.raises(sqlite3.IntegrityError, match="records are never changed"),
    ):
        connection.execute(change)
    assert list(store.all()) == [record(1)]


def test_a_store_whose_maker_was_killed_halfway_still_refuses_changes(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    with Store(str(path)) as store:
        store.add(record(1))
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP TRIGGER records_no_update")
        connection.execute("DROP TRIGGER records_no_delete")
    with Store(str(path)), contextlib.closing(sqlite3.connect(path)) as connection:
        for change in ("UPDATE records SET cell = ''", "DELETE FROM records"):
            with pytest.raises(sqlite3.IntegrityError, match="records are never changed"):
                connection.execute(change)


@pytest.mark.parametrize("document", ["5", "[]", "{", "[" * 100_000])
def test_what_is_no_record_in_the_store_is_refused(store: Store, tmp_path: Path, document: str) -> None:
    store.add(record(1))
    with contextlib.closing(sqlite3.connect(tmp_path / "records.db")) as connection, connection:
        connection.execute("DROP TRIGGER records_no_update")
        connection.execute("UPDATE records SET document = ?", [document])
    with pytest.raises(InputError) as caught:
        list(store.all())
    assert caught.value.hint == "the store was changed by other means; use another one"


def test_a_document_altered_behind_our_back_is_noticed(store: Store, tmp_path: Path) -> None:
    store.add(record(1))
    with contextlib.closing(sqlite3.connect(tmp_path / "records.db")) as connection, connection:
        connection.execute("DROP TRIGGER records_no_update")
        connection.execute("UPDATE records SET document = replace(document, 'unproven', 'certified')")
    with pytest.raises(InputError, match="it was altered"):
        list(store.all())


def write_many(path: str, first: int) -> None:
    with Store(path) as store:
        for number in range(first, first + 100):
            store.add(record(number))


def test_two_processes_write_at_once_and_nothing_is_lost(tmp_path: Path) -> None:
    path = str(tmp_path / "records.db")
    writers = [SPAWN.Process(target=write_many, args=(path, first)) for first in (0, 100)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    with Store(path) as store:
        assert {found.id for found in store.all()} == {record(number).id for number in range(200)}


def test_a_killed_writer_leaves_whole_records_only(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    with Store(str(path)) as store:
        writer = SPAWN.Process(target=write_many, args=(str(path), 0))
        writer.start()
        while not list(store.all()):
            assert writer.is_alive()
            time.sleep(0.005)
        os.kill(writer.pid or 0, signal.SIGKILL)
        writer.join()
        found = list(store.all())
        assert found == [record(number) for number in range(len(found))]
        store.add(record(500))
        assert len(list(store.all())) == len(found) + 1


def test_a_full_disk_is_said_and_what_was_written_stays(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", "256k") as place, Store(str(place / "records.db")) as store:
        written = 0
        with pytest.raises(MissingError, match="no space left on the disk"):
            for number in range(1000):
                store.add(record(number, report={"text": "x" * 4000}))
                written += 1
        assert len(list(store.all())) == written > 0
        store.close()
        with Store(str(place / "records.db")) as again:
            assert len(list(again.all())) == written


def test_a_store_on_a_read_only_disk_is_said(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", "256k") as place:
        with Store(str(place / "records.db")) as store:
            store.add(record(1))
        subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
        with pytest.raises(MissingError, match=r"records\.db: ") as caught:
            Store(str(place / "records.db"))
        assert caught.value.hint
        with pytest.raises(MissingError, match="Read-only file system"):
            Store(str(place / "deeper" / "records.db"))


@pytest.mark.parametrize(
    ("url", "error", "message"),
    [
        ("nonsense://", InputError, "not a database URL"),
        ("postgresql+nodriver://host/db", InputError, "not a database URL"),
        ("mysql+pymysql://host/db", MissingError, "its driver pymysql is not installed"),
        ("/proc/nowhere/records.db", MissingError, "--store"),
    ],
)
def test_what_can_not_be_a_store_is_said(url: str, error: type[ValidatorError], message: str) -> None:
    with pytest.raises(error, match=message):
        Store(url)


def test_another_file_is_not_taken_for_a_store(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database, but longer than the header of one would be" * 20)
    with pytest.raises(InputError, match="is not a store of records"):
        Store(str(path))
    assert path.read_text().startswith("not a database")
