"""Every record that still matches its digest comes out of a damaged store, whatever the damage."""

from __future__ import annotations

import contextlib
import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from validator.errors import InputError
from validator.model.record import Record
from validator.records.record_files import salvage
from validator.records.store import Store

from .values import record

PAGE = 4096


def sized(number: int) -> Record:
    """Return a record with a document of a few hundred bytes up to thirty pages, some with odd text."""
    size = (0, 500, 3500, 4030, 9000, 30_000, 120_000)[number % 7]
    odd = ("ü\u2028" * 500, "\ud800", "\0")[number % 3]
    return record(
        number, cell=f"cell {odd} {number}", report={"text": "x" * size, "number": number, "é": odd}
    )


RECORDS = {found.id: found for found in map(sized, range(60))}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store with 60 records, in one file."""
    path = tmp_path_factory.mktemp("whole") / "records.db"
    with Store(str(path)) as store:
        for found in RECORDS.values():
            store.add(found)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
    return path


@pytest.fixture
def store(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(whole, tmp_path / "records.db"))


def change(path: Path, how: Callable[[bytearray], object]) -> None:
    content = bytearray(path.read_bytes())
    how(content)
    path.write_bytes(content)


def sqlite_rejects(path: Path) -> bool:
    try:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            return len(connection.execute("SELECT document FROM records").fetchall()) != len(RECORDS)
    except sqlite3.DatabaseError:
        return True


def test_a_whole_store_loses_nothing(store: Path) -> None:
    found = salvage(store)
    assert found.records == RECORDS and found.lost == 0


def test_records_that_are_only_in_the_log_are_found(store: Path) -> None:
    with Store(str(store)) as opened:
        later = [sized(number) for number in range(60, 70)]
        opened.add_all(later)
        # Without a clean end, everything since the last checkpoint is in the log.
        copied = store.with_name("copy.db")
        shutil.copy(store, copied)
        shutil.copy(f"{store}-wal", f"{copied}-wal")
    assert copied.with_name("copy.db-wal").stat().st_size > 0
    found = salvage(copied)
    assert found.records == RECORDS | {each.id: each for each in later} and found.lost == 0


def test_pages_may_have_reserved_bytes_at_their_end(tmp_path: Path) -> None:
    path, reserved = tmp_path / "records.db", 12
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(f"PRAGMA page_size={PAGE}; CREATE TABLE t (x); DROP TABLE t; VACUUM")

    def reserve(content: bytearray) -> None:
        content[20] = reserved
        # Where the content of the schema's page begins.
        content[105:107] = (PAGE - reserved).to_bytes(2, "big")

    change(path, reserve)
    records = {found.id: found for found in map(sized, range(40))}
    with Store(str(path)) as opened:
        opened.add_all(list(records.values()))
    assert path.read_bytes()[20] == reserved
    found = salvage(path)
    assert found.records == records and found.lost == 0


def zero_header(content: bytearray) -> None:
    content[:100] = bytes(100)


def no_schema(content: bytearray) -> None:
    content[:PAGE] = random.Random(1).randbytes(PAGE)


@pytest.mark.parametrize("damage", [zero_header, no_schema])
def test_the_header_and_the_schema_are_not_needed(store: Path, damage: Callable[[bytearray], None]) -> None:
    change(store, damage)
    assert sqlite_rejects(store)
    found = salvage(store)
    assert found.records == RECORDS and found.lost == 0


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("filled", ["zeros", "garbage"])
def test_damaged_pages_cost_only_the_records_on_them(store: Path, seed: int, filled: str) -> None:
    chance = random.Random(seed)
    pages = chance.sample(range(1, store.stat().st_size // PAGE), 12)

    def damage(content: bytearray) -> None:
        for page in pages:
            content[page * PAGE : (page + 1) * PAGE] = (
                bytes(PAGE) if filled == "zeros" else chance.randbytes(PAGE)
            )

    change(store, damage)
    assert sqlite_rejects(store)
    found = salvage(store)
    assert found.records.items() <= RECORDS.items()
    assert len(found.records) >= len(RECORDS) / 3, "most are on other pages"
    assert found.lost == len(RECORDS) - len(found.records)


@pytest.mark.parametrize("share", [0.9, 0.5, 0.1])
def test_a_truncated_file_keeps_what_is_in_front(store: Path, share: float) -> None:
    change(store, lambda content: content.__delitem__(slice(int(len(content) * share), None)))
    assert sqlite_rejects(store)
    found = salvage(store)
    assert 0 < len(found.records) < len(RECORDS) and found.records.items() <= RECORDS.items()
    assert 0 < found.lost <= len(RECORDS) - len(found.records)


def test_a_changed_record_is_lost_and_not_written(store: Path) -> None:
    change(
        store,
        lambda content: content.__setitem__(slice(None), content.replace(b'"number": 9', b'"number": 8')),
    )
    found = salvage(store)
    assert found.records == {key: value for key, value in RECORDS.items() if key != sized(9).id}
    assert found.lost == 1


def test_damage_of_single_bytes_costs_single_records(store: Path) -> None:
    chance = random.Random(7)

    def damage(content: bytearray) -> None:
        for _ in range(30):
            content[chance.randrange(len(content))] ^= 0xFF

    change(store, damage)
    found = salvage(store)
    assert found.records.items() <= RECORDS.items() and len(found.records) >= 30
    assert found.lost == len(RECORDS) - len(found.records)


@pytest.mark.parametrize(
    "content", [b"", b"\0" * 50_000, random.Random(3).randbytes(300_000), b"SQLite format 3\0"]
)
def test_a_file_without_records_gives_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "records.db").write_bytes(content)
    found = salvage(tmp_path / "records.db")
    assert (found.records, found.lost) == ({}, 0)


@pytest.mark.parametrize("name", ["absent.db", "."])
def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"No such file|Is a directory"):
        salvage(tmp_path / name)
