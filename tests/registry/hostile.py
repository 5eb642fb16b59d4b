"""A registry that answers as a test tells it: with any bytes, without an end, or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_NAME = "team/tensorflow"
_PART = bytes(64 * 1024)
_POLL_S = 0.02


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def as_bytes(document: Any) -> bytes:
    return document if isinstance(document, bytes) else json.dumps(document).encode()


@dataclass
class Endless:
    """Content that goes on for `size` bytes of zeros, at most. sent: how many were taken."""

    size: int
    sent: int = 0


class Silence:
    """An answer that never comes. asked: set when somebody waits for it."""

    def __init__(self) -> None:
        self.asked = threading.Event()


Answer = bytes | Endless | Silence


@dataclass
class HostileRegistry:
    """A running registry. Its dictionaries say what it sends, by tag or digest."""

    address: str
    manifests: dict[str, Answer] = field(default_factory=dict)
    blobs: dict[str, Answer] = field(default_factory=dict)
    referrers: Answer = b'{"schemaVersion": 2, "manifests": []}'
    tags: Answer | None = None
    #: The addresses of further pages of every list: itself.
    more_pages: bool = False
    #: The address of the second page of every list, which has no third.
    second_page: str = ""
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def repository(self) -> str:
        return f"{self.address}/{_NAME}"

    def push(self, tag: str, manifest: Any, **blobs: Any) -> str:
        """Keep a manifest under a tag and its digest, and blobs under theirs. Returns the digest."""
        data = as_bytes(manifest)
        self.manifests[tag] = self.manifests[digest_of(data)] = data
        for content in blobs.values():
            self.blobs[digest_of(as_bytes(content))] = as_bytes(content)
        return digest_of(data)

    def push_image(self, tag: str, config: Any = None) -> str:
        """Keep an image without layers, with a configuration."""
        content = as_bytes(config if config is not None else {"architecture": "amd64", "os": "linux"})
        described = {"mediaType": "application/vnd.oci.image.config.v1+json", **descriptor(content)}
        manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": described, "layers": []}
        return self.push(tag, manifest, config=content)

    def attach(self, kind: str, blob: Answer, claimed: int, digest: str) -> None:
        """Let one artifact refer to every manifest, whose only layer claims a size and a digest."""
        layer = {"mediaType": kind, "digest": digest, "size": claimed}
        empty = {"mediaType": "application/vnd.oci.empty.v1+json", **descriptor(b"{}")}
        manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "artifactType": kind, "config": empty}
        data = as_bytes({**manifest, "layers": [layer]})
        self.manifests[digest_of(data)] = data
        self.blobs[digest] = blob
        entry = {"mediaType": MANIFEST, "artifactType": kind, **descriptor(data)}
        index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json"}
        self.referrers = as_bytes({**index, "manifests": [entry]})

    def answer(self, path: str) -> tuple[Answer | None, str, str]:
        """Return what a path gives, with its media type and its digest."""
        place, _, name = path.partition("?")[0].removeprefix(f"/v2/{_NAME}/").partition("/")
        if place == "manifests":
            found = self.manifests.get(name)
            known = digest_of(found) if isinstance(found, bytes) else name
            return found, MANIFEST, known
        if place == "blobs":
            return self.blobs.get(name), "application/octet-stream", name
        if place == "referrers":
            return self.referrers, "application/vnd.oci.image.index.v1+json", ""
        if place == "tags":
            names = sorted(name for name in self.manifests if not name.startswith("sha256:"))
            return self.tags or as_bytes({"name": _NAME, "tags": names}), "application/json", ""
        return b"{}", "application/json", ""


def descriptor(data: bytes) -> dict[str, Any]:
    return {"digest": digest_of(data), "size": len(data)}


@contextmanager
def running_hostile_registry() -> Iterator[HostileRegistry]:
    """Run a hostile registry on a free loopback port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            content, kind, digest = registry.answer(self.path)
            if isinstance(content, Silence):
                content.asked.set()
                registry.over.wait()
                self.close_connection = True
                return
            self.send_response(404 if content is None else 200)
            self.send_header("Content-Type", kind)
            size = content.size if isinstance(content, Endless) else len(content or b"")
            self.send_header("Content-Length", str(size))
            if digest:
                self.send_header("Docker-Content-Digest", digest)
            if registry.more_pages:
                self.send_header("Link", f'<{self.path.partition("?")[0]}?last=1>; rel="next"')
            if registry.second_page and "?" not in self.path:
                self.send_header("Link", f'<{registry.second_page}>; rel="next"')
            self.end_headers()
            if self.command == "HEAD":
                return
            with contextlib.suppress(OSError):
                self._send(content)

        do_HEAD = do_GET

        def _send(self, content: bytes | Endless | None) -> None:
            if not isinstance(content, Endless):
                self.wfile.write(content or b"")
                return
            while content.sent < content.size and not registry.over.is_set():
                self.wfile.write(_PART)
                content.sent += len(_PART)

        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *arguments: object) -> None:
            """Say nothing when a client breaks off."""

    server = Server(("127.0.0.1", 0), Handler)
    registry = HostileRegistry(f"127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, args=(_POLL_S,), daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        registry.over.set()
        server.shutdown()
        server.server_close()
