"""Push images that consist of given layers, as simply as possible."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable

import requests

from validator.assemble.layers import Entry, encode

_CONFIG = "application/vnd.oci.image.config.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"


def push(address: str, name: str, layers: Iterable[Iterable[Entry]]) -> str:
    """Push an image with these layers as `name:latest`. Return its reference."""
    described = []
    for entries in layers:
        blob = io.BytesIO()
        described.append(encode(entries, blob.write))
        upload(address, name, blob.getvalue())
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {},
            "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in described]},
        }
    ).encode()
    manifest = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "config": {"mediaType": _CONFIG, "digest": upload(address, name, config), "size": len(config)},
        "layers": [
            {
                "mediaType": layer.media_type,
                "digest": layer.digest,
                "size": layer.size,
                "annotations": dict(layer.annotations),
            }
            for layer in described
        ],
    }
    answer = requests.put(
        f"http://{address}/v2/{name}/manifests/latest",
        data=json.dumps(manifest),
        headers={"Content-Type": _MANIFEST},
        timeout=30,
    )
    answer.raise_for_status()
    return f"{address}/{name}:latest"


def upload(address: str, name: str, blob: bytes) -> str:
    digest = "sha256:" + hashlib.sha256(blob).hexdigest()
    started = requests.post(f"http://{address}/v2/{name}/blobs/uploads/", timeout=30)
    started.raise_for_status()
    answer = requests.put(
        started.headers["Location"],
        params={"digest": digest},
        data=blob,
        headers={"Content-Type": "application/octet-stream"},
        timeout=60,
    )
    answer.raise_for_status()
    return digest
