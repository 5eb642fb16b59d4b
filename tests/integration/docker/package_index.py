"""A package index on this machine, with wheels of a few hundred bytes.

It serves PEP 503 pages under /simple, and answers as an HTTP proxy too: an index whose host does not exist is
reached through it alone, so a build that ignores its proxy fails.
"""

from __future__ import annotations

import base64
import hashlib
import io
import re
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from validator.model.spec import ImageSpec, Lock, Wheel

#: How often the server checks if it should stop.
_POLL_S = 0.02


@dataclass(frozen=True)
class TinyWheel:
    """A wheel and its content."""

    wheel: Wheel
    content: bytes

    @classmethod
    def make(cls, name: str, version: str, files: Mapping[str, bytes], scripts: str = "") -> TinyWheel:
        """Return a pure-Python wheel of `files`; `scripts` is the body of its `[console_scripts]`."""
        stem = f"{name.replace('-', '_')}-{version}"
        info = f"{stem}.dist-info"
        members = {
            **files,
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
            f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        if scripts:
            members[f"{info}/entry_points.txt"] = f"[console_scripts]\n{scripts}\n".encode()
        record = "".join(
            f"{path},sha256={_record_hash(content)},{len(content)}\n" for path, content in members.items()
        )
        members[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for path, content in members.items():
                archive.writestr(zipfile.ZipInfo(path), content, zipfile.ZIP_DEFLATED)
        content = buffer.getvalue()
        filename = f"{stem}-py3-none-any.whl"
        return cls(Wheel(name, version, hashlib.sha256(content).hexdigest(), filename, len(content)), content)


def _record_hash(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def lock_of(spec: ImageSpec, *wheels: TinyWheel) -> Lock:
    """Return the lock of some wheels."""
    found = tuple(sorted((tiny.wheel for tiny in wheels), key=lambda wheel: wheel.name))
    return Lock(spec.identifier, spec.python, "x86_64-manylinux_2_28", (), found)


@dataclass
class Index:
    """A running index.

    requests: what was asked for, as `(host, path, headers)`; the host is None unless asked as a proxy.
    held: requests wait while this is not set.
    """

    address: str
    wheels: dict[str, TinyWheel] = field(default_factory=dict)
    requests: list[tuple[str | None, str, dict[str, str]]] = field(default_factory=list)
    open: threading.Event = field(default_factory=threading.Event)
    asked: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://{self.address}/simple"

    def add(self, *wheels: TinyWheel) -> None:
        self.wheels.update({tiny.wheel.filename: tiny for tiny in wheels})

    def answer(self, host: str | None, path: str, authorized: bool) -> tuple[int, str, bytes]:
        """Status, content type and body of a path.

        A host whose name begins with `empty.` has nothing, one that begins with `private.` wants a password.
        """
        if host and host.startswith("empty."):
            return 404, "text/plain", b""
        if host and host.startswith("private.") and not authorized:
            return 401, "text/plain", b""
        if match := re.fullmatch(r"/simple/([a-z0-9-]+)/?", path):
            links = [
                f'<a href="/files/{name}#sha256={tiny.wheel.sha256}">{name}</a>'
                for name, tiny in self.wheels.items()
                if tiny.wheel.name == match[1]
            ]
            status = 200 if links else 404
            return status, "text/html", f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>".encode()
        found = self.wheels.get(path.rpartition("/")[2])
        return (200, "application/octet-stream", found.content) if found else (404, "text/plain", b"")


@contextmanager
def running_index(*wheels: TinyWheel) -> Iterator[Index]:
    """Yield an index with these wheels, on a free port of the loopback address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            target = urlsplit(self.path)
            index.requests.append((target.hostname, target.path, dict(self.headers)))
            index.asked.set()
            index.open.wait(timeout=120)
            status, kind, body = index.answer(target.hostname, target.path, "Authorization" in self.headers)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        # uv asks for the size of a wheel before it reads its metadata.
        do_HEAD = do_GET

        def log_message(self, *arguments: object) -> None:
            """Don't log: requests are kept."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    index = Index(f"127.0.0.1:{server.server_address[1]}")
    index.add(*wheels)
    index.open.set()
    thread = threading.Thread(target=server.serve_forever, args=(_POLL_S,), daemon=True)
    thread.start()
    try:
        yield index
    finally:
        index.open.set()
        server.shutdown()
        server.server_close()
