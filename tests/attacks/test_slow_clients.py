"""Clients that hold connections of `serve`: by sending slowly, by not reading, and by being many.

A request has one deadline, which no further byte extends, and one address can't have all connections.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from validator import serve as serving
from validator.serve import Events, PageServer

#: Seconds after which a test gives up; a connection that stays open is a failure.
GIVE_UP_S = 20
#: Bytes of a file that no socket buffers.
LARGE = 64 << 20


@pytest.fixture
def server() -> Iterator[PageServer]:
    files = {"index.html": b"page", "large.zip": b"x" * LARGE}
    with PageServer(files, Events(), "127.0.0.1", 0) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.02,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def connect(server: PageServer, source: str = "127.0.0.1") -> socket.socket:
    address = ("127.0.0.1", int(server.server_address[1]))
    return socket.create_connection(address, timeout=GIVE_UP_S, source_address=(source, 0))


def answer(connection: socket.socket) -> bytes:
    """Return what a request for the page gets; nothing if the server closes the connection."""
    with contextlib.suppress(ConnectionError):
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return connection.recv(1 << 16)
    return b""


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (b"", b"G"),
        (b"GET /", b"a"),
        (b"GET / HTTP/1.1\r\n", b"X-a: b\r\n"),
        (b"GET / HTTP/1.1\r\nX-a: ", b"b"),
        (b"POST / HTTP/1.1\r\nContent-Length: 999\r\n", b"a"),
    ],
    ids=["method", "path", "headers", "one header", "request with a body"],
)
def test_no_byte_extends_the_deadline(
    server: PageServer, monkeypatch: pytest.MonkeyPatch, first: bytes, then: bytes
) -> None:
    monkeypatch.setattr(serving, "_PATIENCE_S", 0.3)
    with connect(server) as slow:
        slow.sendall(first)
        closed = threading.Event()

        def drip() -> None:
            while not closed.wait(0.05):
                with contextlib.suppress(OSError):
                    slow.sendall(then)

        sending = threading.Thread(target=drip)
        sending.start()
        try:
            # A connection that is still open raises TimeoutError here.
            with contextlib.suppress(ConnectionError):
                while slow.recv(1 << 16):
                    pass
        finally:
            closed.set()
            sending.join()


def test_a_client_that_does_not_read_loses_its_connection(
    server: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "_PATIENCE_S", 0.3)
    monkeypatch.setattr(serving, "_SLOWEST", 1 << 40)
    with connect(server) as idle:
        idle.sendall(b"GET /large.zip HTTP/1.1\r\nHost: localhost\r\n\r\n")
        # It gets a connection and loses it, although the file was not sent.
        received = len(idle.recv(1))
        while server._connections:
            threading.Event().wait(0.02)
        with contextlib.suppress(ConnectionError):
            while part := idle.recv(1 << 20):
                received += len(part)
        assert 0 < received < LARGE


def test_one_address_can_not_have_all_connections(server: PageServer) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(serving._CONNECTIONS + 12):
            stack.enter_context(connect(server))
        assert answer(stack.enter_context(connect(server))) == b""
        assert answer(stack.enter_context(connect(server, "127.0.0.2"))).startswith(b"HTTP/1.0 200")
    # The connections that ended count no longer.
    while server._connections:
        threading.Event().wait(0.02)
    with connect(server) as later:
        assert answer(later).startswith(b"HTTP/1.0 200")
