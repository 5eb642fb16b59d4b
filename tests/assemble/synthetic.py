"""Images of a few synthetic layers, sent to a destination as the assembler does it."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import random
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from validator.assemble.image import Destination
from validator.assemble.layers import Encoded, Write

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
_PART = 64 << 10


@dataclass(frozen=True)
class Layer:
    """A layer with one file of `size` random bytes, the same for the same seed."""

    seed: int
    size: int = 300_000

    @cached_property
    def tar(self) -> bytes:
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w") as archive:
            entry = tarfile.TarInfo(f"file-{self.seed}")
            entry.size = self.size
            archive.addfile(entry, io.BytesIO(random.Random(self.seed).randbytes(self.size)))
        return stream.getvalue()

    @cached_property
    def blob(self) -> bytes:
        return gzip.compress(self.tar, compresslevel=0, mtime=0)

    @cached_property
    def encoded(self) -> Encoded:
        return Encoded(digest(self.blob), len(self.blob), digest(self.tar), LAYER)

    def encode(self, write: Write) -> Encoded:
        for part in parts(self.blob):
            write(part)
        return self.encoded


@dataclass(frozen=True)
class Image:
    """A manifest with its configuration and layers."""

    layers: tuple[Layer, ...]
    labels: tuple[tuple[str, str], ...] = ()

    @cached_property
    def config(self) -> bytes:
        return json.dumps(
            {
                "architecture": "amd64",
                "os": "linux",
                "config": {"Labels": dict(self.labels)},
                "rootfs": {"type": "layers", "diff_ids": [layer.encoded.diff_id for layer in self.layers]},
            }
        ).encode()

    @cached_property
    def manifest(self) -> bytes:
        return json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": MANIFEST,
                "config": {"mediaType": CONFIG, "digest": digest(self.config), "size": len(self.config)},
                "layers": [
                    {"mediaType": LAYER, "digest": layer.encoded.digest, "size": layer.encoded.size}
                    for layer in self.layers
                ],
            }
        ).encode()

    @property
    def blobs(self) -> dict[str, bytes]:
        """Everything but the manifest, by digest."""
        return {digest(self.config): self.config} | {
            layer.encoded.digest: layer.blob for layer in self.layers
        }

    def send(self, destination: Destination, *, known: bool = True) -> str:
        """Send the image, without the blobs that are there. known: digests and sizes are known in advance."""
        for layer in self.layers:
            if not destination.has(layer.encoded):
                destination.receive(layer.encode, layer.encoded if known else None)
        encoded = Encoded(digest(self.config), len(self.config), "", CONFIG)
        if not destination.has(encoded):
            destination.receive(whole(self.config, encoded), encoded)
        return destination.finish(self.manifest, MANIFEST)


def image(*seeds: int, size: int = 300_000) -> Image:
    """Return an image with a layer for each seed."""
    return Image(tuple(Layer(seed, size) for seed in seeds))


def whole(content: bytes, encoded: Encoded) -> Callable[[Write], Encoded]:
    """Return an `encode` that writes this content."""

    def encode(write: Write) -> Encoded:
        write(content)
        return encoded

    return encode


def parts(content: bytes) -> Iterator[bytes]:
    for start in range(0, len(content), _PART):
        yield content[start : start + _PART]


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
