"""The clients that pull images accept the layers."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.registry.server import RunningRegistry
from validator.assemble.layers import Entry

from . import images
from .test_encoding import encoded, layer_of


def contents(some: list[Entry]) -> dict[str, bytes | str | None]:
    return {
        entry.path: entry.link if entry.content is None else b"".join(entry.content.chunks())
        for entry in some
    }


def unpacked(stream: bytes) -> dict[str, bytes | str | None]:
    found: dict[str, bytes | str | None] = {}
    with tarfile.open(fileobj=io.BytesIO(stream)) as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isreg() else None
            found[member.name] = content.read() if content else member.linkname or None
    return found


def run(*command: str | Path) -> bytes:
    return subprocess.run(command, check=True, capture_output=True, timeout=120).stdout


@pytest.mark.engine
@pytest.mark.xdist_group("docker")
def test_docker(server: RunningRegistry, tmp_path: Path) -> None:
    some = layer_of(tmp_path)
    reference = images.push(server.address, "clients/docker", [some])
    run("docker", "pull", "--quiet", reference)
    try:
        container = run("docker", "create", reference, "/none").decode().strip()
        try:
            found = unpacked(run("docker", "export", container))
        finally:
            run("docker", "rm", container)
    finally:
        run("docker", "rmi", reference)
    expected = contents(some)
    assert {path: found[path] for path in expected} == expected


@pytest.mark.service
def test_skopeo(server: RunningRegistry, tmp_path: Path) -> None:
    if shutil.which("skopeo") is None:
        pytest.skip("skopeo is not installed (Debian package skopeo)")
    some = layer_of(tmp_path)
    reference = images.push(server.address, "clients/skopeo", [some])
    copy = ("skopeo", "copy", "--quiet", "--src-tls-verify=false", f"docker://{reference}")
    run(*copy, f"oci:{tmp_path / 'layout'}:image")
    described, blob = encoded(some)
    digest = described.digest.removeprefix("sha256:")
    assert (tmp_path / "layout/blobs/sha256" / digest).read_bytes() == blob
