"""Images of a few bytes, made without an engine and pushed with oras."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from validator.registry.names import Repository

_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"


def push_image(
    repository: Repository,
    tag: str,
    labels: Mapping[str, str] | None = None,
    content: str = "",
    program: Path | None = None,
    ports: Sequence[str] = (),
) -> str:
    """Push an image with one layer and return its digest. The same arguments give the same image.

    program: a static one, which containers of the image start. ports: such as `80/tcp`.
    """
    files = {"content": (content or tag).encode(), **({"program": program.read_bytes()} if program else {})}
    layer = _layer(files)
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {
            "Labels": dict(labels or {}),
            **({"Entrypoint": ["/program"]} if program else {}),
            **({"ExposedPorts": {port: {} for port in ports}} if ports else {}),
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    with tempfile.TemporaryDirectory(prefix="image-") as name:
        directory = Path(name)
        (directory / "layer").write_bytes(layer)
        (directory / "config").write_text(json.dumps(config), encoding="utf-8")
        oras(
            "push", repository.tagged(tag), f"layer:{_LAYER}", "--config", f"config:{_CONFIG}",
            "--annotation", "org.opencontainers.image.created=1970-01-01T00:00:00Z", cwd=directory,
        )  # fmt: skip
    return oras("resolve", repository.tagged(tag)).strip()


def oras(verb: str, *arguments: str, cwd: Path | None = None) -> str:
    """Run oras against a test's registry and return its output."""
    done = subprocess.run(
        ["oras", *verb.split(), "--plain-http", *arguments], cwd=cwd, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _layer(files: Mapping[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            archive.addfile(entry, io.BytesIO(content))
    return stream.getvalue()
