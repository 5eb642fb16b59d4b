"""Test the server with raw requests, as a browser or somebody hostile sends them."""

from __future__ import annotations

import contextlib
import hashlib
import socket
import threading
from collections.abc import Iterator
from email.message import Message
from email.parser import BytesParser
from pathlib import Path

import pytest

from validator.errors import InputError, MissingError
from validator.model.codec import RunProgress
from validator.serve import Events, PageServer, Watch

INDEX = b"<!doctype html><title>page</title>"


FILES = {"index.html": INDEX, "data/a b.js": b"detail()"}


@pytest.fixture
def events() -> Events:
    return Events()


@pytest.fixture
def server(events: Events, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PageServer]:
    (tmp_path / "page" / "data").mkdir(parents=True)
    for name in ("outside.txt", "page/index.html", "page/data/secret.js"):
        (tmp_path / name).write_text("secret")
    monkeypatch.chdir(tmp_path / "page")
    with PageServer(FILES, events, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def port(server: PageServer) -> int:
    return int(server.server_address[1])


class Answer:
    def __init__(self, raw: bytes) -> None:
        head, _, self.body = raw.partition(b"\r\n\r\n")
        status, _, fields = head.partition(b"\r\n")
        self.status = int(status.split()[1])
        self.headers: Message = BytesParser().parsebytes(fields + b"\r\n\r\n")


def ask(server: PageServer, path: str = "/", method: str = "GET", **headers: str | None) -> Answer:
    fields = {"Host": f"127.0.0.1:{port(server)}"} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    lines = [f"{name}: {value}\r\n" for name, value in fields.items() if value is not None]
    return Answer(send(server, f"{method} {path} HTTP/1.1\r\n{''.join(lines)}\r\n".encode()))


def send(server: PageServer, raw: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port(server)), timeout=20) as connection:
        connection.sendall(raw)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_the_page_is_served_with_headers_that_protect_it(server: PageServer) -> None:
    for path in ("/", "/index.html", "/?x=1"):
        answer = ask(server, path)
        assert (answer.status, answer.body) == (200, INDEX)
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["X-Frame-Options"] == "DENY"
    assert answer.headers["Content-Security-Policy"] == "frame-ancestors 'none'"
    assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert answer.headers["Access-Control-Allow-Origin"] is None
    assert "Python" not in answer.headers["Server"]


def test_head_has_no_body(server: PageServer) -> None:
    answer = ask(server, method="HEAD")
    assert (answer.status, answer.body, answer.headers["Content-Length"]) == (200, b"", str(len(INDEX)))
    assert ask(server, "/nothing", "HEAD").body == b""
    assert ask(server, "/events", "HEAD").body == b""


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.wasm", "application/wasm"), ("a.js", "text/javascript; charset=utf-8"),
        ("a.mjs", "text/javascript; charset=utf-8"), ("a.json", "application/json"),
        ("a.zip", "application/zip"), ("a.svg", "image/svg+xml"),
        ("feed.xml", "application/atom+xml; charset=utf-8"),
        ("a", "application/octet-stream"),
    ],
)  # fmt: skip
def test_files_have_the_type_that_browsers_ask_for(server: PageServer, name: str, kind: str) -> None:
    server.show({name: b"\0"})
    assert ask(server, f"/{name}").headers["Content-Type"] == kind


@pytest.mark.parametrize(
    "path",
    [
        "/../outside.txt", "/%2e%2e/outside.txt", "/data/../../outside.txt", "/..%2foutside.txt",
        "//outside.txt", "/data/secret.js", "/./index.html", "/data/../index.html", "/data", "/data/",
        "/data//a%20b.js", "/index.html%00", "/index.html/x", "/%ff",
        "/data%5c..%5c..%5coutside.txt", "index.html", "%2Findex.html",
        "/data%2Fa%20b.js", "/data%2fa%20b.js",
        "http://127.0.0.1/index.html", "/" + "a" * 5000, "*",
    ],
)  # fmt: skip
def test_nothing_else_is_served(server: PageServer, path: str) -> None:
    answer = ask(server, path)
    assert answer.status == 404
    assert b"secret" not in answer.body
    assert path.encode() not in answer.body


def test_a_name_with_a_space_is_found(server: PageServer) -> None:
    assert ask(server, "/data/a%20b.js").body == b"detail()"


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:{}", 200), ("LOCALHOST:{}", 200), ("localhost.:{}", 200), ("127.0.0.1:{}", 200),
        ("[::1]:{}", 200), ("evil.example:{}", 421), ("localhost.evil.example:{}", 421), ("127.0.0.1", 200),
        ("127.0.0.1:1", 200), ("127.0.0.1.nip.io:{}", 421), ("user@localhost:{}", 421),
        ("localhost:{}/x", 421), ("localhost:99999", 421), ("[::1", 421), ("", 421), (None, 421),
    ],
)  # fmt: skip
def test_a_name_that_was_pointed_here_is_refused(server: PageServer, host: str | None, status: int) -> None:
    for path in ("/", "/nothing", "/events"):
        if status == 421 or path == "/":
            named = None if host is None else host.format(port(server))
            assert ask(server, path, Host=named).status == status


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "X"])
def test_nothing_can_be_written(server: PageServer, method: str) -> None:
    answer = ask(server, "/index.html", method, Content_Length="0")
    assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")
    assert ask(server).body == INDEX


def test_what_is_not_http_is_refused_and_not_quoted(server: PageServer) -> None:
    for raw in (b"<script>alert(1)</script>\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET /" + b"a" * 70000):
        answer = send(server, raw + b"\r\n\r\n")
        assert b"script" not in answer
        assert answer and INDEX not in answer
    assert ask(server).status == 200


def test_an_unchanged_file_is_not_sent_again(server: PageServer) -> None:
    tag = ask(server).headers["ETag"]
    again = ask(server, If_None_Match=tag)
    assert (again.status, again.body) == (304, b"")
    server.show({"index.html": b"new"})
    assert ask(server, If_None_Match=tag).body == b"new"


def test_a_file_is_hashed_once_and_not_at_each_request(
    server: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[bytes] = []
    real = hashlib.sha256

    def counted(content: bytes) -> object:
        hashed.append(content)
        return real(content)

    monkeypatch.setattr(hashlib, "sha256", counted)
    server.show(FILES)
    tags = {ask(server).headers["ETag"] for _ in range(3)}
    assert len(tags) == 1 and sorted(hashed) == sorted(FILES.values())


def read_until(connection: socket.socket, text: bytes) -> bytes:
    found = b""
    while text not in found:
        part = connection.recv(65536)
        assert part, found
        found += part
    return found


def test_a_page_gets_the_newest_states_and_then_each_change(server: PageServer, events: Events) -> None:
    events.tell("progress", ["old"])
    events.tell("progress", ["new"])
    request = f"GET /events HTTP/1.1\r\nHost: localhost:{port(server)}\r\n\r\n".encode()
    # The second connection is that of a client that comes back: it misses nothing.
    for last in ("one", "two"):
        with socket.create_connection(("127.0.0.1", port(server)), timeout=20) as connection:
            connection.sendall(request)
            begin = read_until(connection, b'data: ["new"]\n\n')
            assert b"Content-Type: text/event-stream" in begin
            assert b"retry: 2000" in begin and b"old" not in begin
            events.tell("page", {"text": f"{last}\n\nevent: forged <b>"})
            assert b"\\n\\nevent: forged" in read_until(connection, f'"{last}'.encode())


def test_streams_end_with_the_server() -> None:
    events = Events()
    with PageServer(FILES, events, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        with socket.create_connection(("127.0.0.1", port(server)), timeout=20) as connection:
            connection.sendall(f"GET /events HTTP/1.1\r\nHost: localhost:{port(server)}\r\n\r\n".encode())
            read_until(connection, b"retry")
            server.shutdown()
            thread.join()
            server.server_close()
            assert b"".join(iter(lambda: connection.recv(65536), b"")) == b""


def test_too_many_listeners_are_refused(server: PageServer) -> None:
    taken = 0
    while server.listeners.acquire(blocking=False):
        taken += 1
    assert ask(server, "/events").status == 503
    assert ask(server).status == 200
    server.listeners.release(taken)


def test_a_request_has_one_deadline_however_often_it_sends_something(
    server: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit for each read would begin again with every byte."""
    monkeypatch.setattr("validator.serve._PATIENCE_S", 0.5)
    with socket.create_connection(("127.0.0.1", port(server))) as slow:
        slow.settimeout(0.05)
        slow.sendall(b"GET / HTTP/1.1\r\n")
        for _ in range(2000):
            with contextlib.suppress(TimeoutError):
                try:
                    slow.sendall(b"X-a: b\r\n")
                    if slow.recv(1) == b"":
                        break
                except (ConnectionResetError, BrokenPipeError):
                    break
        else:
            pytest.fail("the server still waits for the request")


def test_one_client_leaves_connections_for_others(
    server: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("validator.serve._OF_ONE_ADDRESS", 3)
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            held = stack.enter_context(socket.create_connection(("127.0.0.1", port(server))))
            held.sendall(b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            read_until(held, b"\r\n\r\n")
        with socket.create_connection(("127.0.0.1", port(server))) as refused:
            assert refused.recv(1) == b""
        with socket.socket() as other:
            other.bind(("127.0.0.2", 0))
            other.connect(("127.0.0.1", port(server)))
            other.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert b" 200 " in read_until(other, b"\r\n")


def test_a_port_in_use_is_an_error_with_a_way_out(server: PageServer) -> None:
    with pytest.raises(MissingError, match=f"port {port(server)} of 127.0.0.1 is in use") as caught:
        PageServer(FILES, Events(), "127.0.0.1", port(server))
    assert "--port" in (caught.value.hint or "")


@pytest.mark.parametrize("host", ["192.0.2.1", "not a name"])
def test_an_address_of_another_machine_is_an_error(host: str) -> None:
    with pytest.raises(InputError, match="--host"):
        PageServer(FILES, Events(), host, 0)


def test_a_silent_stream_gets_signs_of_life() -> None:
    stream = Events().stream(beat_s=0.01)
    assert next(stream).startswith(b"retry:")
    assert next(stream) == b": still here\n\n"


# Test what open pages are told.


class World:
    """A store with a version, and runs."""

    def __init__(self) -> None:
        self.version = "1"
        self.runs: list[RunProgress] = []
        self.written: list[str] = []
        self.said: list[str] = []
        self.fault = ""
        self.events = Events()
        self.watch = Watch(
            self.events, self.ask, self.written.append, lambda: self.runs, self.said.append, "1"
        )

        self.error: type[Exception] = MissingError

    def ask(self) -> str:
        if self.fault:
            raise self.error(self.fault)
        return self.version

    def told(self) -> str:
        """Return what a page that opens now is told."""
        stream = self.events.stream(beat_s=0.01)
        next(stream)
        return next(stream).decode()


def run(state: str, started: str) -> RunProgress:
    return RunProgress("nightly", started, started, 2, 1, state, "/secret/run", "boot")


def test_new_records_write_a_new_page_and_then_tell_of_it() -> None:
    world = World()
    world.watch.check()
    assert (world.written, "page" in world.told()) == ([], False)
    world.version = "2"
    world.watch.check()
    world.watch.check()
    assert world.written == ["2"]
    assert 'event: page\ndata: "2"' in world.told()


def test_a_fault_is_told_once_and_ends() -> None:
    world = World()
    world.fault = "the store is gone \x1b[31m"
    world.watch.check()
    world.watch.check()
    assert world.said == ["error: the store is gone \\x1b[31m"]
    assert "the store is gone" in world.told()
    world.fault, world.version = "", "2"
    world.watch.check()
    assert 'event: trouble\ndata: ""' in world.told()
    assert world.written == ["2"]


def test_a_mistake_of_this_program_is_told_and_does_not_end_the_watch() -> None:
    world = World()
    world.fault, world.error = "too deep", RecursionError
    world.watch.check()
    assert world.said == ["error: RecursionError: too deep"]
    world.fault, world.version = "", "2"
    world.watch.check()
    assert world.written == ["2"]


def test_pages_see_runs_that_go_on_or_the_newest_that_ended() -> None:
    world = World()
    ended = [run("vanished", "2026-01-03"), run("finished", "2026-01-02")]
    world.runs = ended
    world.watch.check()
    assert "vanished" in world.told() and '"state":"finished"' not in world.told()
    world.runs = [*ended, run("running", "2026-01-01")]
    world.watch.check()
    assert '"state":"running"' in world.told() and "vanished" not in world.told()
    assert "/secret/run" not in world.told()
