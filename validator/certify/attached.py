"""Find signed statements about an image in its registry, and attach new ones.

Each is a Sigstore bundle, attached as an artifact that refers to the image (OCI 1.1 referrers), as cosign 3
does it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from ..model import codec
from ..model.codec import DocumentError
from ..registry.client import Registry

# Parse Sigstore bundles strictly, before any program verifies them.
#
# A bundle is a JSON object that holds an in-toto statement in a DSSE envelope, its signature, and what is
# needed to verify it: https://github.com/sigstore/protobuf-specs (protos/sigstore_bundle.proto), version
# 0.3. cosign also reads older formats, and tries them if a file is not a bundle of this version; it would
# then verify another part of the file than the one that is read here. So exactly this format is accepted,
# and cosign gets a new file that is written from what was parsed.

BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"
IN_TOTO = "application/vnd.in-toto+json"
#: Bytes of a bundle. A certificate has about 10 kB.
LARGEST = 4 << 20
#: Log entries and timestamps of one signature; cosign writes at most one of each.
_MOST_WITNESSES = 8
#: Hashes in a proof of inclusion: the height of a tree with 2^64 leaves.
_MOST_HASHES = 64
#: Characters that an error quotes from a bundle.
_LONGEST = 200


class BundleError(ValueError):
    """A file is not a bundle around a statement. The message says why."""


@dataclass(frozen=True)
class Bundle:
    """A bundle with one signature over an in-toto statement. Nothing is verified yet.

    canonical: the bundle as JSON, written anew from the parsed form.
    payload: the statement in it.
    by_key: True if it claims to be signed by a key, False for an identity's certificate.
    timestamped: True if a timestamp authority says when it was signed, rather than the transparency log.
    """

    canonical: bytes
    payload: bytes
    by_key: bool
    timestamped: bool = False


# The format, as protobuf's JSON mapping writes it. Optional fields stay unset, and are then not written.

#: Base64 in the standard alphabet, with padding, without unused bits: there is one text for the same bytes.
_Base64 = Annotated[
    str,
    Meta(
        pattern=r"\A(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?\Z",
    ),
]
_Bytes = Annotated[_Base64, Meta(min_length=4)]
#: A 64-bit integer, which protobuf writes as text.
_Integer = Annotated[str, Meta(pattern=r"\A(?:0|-?[1-9][0-9]{0,18})\Z")]


class _Message(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A message of the format. An unknown key is an error."""


class _PublicKey(_Message, frozen=True):
    hint: str | UnsetType = UNSET


class _Certificate(_Message, frozen=True):
    raw_bytes: _Bytes


class _LogId(_Message, frozen=True):
    key_id: _Bytes


class _KindVersion(_Message, frozen=True):
    kind: str
    version: str


class _InclusionPromise(_Message, frozen=True):
    signed_entry_timestamp: _Bytes


class _Checkpoint(_Message, frozen=True):
    envelope: str


class _InclusionProof(_Message, frozen=True):
    root_hash: _Bytes
    tree_size: _Integer
    checkpoint: _Checkpoint
    log_index: _Integer | UnsetType = UNSET
    hashes: Annotated[tuple[_Bytes, ...], Meta(max_length=_MOST_HASHES)] | UnsetType = UNSET


class _LogEntry(_Message, frozen=True):
    log_id: _LogId
    kind_version: _KindVersion
    inclusion_proof: _InclusionProof
    canonicalized_body: _Bytes | UnsetType = UNSET
    log_index: _Integer | UnsetType = UNSET
    integrated_time: _Integer | UnsetType = UNSET
    inclusion_promise: _InclusionPromise | UnsetType = UNSET


class _Timestamp(_Message, frozen=True):
    signed_timestamp: _Bytes


class _Timestamps(_Message, frozen=True):
    rfc3161_timestamps: Annotated[tuple[_Timestamp, ...], Meta(max_length=_MOST_WITNESSES)] | UnsetType = (
        msgspec.field(name="rfc3161Timestamps", default=UNSET)
    )


class _Material(_Message, frozen=True):
    public_key: _PublicKey | UnsetType = UNSET
    certificate: _Certificate | UnsetType = UNSET
    tlog_entries: Annotated[tuple[_LogEntry, ...], Meta(max_length=_MOST_WITNESSES)] | UnsetType = UNSET
    timestamp_verification_data: _Timestamps | UnsetType = UNSET


class _Signature(_Message, frozen=True):
    sig: _Bytes
    keyid: str | UnsetType = UNSET


class _Envelope(_Message, frozen=True):
    payload: _Bytes
    payload_type: str
    signatures: tuple[_Signature, ...]


class _Document(_Message, frozen=True):
    media_type: str
    verification_material: _Material
    dsse_envelope: _Envelope


def parse_bundle(data: bytes) -> Bundle:
    """Return the bundle in a file of at most `LARGEST` bytes. Raises BundleError."""
    if len(data) > LARGEST:
        raise BundleError(f"it is larger than {LARGEST >> 20} MiB")
    try:
        document = codec.convert(codec.parse_unique(data), _Document, "the bundle")
    except DocumentError as error:
        # The name of an unknown field may hold line ends.
        why = " ".join(str(error).split())[:_LONGEST]
        raise BundleError(f"it is not a bundle of format 0.3: {why}") from None
    material, envelope = document.verification_material, document.dsse_envelope
    if document.media_type != BUNDLE:
        raise BundleError(f"it is of type {document.media_type[:_LONGEST]!r}, not {BUNDLE}")
    if (material.public_key is UNSET) is (material.certificate is UNSET):
        raise BundleError("it must name either a public key or a certificate")
    if envelope.payload_type != IN_TOTO:
        raise BundleError(f"it holds {envelope.payload_type[:_LONGEST]!r}, not an in-toto statement")
    if len(envelope.signatures) != 1:
        raise BundleError(f"it has {len(envelope.signatures)} signatures, not one")
    canonical = json.dumps(msgspec.to_builtins(document)).encode("ascii")
    payload = base64.b64decode(envelope.payload, validate=True)
    # With Rekor 2, there is a timestamp but no time promised by a log.
    times, entries = material.timestamp_verification_data, material.tlog_entries
    promised = entries is not UNSET and any(entry.inclusion_promise is not UNSET for entry in entries)
    timestamped = times is not UNSET and bool(times.rfc3161_timestamps or ()) and not promised
    return Bundle(canonical, payload, material.public_key is not UNSET, timestamped)


_CONTENT_MARK = "dev.sigstore.bundle.content"
_TYPE_MARK = "dev.sigstore.bundle.predicateType"
_TIME_MARK = "org.opencontainers.image.created"
#: Attachments of an image that are fetched and verified. A nightly workflow adds one for each host class.
MOST = 100


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
    """Yield the attachments of an image, except those that are marked as another predicate type.

    The newest come first, and at most `MOST` of them: each costs a request and a run of cosign. These marks
    are not signed, but whoever can change them could also remove the whole statement.
    """
    listed = [
        entry
        for entry in registry.attached(digest, BUNDLE)
        if entry.annotations.get(_TYPE_MARK, predicate_types[0]) in predicate_types
    ]
    # Registries list the newest last. cosign also writes the time.
    listed.sort(key=lambda entry: entry.annotations.get(_TIME_MARK, ""))
    for entry in listed[: -MOST - 1 : -1]:
        yield Candidate(registry, entry.digest)


def attach(registry: Registry, digest: str, bundle: bytes, predicate_type: str) -> str:
    """Attach a bundle as cosign does, and return the digest of the artifact that refers to the image."""
    marks = {_CONTENT_MARK: "dsse-envelope", _TYPE_MARK: predicate_type}
    return registry.attach(digest, BUNDLE, bundle, marks)
