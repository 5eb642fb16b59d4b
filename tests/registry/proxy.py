"""A proxy in front of a registry, which records requests and can inject faults."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_CHUNK = 64 * 1024
#: How often the server looks whether it is to stop.
_POLL_S = 0.02
#: A TLS handshake begins with this byte; clients try HTTPS first.
_TLS = b"\x16"
_CODES = {401: "UNAUTHORIZED", 403: "DENIED", 429: "TOOMANYREQUESTS", 400: "MANIFEST_INVALID"}


@dataclass(frozen=True)
class Asked:
    """A request and its response. sent: the size of its body. status: 0 for a dropped connection."""

    method: str
    path: str
    status: int
    sent: int
    authorized: bool


@dataclass
class Fault:
    """A fault, and the requests that it affects.

    method, path, body: regular expressions that a request is searched for; those with a body alone are held
        against it.
    status: the answer; 0 drops the connection, None passes the request on, `delay_s` late.
    until: answers when this is set, or after a minute.
    code: of the error in the answer, if it is not the usual one of the status.
    after_bytes: drops the connection when that much of the request's body has come; not for smaller ones.
    after_answer: drops the connection when the registry has answered.
    replace: the body of the registry's answer is replaced by what this makes of it.
    times: how often; None for always.
    """

    method: str = ""
    path: str = ""
    body: bytes = b""
    status: int | None = 0
    message: str = "a fault of the test"
    code: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    until: threading.Event | None = None
    after_bytes: int | None = None
    after_answer: bool = False
    replace: tuple[bytes, bytes] | None = None
    times: int | None = None
    happened: int = 0


@dataclass
class Proxy:
    """A running proxy at `address`. `asked` lists the requests. `faults` can be changed at any time.

    received: the bytes of all answers' bodies.
    """

    address: str
    faults: list[Fault] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    received: int = 0
    guard: threading.Lock = field(default_factory=threading.Lock)

    def sent(self) -> int:
        """Return the number of bytes sent in blobs and manifests."""
        return sum(asked.sent for asked in self.asked)

    def uploads(self) -> list[Asked]:
        """Return the requests that uploaded blobs."""
        return [asked for asked in self.asked if "/blobs/uploads/" in asked.path and asked.sent]

    def fault_for(self, method: str, path: str, body: bytes | None, length: int) -> Fault | None:
        with self.guard:
            for fault in self.faults:
                if fault.times is not None and fault.happened >= fault.times:
                    continue
                if not (re.search(fault.method, method) and re.search(fault.path, path)):
                    continue
                if fault.after_bytes is not None and length < fault.after_bytes:
                    continue
                if fault.body and not (body and re.search(fault.body, body)):
                    continue
                fault.happened += 1
                return fault
        return None


class _Dropped(Exception):
    """Raised to drop the connection."""


@contextmanager
def running_proxy(upstream: str) -> Iterator[Proxy]:
    """Run a proxy on a free loopback port, in front of the registry at `upstream`."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle(self) -> None:
            with contextlib.suppress(OSError, _Dropped):
                if self.connection.recv(1, socket.MSG_PEEK) == _TLS:
                    # As Go's server says it, which tells Go's clients to go on without TLS.
                    self.wfile.write(b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTPS request.\n")
                    return
                super().handle()

        def serve(self) -> None:
            # Manifests are small and looked into; blobs are passed on as they come.
            body = self._read() if "/manifests/" in self.path else None
            length = sys.maxsize if self._chunked else int(self.headers.get("Content-Length") or 0)
            fault = proxy.fault_for(self.command, self.path, body, length)
            if fault is not None:
                time.sleep(fault.delay_s)
                if fault.until is not None:
                    fault.until.wait(60.0)
                late = fault.after_bytes is not None or fault.after_answer or fault.replace is not None
                if fault.status == 0 and not late:
                    self._note(0, 0)
                    self._drop()
                if fault.status:
                    self._refuse(fault, len(body) if body is not None else sum(map(len, self._body())))
                    return
            self._pass_on(body, fault)

        do_GET = do_HEAD = do_PUT = do_POST = do_PATCH = do_DELETE = serve

        def _refuse(self, fault: Fault, sent: int) -> None:
            status = fault.status or 500
            error = {"code": fault.code or _CODES.get(status, "UNKNOWN"), "message": fault.message}
            text = json.dumps({"errors": [error]}).encode()
            self._note(status, sent)
            self.send_response(status)
            for name, value in fault.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(text)

        def _pass_on(self, body: bytes | None, fault: Fault | None) -> None:
            connection = http.client.HTTPConnection(upstream, timeout=120)
            try:
                connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    # The registry names itself in its answers by what it was asked as: the proxy.
                    if name.lower() not in ("connection", "transfer-encoding", "expect"):
                        connection.putheader(name, value)
                chunked = self._chunked and body is None
                if chunked:
                    connection.putheader("Transfer-Encoding", "chunked")
                connection.endheaders()
                sent = self._forward(connection, body, chunked, fault)
                answer = connection.getresponse()
                self._note(answer.status, sent)
                if fault is not None and fault.after_answer:
                    answer.read()
                    self._drop()
                self._answer(answer, fault)
            except (OSError, http.client.HTTPException):
                self._note(0, 0)
                self._drop()
            finally:
                connection.close()

        def _forward(
            self,
            connection: http.client.HTTPConnection,
            body: bytes | None,
            chunked: bool,
            fault: Fault | None,
        ) -> int:
            sent = 0
            for part in [body] if body is not None else self._body():
                if part:
                    connection.send(b"%x\r\n%b\r\n" % (len(part), part) if chunked else part)
                sent += len(part)
                if fault is not None and fault.after_bytes is not None and sent >= fault.after_bytes:
                    self._note(0, sent)
                    self._drop()
            if chunked:
                connection.send(b"0\r\n\r\n")
            return sent

        def _answer(self, answer: http.client.HTTPResponse, fault: Fault | None) -> None:
            replaced = None
            if fault is not None and fault.replace is not None and self.command != "HEAD":
                replaced = answer.read().replace(*fault.replace)
            self.send_response_only(answer.status, answer.reason)
            for name, value in answer.getheaders():
                if name.lower() in ("connection", "transfer-encoding"):
                    continue
                if name.lower() == "content-length" and replaced is not None:
                    value = str(len(replaced))
                self.send_header(name, value)
            unknown = answer.getheader("Content-Length") is None and self.command != "HEAD"
            if unknown and answer.status not in (204, 304):
                self.send_header("Connection", "close")
            self.end_headers()
            if self.command == "HEAD":
                return
            if replaced is not None:
                self.wfile.write(replaced)
                return
            while part := answer.read(_CHUNK):
                with proxy.guard:
                    proxy.received += len(part)
                self.wfile.write(part)

        @property
        def _chunked(self) -> bool:
            return self.headers.get("Transfer-Encoding", "").lower() == "chunked"

        def _read(self) -> bytes:
            return b"".join(self._body())

        def _body(self) -> Iterator[bytes]:
            if self.headers.get("Expect", "").lower() == "100-continue":
                self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            if self._chunked:
                while size := int(self.rfile.readline().split(b";")[0], 16):
                    yield self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()
                return
            left = int(self.headers.get("Content-Length") or 0)
            while left:
                part = self.rfile.read(min(left, _CHUNK))
                if not part:
                    self._drop()
                left -= len(part)
                yield part

        def _note(self, status: int, sent: int) -> None:
            with proxy.guard:
                proxy.asked.append(
                    Asked(self.command, self.path, status, sent, "Authorization" in self.headers)
                )

        def _drop(self) -> None:
            self.close_connection = True
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)
            raise _Dropped

        def log_message(self, *arguments: object) -> None:
            """Say nothing: requests are kept."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    proxy = Proxy(f"127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, args=(_POLL_S,), daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
