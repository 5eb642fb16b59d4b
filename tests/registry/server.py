"""A registry for tests: Debian's docker-registry on a free loopback port."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest

_ANSWER_WITHIN_S = 30
MANIFESTS = "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json"


@dataclass
class RunningRegistry:
    """A registry at `address` (`127.0.0.1:1234`) that stores everything in `storage`."""

    address: str
    storage: Path
    log: Path
    _command: list[str]
    _process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with open(self.log, "ab") as log:
            # It needs little memory here, and spends a fifth less time if it collects garbage less often.
            environment = {**os.environ, "GOGC": "400"}
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, env=environment)
        deadline = time.monotonic() + _ANSWER_WITHIN_S
        host, _, port = self.address.partition(":")
        while True:
            try:
                socket.create_connection((host, int(port)), timeout=1).close()
                return
            except OSError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    pytest.fail(self.log.read_text(errors="replace")[-2000:])
                time.sleep(0.05)

    def stop(self) -> None:
        """Stop the registry. `start` starts it again with the same content."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def blobs(self) -> dict[str, int]:
        """Return digest -> size in bytes of all blobs and manifests."""
        found = self.storage.glob("docker/registry/v2/blobs/sha256/*/*/data")
        return {f"sha256:{path.parent.name}": path.stat().st_size for path in found}

    def tags(self, repository: str) -> dict[str, str]:
        """Return tag -> digest, read from the storage."""
        directory = self.storage / "docker/registry/v2/repositories" / repository / "_manifests/tags"
        # While the registry writes a tag, its directory is there, but not yet its link.
        links = [path for path in directory.glob("*/current/link") if path.stat().st_size]
        return {path.parts[-3]: path.read_text(encoding="ascii") for path in links}

    def manifest(self, repository: str, reference: str) -> dict[str, object]:
        """Return a manifest, given its tag or digest."""
        request = Request(
            f"http://{self.address}/v2/{repository}/manifests/{reference}", headers={"Accept": MANIFESTS}
        )
        with urlopen(request, timeout=30) as answer:
            document: dict[str, object] = json.load(answer)
            return document


@contextmanager
def running_registry(
    root: Path, *, htpasswd: Path | None = None, tls: tuple[Path, Path] | None = None
) -> Iterator[RunningRegistry]:
    """Run a registry that stores everything in `root`. With a htpasswd file, it requires a password.

    tls: its certificate and its key. Without them, it uses plain HTTP.
    """
    program = shutil.which("docker-registry", path=f"{os.environ.get('PATH', '')}:/usr/bin")
    if program is None:
        pytest.skip("docker-registry is not installed (Debian package docker-registry)")
    storage = root / "storage"
    storage.mkdir(parents=True, exist_ok=True)
    configuration: dict[str, Any] = {
        "version": 0.1,
        "log": {"level": "warn"},
        "storage": {"filesystem": {"rootdirectory": str(storage)}, "delete": {"enabled": True}},
        "http": {"addr": f"127.0.0.1:{_free_port()}"},
    }
    if htpasswd is not None:
        configuration["auth"] = {"htpasswd": {"realm": "test", "path": str(htpasswd)}}
    if tls is not None:
        certificate, key = map(str, tls)
        configuration["http"]["tls"] = {"certificate": certificate, "key": key}
    # JSON is YAML too.
    file = root / "config.yml"
    file.write_text(json.dumps(configuration), encoding="utf-8")
    address = str(configuration["http"]["addr"])
    registry = RunningRegistry(address, storage, root / "log", [program, "serve", str(file)])
    registry.start()
    try:
        yield registry
    finally:
        registry.stop()


def answers(address: str) -> bool:
    """Return True if a registry responds at the address."""
    try:
        with urlopen(f"http://{address}/v2/", timeout=5):
            return True
    except URLError:
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
