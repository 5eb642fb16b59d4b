"""Show the page on this machine, with what runs at the moment.

It answers requests for the page's files and for events, and notices new records and progress. It only reads:
nothing here writes anything that a request asks for.

Any web page can make a browser send requests to this server. So a request must name this server in
`Host`: a name on the internet that somebody points at 127.0.0.1 (DNS rebinding) is refused. The answers can't
be read or framed by other sites.

Server-sent events tell all open pages the newest state of what they show. Every event holds a whole state,
and a new client gets all states at once. So a client that lost its connection misses nothing when it comes
back.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import http.server
import io
import ipaddress
import itertools
import json
import os
import socket
import socketserver
import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from .errors import InputError, MissingError, ValidatorError
from .model.codec import RUNNING, RunProgress, encode
from .reports.printable import clean, printable

#: Seconds until a silent connection gets a comment, so that both ends notice when the other is gone.
BEAT_S = 15.0
#: Milliseconds until a client that lost its connection tries again.
_RETRY_MS = 2000


class Events:
    """The newest state of each kind. Threads may share it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        #: By kind: the number of the change, and the text of the event.
        self._states: dict[str, tuple[int, str]] = {}
        self._number = 0
        self._closed = False

    def tell(self, kind: str, state: Any) -> None:
        """Set the state of a kind. Nobody is told of a state that is the same as before."""
        # In ASCII and on one line, as JSON is without an indent.
        text = f"event: {kind}\ndata: {json.dumps(state, separators=(',', ':'))}\n\n"
        with self._changed:
            if self._states.get(kind, (0, ""))[1] != text:
                self._number += 1
                self._states[kind] = (self._number, text)
                self._changed.notify_all()

    def close(self) -> None:
        """End all streams."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def stream(self, beat_s: float = BEAT_S) -> Iterator[bytes]:
        """Yield what to send to a client, until the events are closed."""
        seen = 0
        yield f"retry: {_RETRY_MS}\n\n".encode()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._number > seen, beat_s)  # noqa: B023
                if self._closed:
                    return
                news = sorted(state for state in self._states.values() if state[0] > seen)
                seen = self._number
            yield "".join(text for _, text in news).encode() or b": still here\n\n"


#: Where pages listen to events, and the file that a request for `/` gets.
EVENTS, ENTRY = "/events", "index.html"
#: The media types of a page's files. Browsers refuse scripts, modules and WebAssembly of another type.
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".md": "text/markdown; charset=utf-8",
    ".svg": "image/svg+xml",
    ".wasm": "application/wasm",
    ".xml": "application/atom+xml; charset=utf-8",
    ".zip": "application/zip",
}
#: Connections that listen to events, and all connections at once.
_LISTENERS, _CONNECTIONS = 32, 128
#: The connections of one client's address, so that one client can't take all of them.
_OF_ONE_ADDRESS = 64
#: Seconds in which a client has to send its whole request, and in which it has to take what is sent: this
#: long, and longer for a file by its bytes per second.
_PATIENCE_S = 30
_SLOWEST = 20_000
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class PageServer(socketserver.ThreadingMixIn, http.server.HTTPServer):
    """Serve files and events. Use it as a context manager; `serve_forever` until `shutdown`.

    files: their contents by path, which `show` may replace at any time.

    Raises MissingError if the port is in use, and InputError for an address that this machine does not have.
    """

    daemon_threads = True
    # Streams of events end by themselves; a client that does not read must not hold up the end.
    block_on_close = False
    request_queue_size = 64

    def __init__(self, files: Mapping[str, bytes], events: Events, host: str, port: int) -> None:
        self.show(files)
        self.events = events
        self.listeners = threading.BoundedSemaphore(_LISTENERS)
        #: The open connections by the address of the client.
        self._connections: Counter[str] = Counter()
        self._guard = threading.Lock()
        self._name = host.lower()
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        except OSError as error:
            raise InputError(
                f"--host {host}: not a name or address that this machine knows: {error.strerror}",
                hint="for example 127.0.0.1, or 0.0.0.0 for all addresses of this machine",
            ) from error
        self.address_family = found[0]
        try:
            super().__init__((str(found[4][0]), int(found[4][1])), _Handler)
        except OSError as error:
            raise _cannot_listen(host, port, error) from error

    @property
    def url(self) -> str:
        """Return the address to open in a browser."""
        host, port = self.server_address[:2]
        shown = f"[{host!s}]" if ":" in str(host) else str(host)
        return f"http://{shown}:{port}/"

    def show(self, files: Mapping[str, bytes]) -> None:
        """Serve these files from now on."""
        #: By path: the content, and its ETag.
        self.files = {
            name: (content, f'"{hashlib.sha256(content).hexdigest()[:32]}"')
            for name, content in files.items()
        }

    def server_bind(self) -> None:
        # HTTPServer's own asks the network for the machine's name, which may take seconds.
        socketserver.TCPServer.server_bind(self)

    def server_close(self) -> None:
        self.events.close()
        super().server_close()

    def accepts(self, host: str | None) -> bool:
        """Return whether a `Host` names this server: an address, localhost, or its own --host."""
        if host is None:
            return False
        try:
            parts = urlsplit(f"//{host}")
            # A tunnel may have another port. Only a name can be made to point elsewhere. A wrong port raises.
            _ = parts.port
        except ValueError:
            return False
        name = (parts.hostname or "").removesuffix(".")
        if parts.username is not None or parts.path:
            return False
        if name in ("localhost", self._name):
            return True
        with contextlib.suppress(ValueError):
            return bool(ipaddress.ip_address(name))
        return False

    def process_request(self, request: Any, client_address: Any) -> None:
        address = str(client_address[0])
        with self._guard:
            full = self._connections.total() >= _CONNECTIONS or self._connections[address] >= _OF_ONE_ADDRESS
            self._connections[address] += not full
        if full:
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._guard:
                self._connections[str(client_address[0])] -= 1
                # Forget the addresses that are gone.
                self._connections += Counter()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing about clients that went away."""


class _Handler(http.server.BaseHTTPRequestHandler):
    server: PageServer
    server_version = "validator"
    sys_version = ""
    timeout = _PATIENCE_S

    def setup(self) -> None:
        super().setup()
        self.rfile = io.BufferedReader(_InTime(self.connection, time.monotonic() + _PATIENCE_S))

    def do_GET(self) -> None:
        if not self.server.accepts(self.headers.get("Host")):
            self._refuse(HTTPStatus.MISDIRECTED_REQUEST, "This server is not known by that name.")
        elif self.path.partition("?")[0] == EVENTS:
            self._send_events()
        else:
            self._send_file()

    do_HEAD = do_GET

    def __getattr__(self, name: str) -> Any:
        # http.server looks for a method with the name of the request's.
        if name.startswith("do_"):
            return self._only_reads
        raise AttributeError(name)

    def _only_reads(self) -> None:
        self._refuse(
            HTTPStatus.METHOD_NOT_ALLOWED, "This server only answers GET and HEAD.", Allow="GET, HEAD"
        )

    def _send_file(self) -> None:
        path = self.path.partition("?")[0].partition("#")[0]
        name = urllib.parse.unquote(path.removeprefix("/")) or ENTRY
        # A quoted slash is part of a name, and no file has one in its name.
        may_be_name = path.startswith("/") and "%2f" not in path.lower()
        found = self.server.files.get(name) if may_be_name else None
        if found is None:
            self._refuse(HTTPStatus.NOT_FOUND, "There is no such file.")
            return
        content, tag = found
        if tag in (self.headers.get("If-None-Match") or ""):
            self._begin(HTTPStatus.NOT_MODIFIED, ETag=tag)
            return
        kind = TYPES.get(os.path.splitext(name)[1], "application/octet-stream")
        size = str(len(content))
        self._begin(HTTPStatus.OK, **{"Content-Type": kind, "Content-Length": size, "ETag": tag})
        if self.command == "GET":
            self.connection.settimeout(_PATIENCE_S + len(content) / _SLOWEST)
            self.wfile.write(content)

    def _send_events(self) -> None:
        if not self.server.listeners.acquire(blocking=False):
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "Too many pages are open.", **{"Retry-After": "10"})
            return
        try:
            self._begin(HTTPStatus.OK, **{"Content-Type": "text/event-stream"})
            if self.command == "GET":
                for part in self.server.events.stream():
                    self.wfile.write(part)
        finally:
            self.server.listeners.release()

    def _begin(self, status: HTTPStatus, **headers: str) -> None:
        self.send_response(status)
        for name, value in {**_HEADERS, "Cache-Control": "no-cache", **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def _refuse(self, status: HTTPStatus, text: str, **headers: str) -> None:
        body = f"{text}\n".encode()
        kind = "text/plain; charset=utf-8"
        self._begin(status, **{"Content-Type": kind, "Content-Length": str(len(body)), **headers})
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a request that is no HTTP, without quoting it."""
        self.command = getattr(self, "command", None) or "GET"
        status = HTTPStatus(code)
        self._refuse(status, status.phrase)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing: a page asks for hundreds of files."""


class _InTime(io.RawIOBase):
    """Read a socket until a time. The socket's own limit would begin again with every byte."""

    def __init__(self, connection: socket.socket, ends: float) -> None:
        self._connection, self._ends = connection, ends

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._connection.settimeout(max(self._ends - time.monotonic(), 0.001))
        try:
            return self._connection.recv_into(buffer)
        finally:
            self._connection.settimeout(_PATIENCE_S)


def _cannot_listen(host: str, port: int, error: OSError) -> Exception:
    if error.errno == errno.EADDRINUSE:
        return MissingError(
            f"port {port} of {host} is in use by another program",
            hint="choose another with --port, or let the system choose a free one with --port 0",
        )
    if error.errno == errno.EACCES:
        return MissingError(
            f"port {port} of {host} is not allowed for this user", hint="choose one above 1023 with --port"
        )
    return InputError(
        f"--host {host}: this machine can't listen there: {error.strerror}",
        hint="choose an address of this machine; 127.0.0.1 is only reachable from this machine itself",
    )


# Notice new records and the progress of runs, and tell the open pages.


#: Seconds between two looks.
PAUSE_S = 1.0
#: The characters of a fault that pages show.
_LENGTH = 300


class Watch:
    """Look for news in a thread. Use it as a context manager.

    version: returns a text that changes with the records. update: makes the page of a version.
    progress: returns the runs, the newest first. say: is told each new fault once.
    """

    def __init__(
        self,
        events: Events,
        version: Callable[[], str],
        update: Callable[[str], None],
        progress: Callable[[], list[RunProgress]],
        say: Callable[[str], None],
        shown: str,
    ) -> None:
        self._events = events
        self._version, self._update, self._progress, self._say = version, update, progress, say
        self._shown = shown
        self._fault = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep_looking, name="watch", daemon=True)

    def __enter__(self) -> Watch:
        self._events.tell("page", self._shown)
        self.check()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def check(self) -> None:
        """Check once. Report a fault of the store; the next check tries again."""
        # The runs that go on, or the newest that ended, without what only tells processes of a machine apart.
        runs = self._progress()
        runs = [run for run in runs if run.state == RUNNING] or runs[:1]
        states = [clean(encode(run)) for run in runs]
        for name, state in itertools.product(("run", "boot"), states):
            state.pop(name, None)
        self._events.tell("progress", states)
        try:
            version = self._version()
            if version != self._shown:
                self._update(version)
                self._shown = version
                self._events.tell("page", version)
            fault = ""
        except ValidatorError as error:
            fault = printable(str(error))[:_LENGTH]
        except Exception as error:  # without this thread, the page would stay as it is and say nothing
            fault = printable(f"{type(error).__name__}: {error}")[:_LENGTH]
        if fault != self._fault:
            self._fault = fault
            self._events.tell("trouble", fault)
            if fault:
                self._say(f"error: {fault}")

    def _keep_looking(self) -> None:
        while not self._stop.wait(PAUSE_S):
            self.check()
