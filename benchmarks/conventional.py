"""The conventional image of a lock: one RUN that installs its wheels with pip, pushed by Docker in gzip.

The wheels come from a server on loopback, so that neither a network nor a copy for the build counts.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from benchmarks.places import prune, removed
from validator.engines.endpoint import Endpoint
from validator.locks import lock_files
from validator.model.spec import Lock, Wheel

#: pip is not in the base, so it is run from its wheel.
DOCKERFILE = """\
ARG BASE
FROM ${BASE}
ARG INDEX
ARG PIP
RUN --mount=type=bind,source=lock.txt,target=/lock.txt \\
    python3 -c "from urllib.request import *; urlretrieve('${INDEX}${PIP}', '/tmp/pip.whl')" \\
    && python3 /tmp/pip.whl/pip install --no-cache-dir --break-system-packages --no-deps --no-index \\
       --find-links ${INDEX} --require-hashes --requirement /lock.txt \\
    && rm /tmp/pip.whl
"""


@dataclass(frozen=True)
class Conventional:
    """The seconds that the conventional image takes to build and to push."""

    build_s: float
    push_s: float

    @property
    def seconds(self) -> float:
        return self.build_s + self.push_s


#: What the step that installs the wheels, and only that, has in its description.
STEP = "pip.whl"


def build_and_push(
    endpoint: Endpoint, base: str, lock: Lock, wheels: Path, registry: str, place: Path
) -> Conventional:
    """Build the image of a lock and push it. wheels: the cache. place: an empty directory.

    Nothing of it stays in Docker.
    """
    reference = f"{registry}/conventional:{lock.identifier}"
    try:
        with removed(endpoint, reference), _index(lock.wheels, wheels) as address:
            command = _build(endpoint, base, lock, address, place)
            build_s = _timed([*command, "--no-cache", "--load", "--tag", reference, str(place)])
            return Conventional(build_s, _timed([endpoint.program, "push", "--quiet", reference]))
    finally:
        prune(endpoint, STEP)


def push_in_zstd(endpoint: Endpoint, base: str, lock: Lock, wheels: Path, registry: str, place: Path) -> str:
    """Push the same image as BuildKit encodes it in zstd. Return its name. Nothing of it stays in Docker."""
    reference = f"{registry}/conventional:zstd"
    encoding = "compression=zstd,force-compression=true,oci-mediatypes=true"
    output = f"type=image,name={reference},push=true,{encoding}"
    try:
        with removed(endpoint, reference), _index(lock.wheels, wheels) as address:
            _timed(
                [*_build(endpoint, base, lock, address, place), "--no-cache", "--output", output, str(place)]
            )
    finally:
        prune(endpoint, STEP)
    return reference


def _build(endpoint: Endpoint, base: str, lock: Lock, address: str, place: Path) -> list[str]:
    (place / "Dockerfile").write_text(DOCKERFILE, encoding="utf-8")
    (place / "lock.txt").write_text(lock_files.render(lock), encoding="utf-8")
    (pip,) = (wheel.filename for wheel in lock.wheels if wheel.name == "pip")
    return [
        *endpoint.buildx, "build", "--network", "host",
        "--allow", "network.host", "--build-arg", f"BASE={base}", "--build-arg", f"INDEX={address}",
        "--build-arg", f"PIP={pip}", "--provenance=false",
    ]  # fmt: skip


def _timed(command: list[str]) -> float:
    begin = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command[:4])} failed:\n{done.stderr[-3000:]}")
    return time.perf_counter() - begin


@contextmanager
def _index(wheels: Iterable[Wheel], directory: Path) -> Iterator[str]:
    """Serve the wheels of a cache under their own names, and yield the address of a list of them."""
    by_name = {wheel.filename: directory / f"{wheel.sha256}.whl" for wheel in wheels}
    page = "".join(f'<a href="{name}">{name}</a>\n' for name in by_name).encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = by_name.get(self.path.lstrip("/").partition("#")[0])
            if path is None and self.path != "/":
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/html" if path is None else "application/octet-stream")
            self.send_header("Content-Length", str(path.stat().st_size if path else len(page)))
            self.end_headers()
            if path is None:
                self.wfile.write(page)
                return
            self.wfile.flush()
            with path.open("rb") as stream:
                self.connection.sendfile(stream)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
