"""A PostgreSQL server of the tests' own, in a temporary directory and on a free loopback port.

It runs as an unprivileged user. Skips, with the reason, where PostgreSQL is not installed.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

#: Where Debian keeps the server's programs, one directory a release; they are on no PATH.
_DEBIAN = Path("/usr/lib/postgresql")
_START_S = "60"


@dataclass(frozen=True)
class Server:
    """A running server. `password` is its superuser's; it asks for it on every connection."""

    bin: Path
    data: Path
    port: int
    password: str
    user: str = "owner"

    def url(self, database: str = "postgres", *, user: str | None = None, password: str | None = None) -> str:
        login = f"{user or self.user}:{quote(password or self.password, safe='')}"
        return f"postgresql+psycopg://{login}@127.0.0.1:{self.port}/{database}"

    def sql(self, statement: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run one statement as the superuser, outside what is tested."""
        import psycopg

        with psycopg.connect(
            host="127.0.0.1",
            port=self.port,
            user=self.user,
            password=self.password,
            dbname=database,
            autocommit=True,
        ) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def start(self) -> None:
        log = self.data.parent / "log"
        self._control("start", "--wait", f"--timeout={_START_S}", f"--log={log}")

    def stop(self, mode: str = "fast") -> None:
        """mode: `fast` ends every connection, `immediate` is what a power cut would be."""
        self._control("stop", f"--mode={mode}")

    def _control(self, *arguments: str) -> None:
        _as_nobody([self.bin / "pg_ctl", f"--pgdata={self.data}", *arguments])


@contextlib.contextmanager
def running_server() -> Iterator[Server]:
    """Make a server, start it, and remove it in the end."""
    bin_ = _programs()
    # Not in pytest's directory: only its owner may enter that one.
    place = Path(tempfile.mkdtemp(prefix="postgresql-"))
    try:
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            os.chown(place, nobody.pw_uid, nobody.pw_gid)
        server = Server(bin_, place / "data", _free_port(), password="p%/:s word")
        _initialize(server, place)
        server.start()
        try:
            yield server
        finally:
            server.stop("immediate")
    finally:
        shutil.rmtree(place)


def _initialize(server: Server, place: Path) -> None:
    password = place / "password"
    password.write_text(server.password, encoding="utf-8")
    password.chmod(0o644)
    _as_nobody(
        [
            server.bin / "initdb",
            f"--pgdata={server.data}",
            f"--username={server.user}",
            f"--pwfile={password}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            # A collation that is not the order of code points, as most servers have.
            "--locale=C.UTF-8",
            "--locale-provider=icu",
            "--icu-locale=en-US",
            "--no-sync",
        ]
    )
    with open(server.data / "postgresql.conf", "a", encoding="utf-8") as stream:
        stream.write(
            f"listen_addresses = '127.0.0.1'\nport = {server.port}\n"
            f"unix_socket_directories = '{place}'\nfsync = off\n"
        )


def _as_nobody(command: list[Any]) -> None:
    # The server refuses to run as root.
    identity: dict[str, Any] = {}
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        identity = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
    # A daemon would keep a captured pipe open for ever; its own output goes to its log.
    subprocess.run(
        [str(part) for part in command],
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        cwd="/",
        **identity,
    )


def _programs() -> Path:
    if found := shutil.which("postgres"):
        return Path(found).resolve().parent
    for release in sorted(_DEBIAN.glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]), reverse=True):
        return release.parent
    pytest.skip("PostgreSQL is not installed here (Debian: apt install postgresql)")


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
