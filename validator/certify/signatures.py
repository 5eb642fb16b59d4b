"""Signed statements about an image: parse bundles, find and attach them in a registry, and run `cosign`.

Each is a Sigstore bundle, attached as an artifact that refers to the image (OCI 1.1 referrers), as cosign 3
does it. cosign works on files here, one bundle at a time, and always gets explicit trusted roots. Signing and
verifying with a key needs no network: cosign gets empty lists of Sigstore's services and roots.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from ..errors import InputError, MissingError, ValidatorError
from ..model import codec
from ..model.codec import DocumentError
from ..registry.client import Registry
from ..registry.names import is_digest
from ..system import processes
from ..system.files import read_file
from ..system.runs import temporary_directory
from .trust import THROW_AWAY, Signatory, Trust, is_throw_away, public_pem

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
    Meta(pattern=r"\A(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?\Z"),
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
        if (entry.annotations or {}).get(_TYPE_MARK, predicate_types[0]) in predicate_types
    ]
    # Registries list the newest last. cosign also writes the time.
    listed.sort(key=lambda entry: (entry.annotations or {}).get(_TIME_MARK, ""))
    for entry in listed[: -MOST - 1 : -1]:
        yield Candidate(registry, entry.digest)


def attach(registry: Registry, digest: str, bundle: bytes, predicate_type: str) -> str:
    """Attach a bundle as cosign does, and return the digest of the artifact that refers to the image."""
    marks = {_CONTENT_MARK: "dsse-envelope", _TYPE_MARK: predicate_type}
    return registry.attach(digest, BUNDLE, bundle, marks)


_TIMEOUT_S = 180.0
_NO_SERVICES = (
    '{"mediaType":"application/vnd.dev.sigstore.signingconfig.v0.2+json","rekorTlogConfig":{},"tsaConfig":{}}'
)
_NO_ROOTS = '{"mediaType":"application/vnd.dev.sigstore.trustedroot+json;version=0.1"}'

#: What cosign prints -> why the certificate is rejected.
_REJECTIONS = (
    ("signatures do not match threshold", "it is not signed by the trusted key"),
    ("unsupported signature", "it is not signed by the trusted key"),
    ("no matching certificateidentity", "it is not signed by the trusted identity"),
    ("does not match any digest in statement", "it is about another image"),
    ("invalid predicate type", "it is a statement of another type"),
    ("not enough verified log entries", "it is not in the transparency log"),
    ("integrated time outside certificate validity", "it was not signed while the certificate was valid"),
)
#: Prefixes of the variables from which cosign reads keys, roots and mirrors.
_OTHER_ROOTS = ("SIGSTORE_", "TUF_", "COSIGN_")
_OTHER_KIND = {
    True: "it is signed by a key, but an identity is trusted",
    False: "it is signed by an identity, but a key is trusted",
}


#: What cosign has accepted in this process: the SHA-256 of a bundle, the digest, the predicate type and
#: the key. A key's signature depends on neither time nor network, and `promote` reads bundles repeatedly.
_accepted: set[tuple[bytes, str, str, str]] = set()


class NotVerified(ValidatorError):
    """A bundle is not signed by the signatory, or about something else. The message says why."""


def is_installed() -> bool:
    """Return True if this machine has cosign."""
    return shutil.which("cosign") is not None


def verify(bundle: Bundle, digest: str, predicate_type: str, signatory: Signatory) -> bytes:
    """Return the statement of that type about the image of that digest, which the signatory signed.

    The statement is read from the bytes that cosign verified. An identity's signature counts if it is in a
    transparency log, and the log or a timestamp authority says that it was made while the identity's
    certificate was valid. cosign verifies the same bundle with the same key once per process.

    Raises NotVerified with the reason; InputError if the signatory can't be used; MissingError if nothing can
    be verified: cosign is missing, or the roots of the public Sigstore can't be downloaded.
    """
    if bundle.by_key is not (signatory.key is not None):
        raise NotVerified(_OTHER_KIND[bundle.by_key])
    if not is_digest(digest):
        raise InputError(f"{digest!r} is not a valid digest", hint="write sha256: and 64 hexadecimal digits")
    public = public_pem(signatory.key) if signatory.key is not None else None
    what = (hashlib.sha256(bundle.canonical).digest(), digest, predicate_type, str(public))
    if public is not None and what in _accepted:
        return bundle.payload
    with _scratch() as directory:
        file, key, roots = directory / "bundle", directory / "key.pub", directory / "roots"
        file.write_bytes(bundle.canonical)
        arguments: list[str | Path] = ["verify-blob-attestation", "--bundle", file, "--type", predicate_type]
        arguments += ["--digest", digest.removeprefix("sha256:"), "--digestAlg", "sha256"]
        arguments += ["--trusted-root", roots]
        if public is not None:
            key.write_text(public, encoding="ascii")
            arguments += ["--key", key, "--insecure-ignore-tlog"]
        else:
            try:
                given = read_file(signatory.trusted_root) if signatory.trusted_root else None
            except OSError as error:
                raise InputError(f"{signatory.trusted_root}: can't be read: {error.strerror}") from error
            if given is None:
                with _download:
                    given = public_roots()
            roots.write_bytes(given)
            arguments += ["--certificate-identity", str(signatory.identity)]
            arguments += ["--certificate-oidc-issuer", str(signatory.issuer)]
            arguments += ["--use-signed-timestamps"] if bundle.timestamped else []
        done = _verifying_cosign(arguments, directory)
    if done.ok:
        if public is not None:
            _accepted.add(what)
        return bundle.payload
    message = done.stderr_tail.lower()
    if done.timed_out:
        raise MissingError(f"the signature can't be verified: {_last(done)}")
    known = next((why for mark, why in _REJECTIONS if mark in message), None)
    raise NotVerified(known or f"cosign rejects it: {_last(done)}")


_download = threading.Lock()


@lru_cache(maxsize=1)
def public_roots() -> bytes:
    """Download the public Sigstore's roots, which cosign verifies with the root that it was built with."""
    with _scratch() as directory:
        file = directory / "public"
        arguments: list[str | Path] = ["trusted-root", "create", "--with-default-services", "--out", file]
        done = _verifying_cosign(arguments, directory)
        if done.ok and file.exists():
            return file.read_bytes()
    raise MissingError(
        f"the signature can't be verified: the public Sigstore's roots can't be downloaded: {_last(done)}",
        hint="check the network, or give the roots as a file: --trusted-root FILE",
    )


def _run(arguments: Sequence[str | Path], *, password: str | None, what: str) -> bytes:
    done = _cosign(arguments, password=password)
    if done.ok:
        return done.stdout
    message = done.stderr_tail
    if "decrypt" in message.lower():
        raise ValidatorError(f"{what}: wrong password for the key", hint="give it in COSIGN_PASSWORD")
    raise MissingError(f"{what}: {_last(done)}")


def _verifying_cosign(arguments: Sequence[str | Path], directory: Path) -> processes.Completed:
    """Run cosign without the variables and the cache from which it takes other keys and roots."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_OTHER_ROOTS)}
    return _cosign(arguments, environment=environment | {"TUF_ROOT": str(directory / "tuf")})


def _cosign(
    arguments: Sequence[str | Path],
    *,
    password: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> processes.Completed:
    if not is_installed():
        raise MissingError(
            "the program cosign is not installed",
            hint="install cosign 3 or newer (Debian and Homebrew have it)",
        )
    # The password is passed in the environment: every user of the machine can read command lines.
    variables = dict(os.environ if environment is None else environment)
    variables.pop("COSIGN_PASSWORD", None)
    if password is not None:
        variables["COSIGN_PASSWORD"] = password
    done = processes.run(["cosign", *arguments], env=variables, timeout_s=_TIMEOUT_S)
    if not done.ok and "unknown flag" in done.stderr_tail:
        raise MissingError(f"this cosign is too old: {_last(done)}", hint="install cosign 3 or newer")
    return done


def _last(done: processes.Completed) -> str:
    if done.timed_out:
        return f"cosign did not end within {_TIMEOUT_S:.0f} s"
    lines = [line.strip() for line in done.stderr_tail.splitlines() if line.strip()]
    # The first error line is the same as the last, without a second prefix.
    found = next((line.removeprefix("Error: ") for line in lines if line.startswith("Error: ")), None)
    return (found or (lines or ["cosign printed nothing"])[-1])[:300]


@contextmanager
def _scratch() -> Iterator[Path]:
    with temporary_directory("cosign") as directory:
        (directory / "services").write_text(_NO_SERVICES, encoding="ascii")
        (directory / "roots").write_text(_NO_ROOTS, encoding="ascii")
        yield directory


# The signer of statements, and new key pairs, in files that only their owner can read.

_VARIABLE = "env://"


@dataclass(frozen=True)
class Signer:
    """The key or the identity that signs.

    key: the private key's file, or `env://NAME`; None signs as an identity.
    identity, issuer: of that identity, as people will name it when they verify.
    log: add an entry to sigstore's public transparency log when a key signs.
    """

    key: str | None = None
    password: str | None = field(default=None, repr=False)
    identity: str | None = None
    issuer: str | None = None
    trusted_root: Path | None = None
    log: bool = False

    @property
    def throw_away(self) -> bool:
        """True if the key is marked as a throw-away key, made for a test."""
        if self.key is None:
            return False
        if not self.key.startswith(_VARIABLE):
            return is_throw_away(Path(self.key))
        name = self.key.removeprefix(_VARIABLE)
        if not os.environ.get(name):
            raise InputError(f"the variable {name}, which should contain the private key, is not set")
        return is_throw_away(os.environ[name])

    def sign(self, statement: bytes) -> bytes:
        """Return the bundle around a statement, which contains it unchanged in a DSSE envelope.

        An identity is that of the OIDC token in the environment, and always adds an entry to the transparency
        log.
        """
        with _scratch() as directory:
            file, bundle = directory / "statement", directory / "bundle"
            file.write_bytes(statement)
            arguments: list[str | Path] = ["attest-blob", "--yes", "--statement", file, "--bundle", bundle]
            if self.key is not None:
                arguments += ["--key", self.key]
                if not self.log:
                    arguments += ["--signing-config", directory / "services"]
                    arguments += ["--trusted-root", directory / "roots"]
            _run(arguments, password=self.password, what="the statement was not signed")
            return bundle.read_bytes()

    @contextmanager
    def trust(self) -> Iterator[Trust]:
        """Return the trust that accepts this signer. Raises ValidatorError when the key can't be used."""
        if self.key is None:
            trust = Trust(identity=self.identity, issuer=self.issuer, trusted_root=self.trusted_root)
            trust.check()
            yield trust
            return
        throw_away = self.throw_away
        arguments = ["public-key", "--key", self.key]
        what = f"the key {self.key} can't be used"
        public = _run(arguments, password=self.password or "", what=what).decode()
        with temporary_directory("key") as directory:
            file = directory / "key.pub"
            file.write_text(_marked(public) if throw_away else public, encoding="ascii")
            yield Trust(key=file, fixtures=throw_away)


def make_key_pair(prefix: Path, password: str, *, throw_away: bool = False) -> tuple[Path, Path]:
    """Write `PREFIX.key`, readable only by its owner, and `PREFIX.pub`, in cosign's format.

    throw_away: mark both as made for a test, see `Trust.fixtures`. Raises InputError if either file exists.
    """
    files = prefix.with_name(f"{prefix.name}.key"), prefix.with_name(f"{prefix.name}.pub")
    for file in files:
        if file.exists():
            raise InputError(
                f"{file}: already exists; keys are never overwritten", hint="choose another name"
            )
    with temporary_directory("key") as directory:
        new = directory / "new"
        command = ["generate-key-pair", "--output-key-prefix", str(new)]
        _run(command, password=password, what="no key pair was made")
        pair = [new.with_suffix(suffix).read_text(encoding="ascii") for suffix in (".key", ".pub")]
    for file, text, mode in zip(files, pair, (0o600, 0o644), strict=True):
        try:
            handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        except OSError as error:
            raise MissingError(f"{file}: can't be written: {error.strerror}") from error
        with os.fdopen(handle, "w", encoding="ascii") as stream:
            stream.write(_marked(text) if throw_away else text)
    return files


def _marked(key: str) -> str:
    return f"{THROW_AWAY}\n{key}"
