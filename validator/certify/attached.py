"""Find and attach certificates of an image in its registry: sigstore bundles around DSSE envelopes.

cosign 3 attaches a bundle as an artifact that refers to the image (OCI 1.1 referrers), and so does `certify`.
cosign 2 kept bare envelopes as the layers of another image with the tag `sha256-<digest>.att`; those that
a key signed are read too.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..registry.client import Registry
from .statement import PREDICATE

BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"
_ENVELOPE = "application/vnd.dsse.envelope.v1+json"
_PAYLOAD = "application/vnd.in-toto+json"
_CONTENT_MARK = "dev.sigstore.bundle.content"
_TYPE_MARK = "dev.sigstore.bundle.predicateType"
#: Bytes of a bundle. A certificate has about 10 kB.
_LARGEST = 4 << 20


class Unreadable(ValueError):
    """An attachment is not a bundle around a statement."""


@dataclass(frozen=True)
class Candidate:
    """An attachment that may be a certificate.

    what: its digest or tag, for people. read: fetches the bundle; raises Unreadable or ValidatorError.
    """

    what: str
    read: Callable[[], bytes]


def candidates(registry: Registry, digest: str) -> Iterator[Candidate]:
    """Yield the attachments of an image, except those that are marked as another predicate type."""
    for entry in registry.attached(digest, BUNDLE):
        # This mark is not signed, but whoever can change it could also remove the whole certificate.
        if entry.annotations.get(_TYPE_MARK, PREDICATE) == PREDICATE:
            yield Candidate(entry.digest, _reader(registry, entry.digest))
    tag = f"{digest.replace(':', '-')}.att"
    older = registry.digest_of(tag)
    manifest = registry.manifest(older) if older else None
    for layer in _layers(manifest or {}):
        if _annotations(layer).get("predicateType", PREDICATE) == PREDICATE:
            yield Candidate(f"{tag} {layer.get('digest')}", _older_reader(registry, layer))


def attach(registry: Registry, digest: str, bundle: bytes) -> str:
    """Attach a bundle as cosign does, and return the digest of the artifact that refers to the image."""
    return registry.attach(digest, BUNDLE, bundle, {_CONTENT_MARK: "dsse-envelope", _TYPE_MARK: PREDICATE})


def payload_of(bundle: bytes) -> bytes:
    """Return the signed statement in a bundle. Raises Unreadable."""
    document = _object(bundle)
    envelope = document.get("dsseEnvelope")
    if not isinstance(envelope, dict) or envelope.get("payloadType") != _PAYLOAD:
        raise Unreadable("it is not an in-toto statement in a DSSE envelope")
    try:
        return base64.b64decode(str(envelope.get("payload")), validate=True)
    except binascii.Error:
        raise Unreadable("its payload is not base64") from None


def is_by_key(bundle: bytes) -> bool:
    """Tell whether a bundle claims to be signed by a key rather than an identity. Raises Unreadable."""
    material = _object(bundle).get("verificationMaterial")
    return isinstance(material, dict) and "publicKey" in material


def _reader(registry: Registry, digest: str) -> Callable[[], bytes]:
    def read() -> bytes:
        layers = _layers(registry.manifest(digest) or {})
        if len(layers) != 1:
            raise Unreadable("it is not one bundle")
        return _blob(registry, layers[0])

    return read


def _older_reader(registry: Registry, layer: Mapping[str, Any]) -> Callable[[], bytes]:
    def read() -> bytes:
        if layer.get("mediaType") != _ENVELOPE:
            raise Unreadable(f"it is of type {layer.get('mediaType')!r}")
        if _annotations(layer).get("dev.sigstore.cosign/certificate"):
            raise Unreadable("an identity signed it in the format of cosign 2; attest it again with cosign 3")
        bundle = {
            "mediaType": BUNDLE,
            "verificationMaterial": {"publicKey": {"hint": ""}},
            "dsseEnvelope": _object(_blob(registry, layer)),
        }
        return json.dumps(bundle).encode()

    return read


def _blob(registry: Registry, layer: Mapping[str, Any]) -> bytes:
    size = layer.get("size")
    if not isinstance(size, int) or size > _LARGEST:
        raise Unreadable(f"it has {size} bytes")
    return registry.blob(str(layer.get("digest")))


def _layers(manifest: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    layers = manifest.get("layers")
    return [layer for layer in layers if isinstance(layer, dict)] if isinstance(layers, list) else []


def _annotations(layer: Mapping[str, Any]) -> Mapping[str, Any]:
    found = layer.get("annotations")
    return found if isinstance(found, dict) else {}


def _object(data: bytes) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"it can't be read: {error}") from None
    if not isinstance(document, dict):
        raise Unreadable("it is not a JSON object")
    return document
