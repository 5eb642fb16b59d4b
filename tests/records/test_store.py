"""The store keeps whole records unchanged, and reports what is wrong with it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from validator import cli
from validator.errors import InputError, MissingError, ValidatorError
from validator.model.record import Verdict
from validator.records.history import Entry
from validator.records.store import Store

from ..support import FORKED, small_disk
from .values import bundle, record


def test_a_written_record_is_read_back(store: Store) -> None:
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


def test_the_newest_record_of_every_cell(store: Store) -> None:
    for number in (0, 1, 4):
        store.add(record(number))
    assert {cell: found.key for cell, found in store.latest().items()} == {
        record(0).cell: "key4",
        record(1).cell: "key1",
    }


def test_a_broken_record_is_not_a_measurement(store: Store) -> None:
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
def test_an_sqlite_file_rejects_changes(tmp_path: Path, change: str) -> None:
    path = tmp_path / "records.db"
    with Store(str(path)) as store:
        store.add(record(1))
        with (
            contextlib.closing(sqlite3.connect(path)) as connection,
            pytest.raises(sqlite3.IntegrityError, match="records are never changed"),
        ):
            connection.execute(change)
        assert list(store.all()) == [record(1)]


@pytest.mark.parametrize("document", ["5", "[]", "{", "[" * 100_000])
def test_a_damaged_record_in_the_store_is_rejected(tmp_path: Path, document: str) -> None:
    path = tmp_path / "records.db"
    with Store(str(path)) as store:
        store.add(record(1))
        with contextlib.closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("DROP TRIGGER records_no_update")
            connection.execute("UPDATE records SET document = ?", [document])
        with pytest.raises(InputError) as caught:
            list(store.all())
    assert record(1).id in str(caught.value)
    assert caught.value.hint == "another program changed this store: use another one, or `records salvage`"


def test_a_document_altered_by_other_means_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    with Store(str(path)) as store:
        store.add(record(1))
        with contextlib.closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("DROP TRIGGER records_no_update")
            connection.execute("UPDATE records SET document = replace(document, 'unproven', 'certified')")
        with pytest.raises(InputError, match="it was altered"):
            list(store.all())


def test_several_pages_of_records_are_complete_and_in_order(store: Store) -> None:
    written = [record(number) for number in range(120)]
    assert store.add_all(reversed(written)) == 120
    assert store.add_all([*written, record(200), record(200)]) == 1
    assert list(store.all()) == [*written, record(200)]
    assert [entry.id for entry in store.entries()] == [found.id for found in [*written, record(200)]]
    assert store.entries(record(7).cell)[0] == Entry.of(record(3))
    assert store.fetch([record(9).id, record(2).id]) == {record(9).id: record(9), record(2).id: record(2)}
    assert store.add_all([]) == 0


#: Long, and nothing that a database could compress.
LONG = "".join(hashlib.sha256(bytes([number])).hexdigest() for number in range(100))


@pytest.mark.parametrize("text", ["\0", "\ud800", "\udfff\ud800 \0", "a\0" * 5000, "é\u2028\U0001f600", LONG])
def test_text_that_databases_reject_is_kept_unchanged(store: Store, text: str) -> None:
    odd = record(1, cell=text, image=text, key=text, reason=text, finished=text, report={text: [text]})
    almost = record(2, cell=text + "!", image=text + "!", key="k")
    assert store.add_all([odd, almost, record(3)]) == 3
    assert not store.add(odd)
    assert store.get(odd.id) == odd
    assert list(store.all(cell=text)) == list(store.all(image=text)) == [odd]
    assert store.measured(text) is None and text not in store.latest(), "its time is not a time"
    dated = msgspec.structs.replace(odd, finished=record(3).finished)
    assert store.add(dated)
    assert store.measured(text) == dated
    assert store.latest()[text] == dated
    with pytest.raises(InputError, match="no record has an id that begins with"):
        store.get(text)


@pytest.mark.parametrize("finished", ["2999-01-01T00:00:00+00:00", "zzzz", ""])
def test_a_record_whose_time_cannot_be_right_is_shown_and_never_the_newest(
    store: Store, finished: str
) -> None:
    odd = record(5, finished=finished, key="k")
    store.add_all([record(1, key="k"), odd])
    assert odd in store.all() and store.get(odd.id) == odd
    assert store.latest() == {odd.cell: record(1, key="k")}
    assert store.measured("k") == record(1, key="k"), "the cell would never be measured again"


def test_the_signed_time_decides_which_record_is_the_newest(store: Store) -> None:
    signed = record(1, finished="2026-03-01T00:00:00+00:00", measurement=bundle("2026-01-01T00:00:00+00:00"))
    later = record(5, finished="2026-02-01T00:00:00+00:00")
    store.add_all([signed, later])
    assert store.latest() == {later.cell: later}
    assert [entry.finished for entry in store.entries()] == ["2026-01-01T00:00:00+00:00", later.finished]


def write_many(url: str, first: int) -> None:
    with Store(url) as store:
        for number in range(first, first + 100):
            store.add(record(number))


def test_two_processes_write_at_once_without_losing_a_record(url: str) -> None:
    writers = [FORKED.Process(target=write_many, args=(url, first)) for first in (0, 100)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    with Store(url) as store:
        assert {found.id for found in store.all()} == {record(number).id for number in range(200)}


def write_the_same(url: str, first: int) -> int:
    """Write records one by one and together, in a different order than the other processes."""
    numbers = [(first + number) % 60 for number in range(60)]
    with Store(url) as store:
        singly = sum(store.add(record(number)) for number in numbers[:20])
        return singly + store.add_all(record(number) for number in numbers)


def test_records_that_many_processes_write_at_once_are_written_once(url: str) -> None:
    with FORKED.Pool(3) as pool:
        added = pool.starmap(write_the_same, [(url, first) for first in (0, 20, 45)])
    assert sum(added) == 60
    with Store(url) as store:
        assert list(store.all()) == [record(number) for number in range(60)]


def test_a_killed_writer_leaves_only_whole_records(url: str) -> None:
    with Store(url) as store:
        writer = FORKED.Process(target=write_many, args=(url, 0))
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


@pytest.mark.service
def test_a_full_disk_is_reported_and_written_records_stay() -> None:
    with small_disk("256k") as place, Store(str(place / "records.db")) as store:
        written = 0
        with pytest.raises(MissingError, match="no space left on the disk"):
            for number in range(1000):
                store.add(record(number, report={"text": "x" * 4000}))
                written += 1
        assert len(list(store.all())) == written > 0
        store.close()
        with Store(str(place / "records.db")) as again:
            assert len(list(again.all())) == written


@pytest.mark.service
def test_a_read_only_disk_is_reported() -> None:
    with small_disk("256k") as place:
        with Store(str(place / "records.db")) as store:
            store.add(record(1))
        mounted_read_only(place)
        with pytest.raises(MissingError, match=r"records\.db: ") as caught:
            Store(str(place / "records.db"))
        assert caught.value.hint
        with pytest.raises(MissingError, match="Read-only file system"):
            Store(str(place / "deeper" / "records.db"))


def mounted_read_only(place: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)


@pytest.mark.service
@pytest.mark.parametrize("left", ["", "-wal", "-wal -shm"])
def test_a_store_on_a_read_only_disk_is_read(tmp_path: Path, left: str) -> None:
    """Whoever wrote it may have been killed, and then the newest records are only in its log."""
    with small_disk("4m") as place:
        path, original = place / "a store.db", tmp_path / "original.db"
        with Store(str(original)) as store:
            store.add_all([record(1), record(2)])
            for ending in left.split():
                shutil.copy(f"{original}{ending}", f"{path}{ending}")
            if left:
                shutil.copy(original, path)
        if not left:
            shutil.copy(original, path)
        mounted_read_only(place)
        before = sorted(file.name for file in place.iterdir())
        with Store(str(path), read_only=True) as store:
            assert list(store.all()) == [record(1), record(2)]
            assert store.latest().keys() == {record(1).cell, record(2).cell}
        assert cli.run(["records", "list", "--store", str(path)]) == 0
        assert cli.run(["records", "export", "--store", f"sqlite:///{path}"]) == 0
        assert sorted(file.name for file in place.iterdir()) == before


def test_a_reader_without_permission_to_write_needs_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "records.db"
    with Store(str(path)) as store:
        store.add(record(1))
    monkeypatch.setattr(os, "access", lambda *_: False)
    content = path.read_bytes()
    with Store(str(path), read_only=True) as store:
        assert list(store.all()) == [record(1)]
        with pytest.raises(MissingError, match="readonly database"):
            store.add(record(2))
    assert path.read_bytes() == content


def test_reading_leaves_no_files(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    with Store(str(path)) as store:
        store.add(record(1))
    for _ in range(2):
        with Store(str(path), read_only=True) as store:
            assert list(store.all()) == [record(1)]
        assert [file.name for file in tmp_path.iterdir()] == ["records.db"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["nonsense", "c"])
def test_a_client_for_postgresql_that_cannot_be_loaded_is_explained(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "validator", "records", "list", "--store", "postgresql:///x"],
        env={**os.environ, "PSYCOPG_IMPL": name}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 3
    assert "psycopg, the client for PostgreSQL, can't be loaded" in done.stderr
    assert "unset PSYCOPG_IMPL" in done.stderr


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("nonsense://", InputError, "nonsense is not a supported kind of database"),
        (
            "postgresql+nodriver://host/db",
            InputError,
            "postgresql.nodriver is not a supported kind of database",
        ),
        ("mysql+pymysql://host/db", InputError, "mysql.pymysql is not a supported kind of database"),
        ("postgresql://host:port/db", InputError, "not a database URL"),
        ("/proc/nowhere/records.db", MissingError, "--store"),
    ],
)
def test_text_that_names_no_store_is_rejected(text: str, error: type[ValidatorError], message: str) -> None:
    with pytest.raises(error, match=message):
        Store(text)


def test_a_store_that_is_only_read_is_not_created(tmp_path: Path, url: str) -> None:
    with pytest.raises(ValidatorError, match=r"there is no store at|there are no records in"):
        Store(url, read_only=True)
    with pytest.raises(ValidatorError, match=r"there is no store at|there are no records in"):
        Store(url, read_only=True)
    assert not (tmp_path / "records.db").exists()
    with Store(url) as store:
        store.add(record(1))
    with Store(url, read_only=True) as store:
        assert list(store.all()) == [record(1)]


def test_another_file_is_not_mistaken_for_a_store(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database, but longer than the header of one would be" * 20)
    with pytest.raises(InputError, match="not a store of records"):
        Store(str(path))
    assert path.read_text().startswith("not a database")
