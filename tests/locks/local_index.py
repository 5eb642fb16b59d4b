"""A package index on this machine, with wheels of a few hundred bytes, that can fail in many ways."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from validator.system.package_sources import PackageSources

from ..compat import wheel_files as made

LINUX = "manylinux_2_27_x86_64"


@dataclass
class LocalIndex:
    """A running index.

    files: content by name. yanked: names of yanked files. html: answer in the form of PEP 503.
    answers: what a page answers instead: status, content type and body. cuts: the bytes after which the
    next downloads end, one after the other. ranges: False for a server that can't continue a download.
    stall: the bytes after which the next download stands still. asked: path and range of every request.
    logins: of every request, None without one.
    """

    port: int
    files: dict[str, bytes] = field(default_factory=dict)
    yanked: set[str] = field(default_factory=set)
    html: bool = False
    answers: dict[str, tuple[int, str, bytes]] = field(default_factory=dict)
    hashes: dict[str, str] = field(default_factory=dict)
    cuts: list[int] = field(default_factory=list)
    stall: int | None = None
    ranges: bool = True
    over: threading.Event = field(default_factory=threading.Event)
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    logins: list[str | None] = field(default_factory=list)

    @property
    def sources(self) -> PackageSources:
        return PackageSources(index_url=f"http://127.0.0.1:{self.port}/simple")

    def downloads(self) -> list[tuple[str, str | None]]:
        return [
            (path.removeprefix("/files/"), part) for path, part in self.asked if path.startswith("/files/")
        ]

    def add(self, *names: str, content: bytes = b"a wheel") -> None:
        self.files.update(dict.fromkeys(names, content))

    def add_cuda(self, version: str, requirements: list[str]) -> None:
        """Add a wheel of the metapackage `cuda-toolkit`."""
        self.add_requiring("cuda-toolkit", version, *requirements)

    def add_requiring(self, name: str, version: str, *requirements: str, extra: str = "") -> None:
        """Add a wheel that has nothing but its metadata, with these requirements. extra: that it has."""
        lines = "".join(f"Requires-Dist: {line}\n" for line in requirements)
        lines += f"Provides-Extra: {extra}\n" if extra else ""
        stem, info = f"{name.replace('-', '_')}-{version}", "Metadata-Version: 2.1"
        metadata = f"{info}\nName: {name}\nVersion: {version}\n{lines}"
        self.files[f"{stem}-py3-none-any.whl"] = made.packed(
            {f"{stem}.dist-info/METADATA": metadata.encode()}
        )

    def add_tensorflow(self, version: str, *pythons: str, **members: bytes) -> None:
        """Add wheels of a TensorFlow release; `members` are added to what is in them."""
        metadata = made.METADATA.replace(b"2.99.1", version.encode())
        content = {name: body for name, body in made.MEMBERS.items() if not name.endswith("METADATA")}
        content[f"tensorflow-{version}.dist-info/METADATA"] = metadata
        for python in pythons:
            tag = f"cp{python.replace('.', '')}"
            project = "tf_nightly" if ".dev" in version else "tensorflow"
            self.files[f"{project}-{version}-{tag}-{tag}-{LINUX}.whl"] = made.packed(content | members)

    def page(self, project: str) -> tuple[int, str, bytes]:
        if project in self.answers:
            return self.answers[project]
        names = [name for name in self.files if name.partition("-")[0].replace("_", "-").lower() == project]
        if not names:
            return 404, "text/plain", b"not found"
        if self.html:
            links = "".join(
                f'<a href="/files/{name}#sha256={self.sha256(name)}"'
                f"{' data-yanked' if name in self.yanked else ''}>{name}</a>"
                for name in names
            )
            return 200, "text/html; charset=utf-8", f"<html><body>{links}</body></html>".encode()
        listed: list[dict[str, Any]] = [
            {
                "filename": name, "url": f"/files/{name}", "hashes": {"sha256": self.sha256(name)},
                "size": len(self.files[name]), "yanked": name in self.yanked,
            }
            for name in names
        ]  # fmt: skip
        body = json.dumps({"meta": {"api-version": "1.1"}, "name": project, "files": listed})
        return 200, "application/vnd.pypi.simple.v1+json", body.encode()

    def sha256(self, name: str) -> str:
        return self.hashes.get(name) or hashlib.sha256(self.files[name]).hexdigest()


@contextmanager
def running() -> Iterator[LocalIndex]:
    """Run an index that has the projects that are always asked for, each with a release that is known."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            index.asked.append((self.path, self.headers.get("Range")))
            index.logins.append(self.headers.get("Authorization"))
            if self.path.startswith("/simple/"):
                self.answer(*index.page(self.path.split("/")[2]))
                return
            content = index.files.get(self.path.removeprefix("/files/").partition("?")[0])
            if content is None:
                self.answer(404, "text/plain", b"")
                return
            start = 0
            if index.ranges and (asked := self.headers.get("Range")):
                start = int(asked.removeprefix("bytes=").rstrip("-"))
            if start and start >= len(content):
                self.answer(416, "text/plain", b"")
                return
            whole = content[start:]
            sent = whole[: index.cuts.pop(0)] if index.cuts else whole
            if index.stall is not None:
                sent, index.stall = whole[: index.stall], None
                self.answer(206 if start else 200, "application/octet-stream", sent, len(whole))
                index.over.wait()
                return
            self.answer(206 if start else 200, "application/octet-stream", sent, len(whole))

        def do_HEAD(self) -> None:
            self.answer(200, "application/octet-stream", b"", len(index.files[self.path.rpartition("/")[2]]))

        def answer(self, status: int, kind: str, body: bytes, length: int | None = None) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body) if length is None else length))
            self.end_headers()
            # The client may be gone, which is what some tests are about.
            with suppress(ConnectionError):
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Don't log: requests are kept."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    index = LocalIndex(server.server_address[1])
    index.add(
        f"tensorflow-2.21.0-cp312-cp312-{LINUX}.whl",
        f"tf_nightly-2.0.0.dev20200101-cp312-cp312-{LINUX}.whl",
        f"nvidia_cudnn_cu12-9.10.2.21-py3-none-{LINUX}.whl",
        "cuda_toolkit-12.9.1-py3-none-any.whl",
    )
    known = cu13()
    index.add(f"nvidia_cudnn_cu13-{known}-py3-none-{LINUX}.whl")
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield index
    finally:
        index.over.set()
        server.shutdown()
        server.server_close()
        thread.join()


def cu13() -> str:
    """Return a release of cuDNN for CUDA 13 that the facts know."""
    from validator.compat.policies import cudnn_releases

    return cudnn_releases("cu13")[0]
