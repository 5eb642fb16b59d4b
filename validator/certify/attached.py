"""Find signed statements about an image in its registry, and attach new ones.

Each is a Sigstore bundle, attached as an artifact that refers to the image (OCI 1.1 referrers), as cosign 3
does it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..registry.client import Registry
from .bundle import BUNDLE, LARGEST, Bundle, BundleError, parse_bundle

_CONTENT_MARK = "dev.sigstore.bundle.content"
_TYPE_MARK = "dev.sigstore.bundle.predicateType"


@dataclass(frozen=True)
class Candidate:
    """An attachment that may be a bundle around a statement of a wanted type. what: its digest."""

    registry: Registry
    what: str

    def read(self) -> Bundle:
        """Fetch and parse the bundle. Raises BundleError or ValidatorError."""
        manifest = self.registry.manifest(self.what)
        layers = (manifest and manifest.layers) or ()
        if len(layers) != 1:
            raise BundleError("it is not a single bundle")
        if layers[0].size > LARGEST:
            raise BundleError(f"it has {layers[0].size} bytes")
        return parse_bundle(self.registry.blob(layers[0].digest, LARGEST))


def candidates(registry: Registry, digest: str, *predicate_types: str) -> Iterator[Candidate]:
    """Yield the attachments of an image, except those that are marked as another predicate type."""
    for entry in registry.attached(digest, BUNDLE):
        # This mark is not signed, but whoever can change it could also remove the whole statement.
        if entry.annotations.get(_TYPE_MARK, predicate_types[0]) in predicate_types:
            yield Candidate(registry, entry.digest)


def attach(registry: Registry, digest: str, bundle: bytes, predicate_type: str) -> str:
    """Attach a bundle as cosign does, and return the digest of the artifact that refers to the image."""
    marks = {_CONTENT_MARK: "dsse-envelope", _TYPE_MARK: predicate_type}
    return registry.attach(digest, BUNDLE, bundle, marks)
