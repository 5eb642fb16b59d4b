"""The destinations of images: a registry, an OCI layout or a local engine, behind one protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ..errors import ValidatorError
from .layers import Encoded, Write


class Destination(Protocol):
    """Receives the blobs of images, and then their manifests. Methods may be called from several threads.

    Nothing is visible under a name before `finish`, and what was received completely is kept and not sent
    again. Every method raises MissingError for faults of the network, the disk, the registry or the engine.
    """

    def has(self, blob: Encoded) -> bool:
        """Return True if the blob is there. A registry also tries to mount it from another repository."""

    def receive(self, encode: Callable[[Write], Encoded], known: Encoded | None) -> Encoded:
        """Store the blob that `encode` writes.

        known: its digest and size where they are known in advance. Raises ValidatorError if `encode` then
        gives another digest; the destination keeps nothing of it. An error that `encode` raises passes
        through.
        """

    def finish(self, manifest: bytes, media_type: str) -> str:
        """Store the manifest, whose blobs are all there, under the image's name. Return its digest."""


def differs(made: Encoded, known: Encoded) -> ValidatorError:
    """Return the error for a layer that is not what the layer table says."""
    return ValidatorError(
        f"a layer was made with the digest {made.digest}, but the layer table says {known.digest}:"
        " the table is wrong, or a wheel changed while it was read",
        hint="run the same command again; if the error stays, remove the layer's row from the table",
    )
