"""The tables are created and migrated in one way, and opening a store stays fast."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
import threading
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory

import validator.records
from validator.errors import InputError, MissingError
from validator.model.record import Verdict
from validator.records import connect, schema
from validator.records.store import Store

from ..support import FORKED
from .values import record

OLD = Path(__file__).with_name("store_0.1.0.sql")


def tables(path: Path) -> set[tuple[str, str]]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return set(connection.execute("SELECT type, name FROM sqlite_master"))


def old_store(path: Path, *spoil: str) -> Path:
    """Make a store as version 0.1.0 did, then change it by the statements."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(OLD.read_text(encoding="utf-8"))
        for statement in spoil:
            connection.execute(statement)
    return path


def test_the_expected_migration_is_the_newest() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(validator.records.__file__).parent / "migrations"))
    assert ScriptDirectory.from_config(config).get_current_head() == schema.HEAD


@pytest.mark.parametrize(
    "spoil",
    [
        (),
        # Its maker was killed half-way.
        ("DROP TRIGGER records_no_update", "DROP TRIGGER records_no_delete", "DROP INDEX records_by_key"),
    ],
)
def test_a_store_older_than_migrations_is_migrated(tmp_path: Path, spoil: tuple[str, ...]) -> None:
    path = old_store(tmp_path / "old.db", *spoil)
    with Store(str(path)) as store:
        expected = [
            record(1),
            record(
                2,
                verdict=Verdict.FAILED,
                reason="cudnn_load: cuDNN does not load",
                report={"text": "nul \0, half \ud83d, é"},
            ),
            record(3, key="", report=None),
        ]
        assert list(store.all()) == expected
        assert store.add(record(4)) and not store.add(record(1))
    with Store(str(tmp_path / "new.db")):
        assert tables(path) == tables(tmp_path / "new.db")
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT * FROM records_schema").fetchall() == [(schema.HEAD,)]
        for change in ("UPDATE records SET cell = ''", "DELETE FROM records"):
            with pytest.raises(sqlite3.IntegrityError, match="records are never changed"):
                connection.execute(change)


def test_an_interrupted_migration_leaves_nothing(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = command.upgrade

    def half(*arguments: Any) -> None:
        whole(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(command, "upgrade", half)
        with pytest.raises(KeyboardInterrupt):
            Store(url)
    with pytest.raises(InputError, match="there are no records in"):
        Store(url, read_only=True)
    with Store(url) as store:
        assert store.add(record(1))


def open_together(url: str, together: Barrier) -> None:
    # All have imported what they need by now, Alembic too.
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
    monkeypatch.setattr(connect, "_BUSY_S", 0.2)
    path = tmp_path / "records.db"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        with pytest.raises(MissingError, match=f"{path}: database is locked"):
            Store(str(path))


def test_a_store_of_a_newer_version_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    with Store(str(path)) as store:
        store.add(record(1))
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE records_schema SET version_num = '9999'")
    before = tables(path)
    with pytest.raises(
        MissingError, match=r"newer version of this program made its tables \(schema 9999"
    ) as caught:
        Store(str(path))
    assert caught.value.hint == "update this program"
    assert tables(path) == before


def test_the_table_of_another_program_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "music.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE records (id INTEGER, cell TEXT, artist TEXT)")
    before = tables(path)
    with pytest.raises(InputError, match="its table records has no document, finished, image, key, verdict"):
        Store(str(path))
    assert tables(path) == before


def test_a_store_that_is_up_to_date_is_opened_without_alembic(tmp_path: Path) -> None:
    with Store(str(tmp_path / "records.db")):
        pass
    program = (
        "import sys; from validator.records.store import Store; Store('records.db').close();"
        "assert 'validator.records.schema' in sys.modules; sys.exit('alembic' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], cwd=tmp_path).returncode == 0
