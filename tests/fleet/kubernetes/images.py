"""An image with Python from the root file system that `.ci/kubernetes` unpacked, in a registry."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path
from urllib.request import Request, urlopen

_TYPE = "application/vnd.oci.image"


def push_rootfs(rootfs: Path, registry: str, repository: str) -> str:
    """Push the directory as an image of one layer and return its reference, `host/path@sha256:…`."""
    base = f"http://{registry}/v2/{repository}"
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for entry in sorted(rootfs.iterdir()):
            archive.add(entry, entry.name, filter=_as_root)
    layer = _blob(base, buffer.getvalue(), f"{_TYPE}.layer.v1.tar")
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": ["PATH=/usr/bin:/bin"], "Cmd": ["/usr/bin/python3"]},
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{_TYPE}.manifest.v1+json",
        "config": _blob(base, json.dumps(config).encode(), f"{_TYPE}.config.v1+json"),
        "layers": [layer],
    }
    content = json.dumps(manifest).encode()
    digest = _digest(content)
    _send("PUT", f"{base}/manifests/{digest}", content, f"{_TYPE}.manifest.v1+json")
    return f"{registry}/{repository}@{digest}"


def _blob(base: str, content: bytes, kind: str) -> dict[str, object]:
    digest = _digest(content)
    place = _send("POST", f"{base}/blobs/uploads/", b"", "application/octet-stream")
    _send("PUT", f"{place}{'&' if '?' in place else '?'}digest={digest}", content, "application/octet-stream")
    return {"mediaType": kind, "digest": digest, "size": len(content)}


def _send(method: str, url: str, content: bytes, kind: str) -> str:
    with urlopen(
        Request(url, data=content, method=method, headers={"Content-Type": kind}), timeout=60
    ) as answer:
        return str(answer.headers.get("Location"))


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _as_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry
