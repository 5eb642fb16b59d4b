"""Images of a few bytes, made without an engine and pushed in a few requests."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.client
import io
import json
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from validator.registry.names import Repository

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_BYTES = "application/octet-stream"


def push_image(
    repository: Repository,
    tag: str,
    labels: Mapping[str, str] | None = None,
    content: str = "",
    program: Path | None = None,
    ports: Sequence[str] = (),
    credentials: str | None = None,
) -> str:
    """Push an image with one layer and return its digest. The same arguments give the same image.

    program: a static one, which containers of the image start. ports: such as `80/tcp`. credentials:
    `user:password`.
    """
    files = {"content": (content or tag).encode(), **({"program": program.read_bytes()} if program else {})}
    layer = _layer(files)
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {
                "Labels": dict(labels or {}),
                **({"Entrypoint": ["/program"]} if program else {}),
                **({"ExposedPorts": {port: {} for port in ports}} if ports else {}),
            },
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        }
    ).encode()
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": {"mediaType": _CONFIG, "digest": _digest(config), "size": len(config)},
            "layers": [{"mediaType": _LAYER, "digest": _digest(layer), "size": len(layer)}],
            "annotations": {"org.opencontainers.image.created": "1970-01-01T00:00:00Z"},
        }
    ).encode()
    headers = {}
    if credentials is not None:
        headers["Authorization"] = f"Basic {base64.b64encode(credentials.encode()).decode()}"
    with contextlib.closing(http.client.HTTPConnection(repository.host, timeout=30)) as connection:

        def send(method: str, address: str, body: bytes, kind: str) -> str:
            connection.request(method, address, body, {**headers, "Content-Type": kind})
            answer = connection.getresponse()
            text = answer.read()
            assert answer.status in (201, 202), text
            return str(answer.headers["Location"])

        for blob in (layer, config):
            place = send("POST", f"/v2/{repository.path}/blobs/uploads/", b"", _BYTES)
            send("PUT", f"{place}&digest={_digest(blob)}", blob, _BYTES)
        send("PUT", f"/v2/{repository.path}/manifests/{tag}", manifest, _MANIFEST)
    return _digest(manifest)


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


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
