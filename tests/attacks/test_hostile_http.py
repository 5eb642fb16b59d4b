"""Hostile servers of any kind: answers without an end, bombs, odd headers and odd addresses."""

from __future__ import annotations

import contextlib
import functools
import gzip
import hashlib
import itertools
import json
import resource
import socket
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from validator.errors import MissingError, ValidatorError
from validator.locks import index as index_module
from validator.locks.index import IndexFile, PackageIndex
from validator.model.spec import Wheel
from validator.registry import session as session_module
from validator.registry.blobs import Blobs
from validator.registry.client import INDEX_TYPE, Registry
from validator.registry.names import Repository
from validator.supply.news import _python
from validator.system import http
from validator.system.http import Http, HttpFailure, Kind
from validator.system.package_sources import PackageSources
from validator.versions import InvalidWheelName, wheel_name

from ..commands import ROOT

JSON, HTML = "application/vnd.pypi.simple.v1+json", "text/html"
NAME = "ours-1.0-py3-none-any.whl"
DIGEST = "sha256:" + "1" * 64
MIB = 1 << 20
#: What an endless answer sends at most, and what a child process that reads one may use.
_SENT, _MEMORY = 256 * MIB, 900 * MIB

Headers = list[tuple[str, str]]


@dataclass
class Server:
    """A running server. answer: status, headers and body for a request; an endless body is an iterator."""

    port: int
    answer: Callable[[BaseHTTPRequestHandler], tuple[int, Headers, bytes | Iterator[bytes]]]
    asked: list[tuple[str, str, str | None]] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


@contextlib.contextmanager
def running() -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            with contextlib.suppress(ValueError):
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
            made.asked.append((self.command, self.path, self.headers.get("Authorization")))
            status, headers, body = made.answer(self)
            self.send_response(status)
            for name, value in headers:
                self._headers_buffer.append(f"{name}: {value}\r\n".encode("latin-1"))  # type: ignore[attr-defined]
            if isinstance(body, bytes):
                if not any(name == "Content-Length" for name, _ in headers):
                    self.send_header("Content-Length", str(len(body)))
            else:
                self.send_header("Transfer-Encoding", "chunked")
            self.close_connection = True
            self.end_headers()
            if self.command == "HEAD":
                return
            with contextlib.suppress(OSError):
                for part in [body] if isinstance(body, bytes) else body:
                    chunked = b"%x\r\n%s\r\n" % (len(part), part)
                    self.wfile.write(part if isinstance(body, bytes) else chunked)

        do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listening.daemon_threads = True
    made = Server(listening.server_address[1], lambda _: (404, [], b""))
    threading.Thread(target=listening.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield made
    finally:
        listening.shutdown()
        listening.server_close()


@pytest.fixture(scope="module")
def shared() -> Iterator[Server]:
    with running() as made:
        yield made


@pytest.fixture
def server(shared: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """Return a server that nobody has asked yet. A test says how it answers."""
    shared.asked.clear()
    monkeypatch.setattr(session_module, "PAUSES", (0.0, 0.0))
    monkeypatch.setattr(session_module, "MOST_PAGES", 5)
    monkeypatch.setattr(index_module, "_PAUSES", (0.0, 0.0))
    return shared


def sources(server: Server, login: str = "") -> PackageSources:
    return PackageSources(index_url=f"http://{login}{server.address}/simple")


def registry(server: Server) -> Registry:
    return Registry(Repository(server.address, "team/tf"))


def writing(content: bytes) -> Callable[[Callable[[bytes], object]], str]:
    """Return a function that writes a blob and claims that its digest is `DIGEST`."""

    def produce(write: Callable[[bytes], object]) -> str:
        write(content)
        return DIGEST

    return produce


def page(**changes: object) -> bytes:
    file = {"filename": NAME, "url": f"/files/{NAME}", "hashes": {"sha256": "1" * 64}, **changes}
    return json.dumps({"files": [file]}).encode()


def endless(part: bytes = bytes(MIB)) -> Iterator[bytes]:
    for _ in range(_SENT // len(part)):
        yield part


# Memory: whatever is sent, a process that may use little ends with an error.

READ_INDEX = """
from validator.locks.index import PackageIndex
from validator.system.package_sources import PackageSources
PackageIndex(PackageSources(index_url=sys.argv[1])).wheels("ours")
"""
READ_MANIFEST = """
from validator.registry.client import Registry
from validator.registry.names import Repository
Registry(Repository.parse(sys.argv[1].removeprefix("http://") + "/b")).manifest("sha256:" + "1" * 64)
"""
ENDING = """
import sys
from validator.errors import ValidatorError
try:
    exec(sys.argv[2])
except ValidatorError as error:
    print(error)
    sys.exit(error.exit_code)
"""


@functools.cache
def bomb() -> bytes:
    return gzip.compress(bytes(64 * MIB), 9)


MANY = 3_000_000


@pytest.mark.service
@pytest.mark.parametrize(
    ("code", "status", "headers", "body"),
    [
        (READ_INDEX, 200, [("Content-Type", JSON)], endless),
        (READ_INDEX, 200, [("Content-Type", JSON), ("Content-Encoding", "gzip")], lambda: endless(bomb())),
        (
            READ_INDEX,
            200,
            [("Content-Type", JSON), ("Content-Encoding", "deflate")],
            lambda: zlib.compress(bytes(512 * MIB), 9),
        ),
        (
            READ_INDEX,
            200,
            [("Content-Type", JSON), ("Content-Encoding", "gzip, gzip")],
            lambda: gzip.compress(gzip.compress(bytes(512 * MIB), 9), 9),
        ),
        (READ_INDEX, 200, [("Content-Type", HTML)], lambda: b"<a href=x>" * MANY),
        (READ_INDEX, 200, [("Content-Type", HTML)], lambda: b"<a " + b"a=b " * MANY + b">"),
        (READ_INDEX, 200, [("Content-Type", JSON)], lambda: b'{"files":[' + b"[" * 200_000),
        (
            READ_INDEX,
            200,
            [("Content-Type", JSON)],
            lambda: b'{"files":[' + b",".join([b'{"filename":"","url":""}'] * 1_300_000) + b"]}",
        ),
        (
            READ_INDEX,
            200,
            [("Content-Type", JSON)],
            lambda: b'{"files":[{"filename":"","url":"","hashes":{' + b'"a":"b",' * MANY + b'"a":"b"}}]}',
        ),
        (READ_INDEX, 404, [], endless),
        (READ_INDEX, 403, [], endless),
        (READ_MANIFEST, 200, [], endless),
        (READ_MANIFEST, 403, [], endless),
        (READ_MANIFEST, 200, [("Content-Encoding", "gzip")], lambda: endless(bomb())),
        (READ_MANIFEST, 403, [("Content-Encoding", "gzip")], lambda: endless(bomb())),
    ],
)
def test_no_answer_fills_the_memory(
    server: Server, code: str, status: int, headers: Headers, body: Callable[[], bytes | Iterator[bytes]]
) -> None:
    server.answer = lambda _: (status, headers, body())

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))

    done = subprocess.run(
        [sys.executable, "-c", ENDING, f"http://{server.address}", code],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        preexec_fn=limit,
    )
    assert done.returncode in (1, 2, 3) and "Traceback" not in done.stderr, done.stderr[-2000:]


# Time: one deadline for the whole of an answer, headers included.


def dripping(*parts: bytes) -> Iterator[bytes]:
    """Send the parts, and then a byte now and then until the client is gone."""
    yield from parts
    while True:
        time.sleep(0.02)
        yield b" "


def test_a_body_that_drips_ends_at_the_deadline(server: Server) -> None:
    server.answer = lambda _: (200, [], dripping(b"{"))
    answer = Http(None).send(
        "GET", f"http://{server.address}", headers={}, silence_s=60, deadline=time.monotonic() + 0.5
    )
    with pytest.raises(HttpFailure) as failed:
        http.content(answer, MIB)
    assert failed.value.kind is Kind.SILENT


def test_headers_that_drip_end_at_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def drip() -> None:
            with contextlib.suppress(OSError), listening.accept()[0] as connection:
                connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
                for part in dripping():
                    connection.sendall(part)

        threading.Thread(target=drip, daemon=True).start()
        with pytest.raises(HttpFailure) as failed:
            Http(None).send(
                "GET",
                f"http://127.0.0.1:{listening.getsockname()[1]}",
                headers={},
                silence_s=60,
                deadline=time.monotonic() + 0.5,
            )
    assert failed.value.kind is Kind.SILENT


def test_nothing_is_sent_after_the_deadline(server: Server) -> None:
    with pytest.raises(HttpFailure):
        Http(None).send("GET", f"http://{server.address}", headers={}, deadline=time.monotonic() - 1)
    assert server.asked == []


#: Begins a record of TLS, which has 16 kB.
_TLS = b"\x16\x03\x03\x40\x00"


def silent(connection: socket.socket) -> None:
    while connection.recv(4096):
        pass


def drips(connection: socket.socket, first: bytes) -> None:
    connection.sendall(first)
    for part in dripping(b"\x02"):
        connection.sendall(part)


def proxy_that(then: Callable[[socket.socket], None]) -> Callable[[socket.socket], None]:
    def answer(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        # The client begins.
        connection.recv(4096)
        then(connection)

    return answer


SLOW_GREETINGS: dict[str, tuple[bool, Callable[[socket.socket], None]]] = {
    "no handshake": (False, silent),
    "a handshake that drips": (False, lambda connection: drips(connection, _TLS)),
    "a proxy without an answer": (True, silent),
    "a proxy whose answer drips": (True, lambda connection: drips(connection, b"HTTP/1.1 200 OK\r\nX: ")),
    "no handshake behind a proxy": (True, proxy_that(silent)),
    "a handshake that drips behind a proxy": (True, proxy_that(lambda one: drips(one, _TLS))),
}


@pytest.mark.slow
@pytest.mark.parametrize(("proxied", "answer"), SLOW_GREETINGS.values(), ids=SLOW_GREETINGS.keys())
@pytest.mark.parametrize("deadline", [0.5, None])
def test_a_server_that_never_finishes_its_greeting_is_given_up(
    proxied: bool,
    answer: Callable[[socket.socket], None],
    deadline: float | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "_REACH_S", 60.0 if deadline else 0.5)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with contextlib.suppress(OSError), listening.accept()[0] as connection:
                answer(connection)

        threading.Thread(target=serve, daemon=True).start()
        here = f"127.0.0.1:{listening.getsockname()[1]}"
        monkeypatch.setenv("no_proxy", "")
        if proxied:
            monkeypatch.setenv("https_proxy", f"http://{here}")
        with pytest.raises(HttpFailure) as failed:
            Http(None).send(
                "GET",
                "https://example.invalid/" if proxied else f"https://{here}/",
                headers={},
                silence_s=60,
                deadline=deadline and time.monotonic() + deadline,
            )
    assert failed.value.kind is Kind.SILENT


@pytest.mark.slow
def test_a_resolver_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()

    def resolve(*_: object, **__: object) -> list[object]:
        answered.wait(60)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    try:
        with pytest.raises(HttpFailure) as failed:
            Http(None).send("GET", "http://x.example/", headers={}, deadline=time.monotonic() + 0.3)
        assert failed.value.kind is Kind.SILENT
    finally:
        answered.set()


def test_a_name_with_many_addresses_is_not_tried_at_each(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    kind = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
    tried: list[str] = []

    def resolve(host: str, *_: object, **__: object) -> list[tuple[object, ...]]:
        if host == "many.example":
            return [(*kind, (f"127.0.0.{number}", port)) for number in range(1, 200)]
        tried.append(host)
        return [(*kind, (host, port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with pytest.raises(HttpFailure) as failed:
        Http(None).send("GET", f"http://many.example:{port}/", headers={})
    assert failed.value.kind is Kind.LOST and tried == [f"127.0.0.{number}" for number in range(1, 9)]


def test_a_name_without_an_address_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with pytest.raises(HttpFailure) as failed:
        Http(None).send("GET", "https://x.example/", headers={})
    assert failed.value.kind is Kind.UNKNOWN_HOST


# Headers and addresses.

ODD_NUMBERS = [
    "",
    "²",
    "-1",
    "+1",
    "1.5",
    "1e9",
    "0x10",
    "9" * 5000,
    "1_000",
    "٣",
    " ",
    "1,1",
    "nan",
    "\xff",
    "\x1c5",
]


@pytest.mark.parametrize("text", ODD_NUMBERS)
def test_an_odd_number_in_a_header_is_no_number(text: str) -> None:
    assert http.number(text) is None
    odd = SimpleNamespace(headers={"Range": f"0-{text}", "Content-Range": f"bytes {text}-{text}/*"})
    assert http.received(odd, 7) == 7  # type: ignore[arg-type]
    assert http.first_byte(odd) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *((text, 0.0) for text in ODD_NUMBERS if text != "9" * 5000),
        ("9" * 5000, float("inf")),
        ("5", 5.0),
        ("Wed, 21 Oct 2015 07:28:00 -0000", 0.0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
        ("Fri, 99 Xyz 9999 99:99:99 +9999", 0.0),
        ("Fri, 31 Dec 0000 23:59:59 -2359", 0.0),
        ("Mon,", 0.0),
        (", , ,", 0.0),
        ("1 2 3 4:5:6:7", 0.0),
    ],
)
def test_an_odd_pause_is_none(text: str, seconds: float) -> None:
    assert http.pause_s(text) == seconds


ODD_ADDRESSES = [
    "file:///etc/passwd",
    "ftp://x/y",
    "javascript:alert(1)",
    "data:,x",
    "gopher://x",
    "http://",
    "http:///x",
    "http://[::1",
    "http://[::1]]/",
    "http://[1::2::3]/",
    "http://[::1]:x/",
    "http://[v1.x]/",
    "http://x:99999/",
    "http://x:0/",
    "http://x:-1/",
    "http://x:²/",
    "http://x:1:2/",
    "http://user@x/",
    "http://user:pass@x/",
    "http://@x/",
    "http://x y/",
    "http://x/a b",
    "http://x/\x00",
    "http://x\r\nHost: y/",
    "http://x/\x7f",
    f"http://{'a' * 64}.x/",
    f"http://{'a.' * 200}x/",
    "http://a..b/",
    "http://.x/",
    "http://x/" + "a" * 20_000,
    "http://℀.x/",
    "//[/x",
]


@pytest.mark.parametrize("address", ODD_ADDRESSES)
def test_an_odd_address_is_refused_and_not_quoted(address: str) -> None:
    with pytest.raises(HttpFailure, match="it names an address that") as failed:
        http.joined("https://registry.example/v2/", address)
    assert failed.value.kind is Kind.ADDRESS and "pass" not in str(failed.value)


@pytest.mark.parametrize(
    "address",
    [
        "http://[::1]:5000/x",
        "https://x.example/a?b=c%20d",
        "/v2/x",
        "?last=1",
        "",
        "//other.example/x",
        "http://bücher.example/",
    ],
)
def test_a_usual_address_is_accepted(address: str) -> None:
    assert http.joined("https://registry.example/v2/", address).startswith("http")


def reading(server: Server, status: int, *headers: tuple[str, str], body: bytes = b"{}") -> None:
    server.answer = lambda _: (status, list(headers), body)


@pytest.mark.parametrize(
    "address", [*(one for one in ODD_ADDRESSES if one.isascii()), "\xff\xfe", "/" * 3000]
)
@pytest.mark.parametrize("where", ["location", "link", "realm", "upload"])
def test_an_odd_address_of_a_registry_is_an_error(server: Server, where: str, address: str) -> None:
    address = address.replace("\r\n", "\t")
    if where == "location":
        reading(server, 307, ("Location", address))
    elif where == "link":
        reading(server, 200, ("Link", f'<{address}>; rel="next"'), body=b'{"tags": []}')
    elif where == "realm":
        reading(server, 401, ("WWW-Authenticate", f'Bearer realm="{address}",service="²"'))
    else:
        reading(server, 202, ("Location", address))
    if where == "link":
        # What is not even a link is not followed.
        with contextlib.suppress(ValidatorError):
            registry(server).tags()
    elif where == "upload":
        with pytest.raises(ValidatorError):
            Blobs.to_write(registry(server).repository).send(writing(b"x"))
    else:
        with pytest.raises(ValidatorError):
            registry(server).manifest(DIGEST)


ODD_HEADERS = (
    "Retry-After", "Content-Length", "Range", "OCI-Chunk-Min-Length", "Content-Range",
    "Docker-Content-Digest", "Content-Type", "Link", "Location",
)  # fmt: skip
ODD_VALUES = (*(one for one in ODD_NUMBERS if one != "٣"), "9" * 18, "0-0", "0-²", "bytes 9-1/x")


@pytest.mark.slow
def test_an_odd_header_of_a_registry_is_an_error(server: Server) -> None:
    actions: tuple[Callable[[], object], ...] = (
        lambda: registry(server).manifest(DIGEST),
        lambda: registry(server).digest_of("latest"),
        lambda: Blobs.to_write(registry(server).repository).has(DIGEST, 2),
        lambda: list(Blobs.to_read(registry(server).repository).read(DIGEST, 2)),
        lambda: Blobs.to_write(registry(server).repository).send(writing(b"xy")),
    )
    raised = []
    for name, text, status in itertools.product(ODD_HEADERS, ODD_VALUES, (200, 202)):
        reading(server, status, (name, text))
        for number, act in enumerate(actions):
            try:
                act()
            except ValidatorError:
                pass
            except Exception as error:  # the other headers are sent all the same
                raised.append((name, text, status, number, error))
    assert raised == []


@pytest.mark.parametrize("range_", ["0-0", "0-5", "0-99999999", "5-9", "0-²", ""])
def test_a_registry_that_takes_nothing_is_given_up(server: Server, range_: str) -> None:
    """Protects a push: a registry that says yes and keeps nothing would get the same chunk forever."""

    def answer(request: BaseHTTPRequestHandler) -> tuple[int, Headers, bytes]:
        place = [("Location", "/v2/team/tf/blobs/uploads/1"), ("Range", range_)]
        status = {"POST": 202, "PATCH": 202, "GET": 204, "PUT": 400}.get(request.command, 404)
        return status, place, b""

    server.answer = answer
    destination = Blobs.to_write(registry(server).repository)
    destination.session.accepts_streams = False
    with pytest.raises(ValidatorError):
        destination.send(writing(bytes(100)))
    assert len(server.asked) < 60


def test_a_registry_that_wants_huge_chunks_is_an_error(server: Server) -> None:
    """Protects the memory: a chunk is kept in it."""
    reading(server, 202, ("Location", "/x"), ("OCI-Chunk-Min-Length", str(1 << 40)))
    with pytest.raises(ValidatorError, match="chunks of at least"):
        Blobs.to_write(registry(server).repository).send(writing(b"x"))


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"[]",
        b"{}",
        b'{"token": ""}',
        b'{"token": 5}',
        b'{"token": "a\\nb"}',
        b'{"token": "\\ud800"}',
        b'{"token": "\xc2\xb2"}',
        b"[" * 200_000,
        b'{"token": "x", "expires_in": "60"}',
        b"\xff",
        b'{"token": null}',
        b'{"token": "x", "expires_in": 1' + b"0" * 5000 + b"}",
    ],
)
def test_an_odd_token_is_an_error(server: Server, answer: bytes) -> None:
    def asked(request: BaseHTTPRequestHandler) -> tuple[int, Headers, bytes]:
        if request.path.startswith("/token"):
            return 200, [], answer
        return 401, [("WWW-Authenticate", f'Bearer realm="http://{server.address}/token"')], b""

    server.answer = asked
    with pytest.raises(MissingError, match="does not answer with a token"):
        registry(server).manifest(DIGEST)


def test_a_list_of_artifacts_without_types_is_not_read_one_by_one(server: Server) -> None:
    """Protects whoever verifies: each such entry is a request."""
    entries = [{"digest": f"sha256:{number:064x}", "size": 2} for number in range(5000)]
    listed = json.dumps({"schemaVersion": 2, "manifests": entries}).encode()
    reading(server, 200, ("Content-Type", INDEX_TYPE), body=listed)
    with pytest.raises(ValidatorError, match="5,000 entries without a type"):
        registry(server).attached(DIGEST, "x")
    assert len(server.asked) == 1


def test_a_list_without_a_last_page_is_given_up(server: Server) -> None:
    reading(server, 200, ("Link", '</v2/team/tf/tags/list?last=x>; rel="next"'), body=b'{"tags": ["x"]}')
    with pytest.raises(ValidatorError, match="more than 5 pages"):
        registry(server).tags()
    assert len(server.asked) == 5


# Logins.


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_the_login_of_an_index_is_not_sent_to_another_server(server: Server, status: int) -> None:
    with running() as other:
        other.answer = lambda _: (200, [("Content-Type", JSON)], page())
        server.answer = lambda _: (status, [("Location", f"http://{other.address}/x/")], b"")
        PackageIndex(sources(server, "me:secret@")).wheels("ours")
        assert server.asked == [("GET", "/simple/ours/", http.basic("me:secret"))]
        assert other.asked == [("GET", "/x/", None)]


def test_the_login_of_an_index_is_sent_for_its_files_and_for_no_others(
    server: Server, tmp_path: Path
) -> None:
    with running() as other:
        for listed, asked in ((f"/files/{NAME}", server), (f"http://{other.address}/{NAME}", other)):
            server.answer = other.answer = lambda request, listed=listed: (
                (200, [("Content-Type", JSON)], page(url=listed))
                if "/simple/" in request.path
                else (200, [], b"")
            )  # type: ignore[misc]
            index = PackageIndex(sources(server, "me:secret@"))
            (file,) = index.wheels("ours")
            assert "secret" not in file.url
            with pytest.raises(MissingError):
                index.download(file, tmp_path / NAME)
            assert asked.asked[-1][2] == (http.basic("me:secret") if asked is server else None)


def test_an_index_that_redirects_from_tls_to_plain_http_is_not_followed() -> None:
    redirected = _Closable(302, "http://x.example/")
    with pytest.raises(HttpFailure, match="without TLS"):
        http.redirection(redirected, "GET", "https://x.example/")  # type: ignore[arg-type]


class _Closable:
    def __init__(self, status: int, location: str) -> None:
        self.status_code, self.headers = status, {"Location": location}

    def __enter__(self) -> _Closable:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""


# Index pages and downloads.


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (JSON, page(size=-5)),
        (JSON, page(size="²")),
        (JSON, page(size=1 << 70)),
        (JSON, page(size=1.5)),
        (JSON, page().replace(b'"url"', b'"size": 1' + b"0" * 5000 + b', "url"')),
        (JSON, page().replace(b'"url"', b'"x": 1' + b"0" * 5000 + b', "url"')[:-3]),
        *((JSON, page(url=address)) for address in ODD_ADDRESSES if address not in ("http://", "http:///x")),
        (JSON, page(filename="\ud800.whl")),
        (JSON, page(url="\ud800")),
        (JSON, page(filename=None)),
        (JSON, page(filename="ours-[[-py3-none-any.whl")),
        (JSON, page(filename="ours-²-py3-none-any.whl")),
        (JSON, page(filename="-1.0-py3-none-any.whl")),
        (JSON, page(filename=f"ours-{'1.' * 5000}0-py3-none-any.whl")),
        (JSON, page(filename="ours-1.0-py3-none-../../../x.whl")),
        (JSON, page(filename="../ours-1.0-py3-none-any.whl")),
        (JSON, page(hashes="x")),
        (JSON, b"[]"),
        (JSON, b"\xff"),
        (JSON, b'{"files": [[]]}'),
        (JSON, b"[" * 200_000),
        (HTML, b'<a href="http://[::1/ours-1.0-py3-none-any.whl">x</a>'),
        (HTML, b"<![x"),
        (HTML, b"<!" * 1000),
        (HTML, b'<a href="' + b"\xff" * 99 + b'">'),
        ("\xff", b""),
        ("", b""),
        ("text/html; charset=\xff", b""),
    ],
)
def test_an_odd_page_is_an_error(server: Server, kind: str, body: bytes) -> None:
    reading(server, 200, ("Content-Type", kind), body=body)
    with pytest.raises(MissingError):
        PackageIndex(sources(server)).wheels("ours")


@pytest.mark.parametrize("address", ["http://[::1", "http://x:99999/", "http://x y/", "http:///simple"])
def test_an_odd_address_of_an_index_is_an_error_that_hides_it(address: str) -> None:
    with pytest.raises(MissingError, match="is not an HTTP address"):
        PackageIndex(PackageSources(index_url=address)).wheels("ours")


@pytest.mark.parametrize(
    "name",
    [
        "ours-1.0-" + ".".join(f"py{n}" for n in range(3000)) + "-none-any.whl",
        "ours-1.0-" + "-".join(".".join("abcdefghi") for _ in range(3)) + ".whl",
        "ours-1.0-py3-none-a/b.whl",
        "ours-1.0-py3-none-\x00.whl",
        "ours-²-py3-none-any.whl",
        "ours-[[-py3-none-any.whl",
        "-1.0-py3-none-any.whl",
        "ours-1.0-py3-none-.whl",
        ".whl",
        "",
        "x" * 16_000,
        "ours-1.0-²-py3-none-any.whl",
        "\ud800-1.0-py3-none-any.whl",
        "ours-" + "9" * 5000 + "-py3-none-any.whl",
    ],
)
def test_an_odd_name_of_a_wheel_is_refused(name: str) -> None:
    with pytest.raises(InvalidWheelName) as refused:
        wheel_name(name)
    assert len(str(refused.value)) < 600


def test_the_tags_of_a_usual_name_are_read() -> None:
    name, version, tags = wheel_name(
        "Ours_x-1.0+cu12-1-cp39.cp310-abi3-manylinux2014_x86_64.manylinux_2_17_x86_64.whl"
    )
    assert (name, str(version), len(tags)) == ("ours-x", "1.0+cu12", 4)


def test_a_python_that_is_no_version_is_not_one() -> None:
    def found(tag: str) -> str | None:
        name = f"ours-1.0-{tag}-{tag}-manylinux_2_17_x86_64.whl"
        return _python(IndexFile(name, wheel_name(name)[1], "", None, None, False))

    assert [found(tag) for tag in ("cp312", "cp3x", "cp3", "cp3_")] == ["3.12", None, None, None]


def wheel(server: Server, size: int | None, content: bytes = b"x") -> IndexFile:
    reading(server, 200, ("Content-Type", JSON), body=page(size=size))
    locked = Wheel("ours", "1.0", "1" * 64, NAME, size)
    return PackageIndex(sources(server)).locked(locked)


@pytest.mark.parametrize("there", [0, 400, 1000, 5000])
def test_a_download_ends_at_its_locked_size(server: Server, tmp_path: Path, there: int) -> None:
    file, path = wheel(server, 1000), tmp_path / NAME
    if there:
        path.with_name(f"{NAME}.partial").write_bytes(bytes(there))
    server.answer = lambda request: (206 if request.headers.get("Range") else 200, [], endless())
    with pytest.raises(MissingError, match="sends more than its 1,000 bytes"):
        PackageIndex(sources(server)).download(file, path)
    assert sum(found.stat().st_size for found in tmp_path.iterdir()) <= 1000


def test_a_part_that_begins_elsewhere_is_not_appended(server: Server, tmp_path: Path) -> None:
    file, partial = wheel(server, 1000), tmp_path / f"{NAME}.partial"
    partial.write_bytes(bytes(400))
    reading(server, 206, ("Content-Range", "bytes 0-599/1000"), body=bytes(600))
    with pytest.raises(MissingError, match="another part"):
        PackageIndex(sources(server)).download(file, tmp_path / NAME)
    assert partial.stat().st_size == 400


def test_a_compressed_download_is_not_unpacked(server: Server, tmp_path: Path) -> None:
    file = wheel(server, 100_000)
    reading(server, 200, ("Content-Encoding", "gzip"), body=gzip.compress(bytes(10 * MIB), 9))
    with pytest.raises(MissingError, match="its SHA-256 is"):
        PackageIndex(sources(server)).download(file, tmp_path / NAME)


@pytest.mark.parametrize("length", [*(one for one in ODD_NUMBERS if one != "٣")])
def test_an_odd_size_of_a_file_is_unknown(server: Server, length: str) -> None:
    file = wheel(server, None)
    reading(server, 200, ("Content-Length", length))
    assert PackageIndex(sources(server)).size(file) is None


def test_an_index_that_wants_a_long_pause_is_not_waited_for(server: Server) -> None:
    reading(server, 503, ("Retry-After", "99999999"))
    with pytest.raises(MissingError, match="status 503"):
        PackageIndex(sources(server)).wheels("ours")
    assert len(server.asked) == 1


def test_the_content_of_a_blob_that_is_sent_byte_by_byte_is_read(server: Server) -> None:
    """The limits don't refuse what is slow, but right."""
    data = b"layer"
    server.answer = lambda _: (200, [], iter([data[at : at + 1] for at in range(len(data))] + [b""]))
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    assert b"".join(Blobs.to_read(registry(server).repository).read(digest, len(data))) == data
