"""The content of an image, read from the output of `docker save`: manifests, configuration, layers."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import tempfile
from dataclasses import dataclass
from typing import Any

import docker
import zstandard


@dataclass(frozen=True)
class SavedImage:
    """An image's JSON documents as one text, its layers' digests, and its layers, uncompressed."""

    documents: str
    configuration: dict[str, Any]
    layer_digests: tuple[str, ...]
    layers: tuple[bytes, ...]


def save(client: docker.DockerClient, image: str) -> SavedImage:
    """Save an image and read it."""
    with tempfile.TemporaryFile() as file:
        for chunk in client.api.get_image(image):
            file.write(chunk)
        file.seek(0)
        with tarfile.open(fileobj=file) as archive:
            return _read(archive)


def _read(archive: tarfile.TarFile) -> SavedImage:
    members = {member.name: member for member in archive.getmembers() if member.isfile()}

    def blob(name: str) -> bytes:
        stream = archive.extractfile(members[name])
        assert stream is not None
        return stream.read()

    manifest = json.loads(blob("manifest.json"))[0]
    small = [blob(name) for name, member in members.items() if member.size < 2**20]
    documents = [text.decode() for text in small if text.lstrip()[:1] in (b"{", b"[")]
    return SavedImage(
        "\n".join(documents),
        json.loads(blob(manifest["Config"])),
        tuple(f"sha256:{name.rpartition('/')[2]}" for name in manifest["Layers"]),
        tuple(_uncompressed(blob(name)) for name in manifest["Layers"]),
    )


def _uncompressed(layer: bytes) -> bytes:
    if layer[:4] == b"\x28\xb5\x2f\xfd":
        # A layer has many frames.
        return zstandard.ZstdDecompressor().stream_reader(layer, read_across_frames=True).read()
    return gzip.decompress(layer) if layer[:2] == b"\x1f\x8b" else layer


def files_of(layer: bytes) -> dict[str, tarfile.TarInfo]:
    """Return the entries of a layer by path."""
    with tarfile.open(fileobj=io.BytesIO(layer)) as archive:
        return {member.name: member for member in archive.getmembers()}
