"""A store on a server: passwords, rights, and a connection that breaks."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from validator.errors import InputError, MissingError
from validator.records import store as store_module
from validator.records.store import Store

from ..postgresql import Server
from .values import record


@pytest.mark.parametrize(
    "change", ["UPDATE records SET verdict = 'certified'", "DELETE FROM records", "TRUNCATE records"]
)
def test_the_server_rejects_changes_even_by_the_owner(postgresql: Server, database: str, change: str) -> None:
    with Store(postgresql.url(database)) as store:
        store.add(record(1))
        with pytest.raises(psycopg.errors.RaiseException, match="records are never changed"):
            postgresql.sql(change, database)
        assert list(store.all()) == [record(1)]


def test_a_user_needs_only_the_right_to_read_and_add(postgresql: Server, database: str) -> None:
    with Store(postgresql.url(database)):
        pass
    postgresql.sql(f"CREATE USER runner_{database} PASSWORD 'r'")
    runner = postgresql.url(database, user=f"runner_{database}", password="r")
    with pytest.raises(MissingError, match="permission denied for table records_schema") as caught:
        Store(runner)
    assert caught.value.hint and "GRANT SELECT, INSERT ON records TO" in caught.value.hint
    postgresql.sql(f"GRANT SELECT, INSERT ON records TO runner_{database}", database)
    postgresql.sql(f"GRANT SELECT ON records_schema TO runner_{database}", database)
    with Store(runner) as store:
        assert store.add(record(1)) and not store.add(record(1))
        assert list(store.all()) == [record(1)]


def test_the_error_for_missing_permission_says_who_can_create_tables(
    postgresql: Server, database: str
) -> None:
    postgresql.sql(f"CREATE USER guest_{database} PASSWORD 'g'")
    with pytest.raises(MissingError, match="permission denied for schema public") as caught:
        Store(postgresql.url(database, user=f"guest_{database}", password="g"))
    assert caught.value.hint and "owner create the tables with `records import" in caught.value.hint


def test_another_schema_is_rejected(postgresql: Server, database: str) -> None:
    with Store(postgresql.url(database)):
        pass
    postgresql.sql("UPDATE records_schema SET version_num = '9999'", database)
    with pytest.raises(MissingError, match=f"/{database}: another version of this program made its tables"):
        Store(postgresql.url(database))


WRONG = {
    "database": ("/postgres", "/nix", 'database "nix" does not exist', "createdb"),
    "password": ("owner:", "owner:x", "password authentication failed", "PGPASSWORD"),
    "user": ("owner:", "nemo:", 'password authentication failed for user "nemo"', "check the user"),
    "tls": ("/postgres", "/postgres?sslmode=require", "does not support SSL", "parameters"),
    "parameter": ("/postgres", "/postgres?quark=1", 'invalid connection option "quark"', "parameters"),
    "host": ("127.0.0.1", "no.invalid", r"\[Errno -", "can be reached from here"),
}


@pytest.mark.parametrize("what", WRONG)
def test_an_error_about_the_url_does_not_show_the_password(
    postgresql: Server, what: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    old, new, message, hint = WRONG[what]
    with pytest.raises(MissingError, match=message) as caught:
        Store(postgresql.url().replace(old, new, 1))
    assert caught.value.hint and hint in caught.value.hint
    assert str(caught.value).startswith("postgresql+psycopg://")
    told = f"{caught.value} {caught.value.hint} {caplog.text} {capfd.readouterr()}"
    assert postgresql.password not in told and quote(postgresql.password, safe="") not in told


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+psycopg://u:s3cr@t@host/db",
        "postgresql+psycopg://u:x@s3cret:5432/y@host/db",
        "postgresql+psycopg://u:x@host:s3cret/db",
        "postgresql+psycopg://u:x@host/s3cr@et",
    ],
)
def test_a_password_that_was_not_encoded_is_not_shown(url: str) -> None:
    with pytest.raises(InputError, match="not a database URL") as caught:
        Store(url)
    assert "s3cr" not in f"{caught.value}{caught.value.hint}" and "percent-encoded" in str(caught.value.hint)
    # What a traceback would show of it.
    assert caught.value.__suppress_context__ or not caught.value.__context__


def test_a_password_in_the_query_works_and_is_not_shown(postgresql: Server, database: str) -> None:
    secret = quote(postgresql.password, safe="")
    plain = postgresql.url(database).replace(f":{secret}@", "@") + f"?password={secret}"
    with Store(plain) as store:
        assert store.add(record(1))
        shown = f"{store._database} {store._database.engine} {store._database.engine.url} {store.location}"
    assert "word" not in shown and database in shown


def test_the_password_may_come_from_the_environment(
    postgresql: Server, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgresql.url(database).replace(f":{quote(postgresql.password, safe='')}@", "@")
    with pytest.raises(MissingError, match="no password supplied"):
        Store(url)
    monkeypatch.setenv("PGPASSWORD", postgresql.password)
    with Store(url.replace("postgresql+psycopg", "postgres")) as store:
        assert store.add(record(1))


@contextlib.contextmanager
def held(postgresql: Server, database: str, identifier: str) -> Iterator[None]:
    """Make every process that adds the record with this id wait in the middle of its transaction."""
    with psycopg.connect(
        host="127.0.0.1",
        port=postgresql.port,
        user=postgresql.user,
        password=postgresql.password,
        dbname=database,
    ) as connection:
        connection.execute(
            "INSERT INTO records VALUES (%s, 'x', 'x', 'broken', 'x', 'x', 'x')", [identifier], prepare=False
        )
        yield
        connection.rollback()


def wait_for_a_waiter(postgresql: Server, database: str, query: str = "INSERT INTO records%") -> int:
    """Return the id of a server process that waits for a lock, by default while it adds a record."""
    for _ in range(500):
        found = postgresql.sql(
            "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            f" AND datname = '{database}' AND query LIKE '{query}'"
        )
        if found:
            return int(found[0][0])
        time.sleep(0.02)
    raise AssertionError("nobody waits")


def test_two_processes_do_not_create_the_tables_at_once(postgresql: Server, database: str) -> None:
    making = threading.Thread(target=lambda: Store(postgresql.url(database)).close())
    with psycopg.connect(
        host="127.0.0.1",
        port=postgresql.port,
        user=postgresql.user,
        password=postgresql.password,
        dbname=database,
    ) as connection:
        connection.execute(f"SELECT pg_advisory_xact_lock({store_module.LOCK})".encode())
        making.start()
        wait_for_a_waiter(postgresql, database, "SELECT pg_advisory_xact_lock%")
    making.join()


class Adding(threading.Thread):
    """Add records, and keep the outcome."""

    def __init__(self, store: Store, count: int) -> None:
        super().__init__()
        self.store, self.count = store, count
        self.outcome: Any = None

    def run(self) -> None:
        try:
            self.outcome = self.store.add_all(record(number) for number in range(self.count))
        except MissingError as error:
            self.outcome = error


#: The record that is written last of many.
LAST = max((record(number) for number in range(100)), key=lambda each: each.id).id


def test_a_connection_that_is_cut_in_the_middle_is_restored(postgresql: Server, database: str) -> None:
    with Store(postgresql.url(database)) as store:
        adding = Adding(store, 100)
        with held(postgresql, database, LAST):
            adding.start()
            postgresql.sql(f"SELECT pg_terminate_backend({wait_for_a_waiter(postgresql, database)})")
        adding.join()
        assert adding.outcome == 100
        assert len(list(store.all())) == 100


def test_the_store_waits_for_a_server_that_restarts(postgresql: Server, database: str) -> None:
    with Store(postgresql.url(database)) as store:
        store.add(record(1000))
        postgresql.stop()
        adding = Adding(store, 10)
        adding.start()
        time.sleep(1)
        postgresql.start()
        adding.join()
        assert adding.outcome == 10
        assert len(list(store.all())) == 11


def test_a_server_that_stays_away_is_reported_and_no_record_is_partly_written(
    postgresql: Server, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "_PAUSES_S", (0.1,))
    with Store(postgresql.url(database)) as store:
        adding = Adding(store, 100)
        with contextlib.suppress(psycopg.OperationalError), held(postgresql, database, LAST):
            adding.start()
            wait_for_a_waiter(postgresql, database)
            postgresql.stop("immediate")
            adding.join()
        try:
            assert isinstance(adding.outcome, MissingError)
            assert "no incomplete record was written" in str(adding.outcome.hint)
            with pytest.raises(MissingError, match="Connection refused"):
                list(store.all())
        finally:
            postgresql.start()
        assert list(store.all()) == []
        assert store.add_all(record(number) for number in range(100)) == 100
