"""Where an image goes: a registry, an OCI layout or a local engine, behind one protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from .layers import Encoded, Write


class Destination(Protocol):
    """Receives the blobs of images, and then their manifests. Methods may be called from several threads.

    Nothing is visible under a name before `finish`, and what was received completely is kept and not sent
    again. Every method raises MissingError for faults of the network, the disk, the registry or the engine.
    """

    def has(self, digest: str, size: int) -> bool:
        """Return True if the blob is there. A registry also tries to mount it from another repository."""

    def receive(self, encode: Callable[[Write], Encoded], known: Encoded | None) -> Encoded:
        """Store the blob that `encode` writes.

        known: its digest and size where they are known in advance. Raises ValidatorError if `encode` then
        gives another digest; the destination keeps nothing of it. An error that `encode` raises passes
        through.
        """

    def finish(self, manifest: bytes, media_type: str) -> str:
        """Store the manifest, whose blobs are all there, under the image's name. Return its digest."""
