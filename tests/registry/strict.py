"""A registry that follows the distribution specification to the letter, and can lose what it received.

It checks the ranges of chunks and their smallest length, asks for tokens, and redirects downloads.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

FORGET = "forget"
_POLL_S = 0.02
_UPLOAD = re.compile(r"/v2/(?P<name>.+)/blobs/uploads/(?P<number>\d+)$")


@dataclass(frozen=True)
class Asked:
    """A request. size: of its body."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    size: int
    form: dict[str, list[str]] = field(default_factory=dict)


@dataclass
class StrictRegistry:
    """A running registry.

    least: the smallest chunk in bytes. keep: the numbers of bytes to keep of the next chunks, None for all,
    FORGET for a lost upload; such a chunk is refused. login: user and password, None for no login.
    identity: an identity token that is used instead. life_s: how long a token is valid.
    expires_in: what clients are told about that.
    redirect: where downloads are redirected to. streams: accept bodies without a length, which no
    specification demands.
    """

    address: str
    blobs: dict[str, bytes] = field(default_factory=dict)
    uploads: dict[str, bytes] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    least: int | None = None
    keep: list[int | str | None] = field(default_factory=list)
    login: tuple[str, str] | None = None
    identity: str | None = None
    life_s: float = 3600.0
    expires_in: int | None = None
    redirect: str | None = None
    realm: str | None = None
    tokens: dict[str, float] = field(default_factory=dict)
    cut: list[int] = field(default_factory=list)
    streams: bool = False

    def methods(self) -> list[str]:
        return [asked.method for asked in self.asked]


@contextmanager
def running_strict_registry() -> Iterator[StrictRegistry]:
    """Run a registry without a login on a free loopback port."""
    numbers = itertools.count(1)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def serve(self) -> None:
            address = urlsplit(self.path)
            streamed = self.headers.get("Transfer-Encoding") == "chunked"
            if streamed and registry.streams:
                body = self.chunked()
            else:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            query = parse_qs(address.query)
            form = parse_qs(body.decode()) if address.path == "/token" else {}
            asked = Asked(self.command, address.path, query, dict(self.headers), len(body), form)
            registry.asked.append(asked)
            if address.path == "/token":
                self.token(asked)
            elif not self.authorized():
                self.challenge()
            elif streamed and not registry.streams:
                self.answer(411, {})
                self.close_connection = True
            elif found := _UPLOAD.match(address.path):
                self.upload(found["name"], found["number"], query, body)
            elif self.command == "POST":
                number = str(next(numbers))
                registry.uploads[number] = b""
                least = {"OCI-Chunk-Min-Length": str(registry.least)} if registry.least else {}
                self.answer(202, {"Location": f"{address.path}{number}", **least})
            elif self.command == "PUT":
                digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
                registry.blobs[digest] = body
                self.answer(201, {"Docker-Content-Digest": digest})
            else:
                self.blob(address.path.rpartition("/")[2])

        def chunked(self) -> bytes:
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)

        do_GET = do_HEAD = do_POST = do_PATCH = do_PUT = do_DELETE = serve

        def upload(self, name: str, number: str, query: dict[str, list[str]], body: bytes) -> None:
            here = f"/v2/{name}/blobs/uploads/{number}"
            if number not in registry.uploads:
                self.answer(404, {}, b'{"errors": [{"code": "BLOB_UPLOAD_UNKNOWN"}]}')
                return
            have = registry.uploads[number]
            if self.command == "DELETE":
                del registry.uploads[number]
                self.answer(204, {})
                return
            if self.command == "PATCH":
                everything = f"0-{len(body) - 1}" if "Transfer-Encoding" in self.headers else ""
                start, _, end = self.headers.get("Content-Range", everything).partition("-")
                assert int(end) - int(start) + 1 == len(body)
                keep = registry.keep.pop(0) if registry.keep else None
                if isinstance(keep, str):
                    del registry.uploads[number]
                    self.answer(404, {}, b'{"errors": [{"code": "BLOB_UPLOAD_UNKNOWN"}]}')
                    return
                if int(start) != len(have) or keep is not None:
                    registry.uploads[number] = (
                        have + body[:keep] if keep is None or keep >= 0 else have[:keep]
                    )
                    self.answer(416, {"Location": here, **_range(registry.uploads[number])})
                    return
                registry.uploads[number] += body
            if self.command == "PUT":
                content = have + body
                if f"sha256:{hashlib.sha256(content).hexdigest()}" != query["digest"][0]:
                    self.answer(400, {}, b'{"errors": [{"code": "DIGEST_INVALID", "message": "wrong"}]}')
                    return
                registry.blobs[query["digest"][0]] = content
                del registry.uploads[number]
                self.answer(201, {"Location": f"/v2/{name}/blobs/{query['digest'][0]}"})
                return
            status = 202 if self.command == "PATCH" else 204
            self.answer(status, {"Location": here, **_range(registry.uploads[number])})

        def blob(self, digest: str) -> None:
            content = registry.blobs.get(digest)
            if content is None:
                self.answer(404, {})
            elif registry.redirect and self.command == "GET":
                self.answer(307, {"Location": f"{registry.redirect}/{digest}"})
            elif self.command == "HEAD":
                self.answer(200, {"Content-Length": str(len(content))})
            else:
                start = int(self.headers.get("Range", "bytes=0-")[6:].rstrip("-"))
                rest = content[start:]
                sent = rest[: registry.cut.pop(0)] if registry.cut else rest
                self.answer(206 if start else 200, {"Content-Length": str(len(rest))}, sent)
                self.close_connection = len(sent) < len(rest)

        def authorized(self) -> bool:
            given = self.headers.get("Authorization", "").removeprefix("Bearer ")
            if registry.login is None:
                return True
            return registry.tokens.get(given, 0.0) > time.monotonic()

        def challenge(self) -> None:
            realm = registry.realm or f"http://{registry.address}/token"
            value = f'Bearer realm="{realm}",service="the, registry",scope="repository:x:pull"'
            self.answer(401, {"WWW-Authenticate": value}, b'{"errors": [{"code": "UNAUTHORIZED"}]}')

        def token(self, asked: Asked) -> None:
            assert registry.login is not None
            basic = base64.b64encode(":".join(registry.login).encode()).decode()
            known = self.headers.get("Authorization") == f"Basic {basic}"
            if registry.identity is not None:
                known = asked.form.get("refresh_token") == [registry.identity]
            if not known:
                self.answer(401, {})
                return
            token = f"token-{len(registry.tokens)}"
            registry.tokens[token] = time.monotonic() + registry.life_s
            expires = {} if registry.expires_in is None else {"expires_in": registry.expires_in}
            self.answer(200, {}, json.dumps({"token": token, **expires}).encode())

        def answer(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing: requests are kept."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """Say nothing when a client breaks off."""

    server = Server(("127.0.0.1", 0), Handler)
    registry = StrictRegistry(f"127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, args=(_POLL_S,), daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()


def _range(content: bytes) -> dict[str, str]:
    return {"Range": f"0-{len(content) - 1}"} if content else {"Range": "0-0"}
