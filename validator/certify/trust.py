"""Whose certificates count, and `trust.yaml` next to the matrix: who may sign, and which limits are refused.

The file is read from the certifier's own checkout, never from an artifact: whoever can change it decides what
is certified.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ..errors import InputError
from ..matrix.document import (
    Document,
    EmptyFile,
    MatrixError,
    check_shape,
    plain_value,
    quote,
    read_document,
    unknown_name,
)
from ..matrix.document import Path as Place
from ..matrix.schema import Axis, Text
from ..model.codec import NEVER, parse_timestamp
from ..model.measurement import Source
from ..problems import CATALOGUE, LIMIT
from ..resources import manual
from ..system.files import read_text

#: A line before the key in its file, where PEM allows text (RFC 7468). cosign ignores it.
THROW_AWAY = "This key is thrown away with the test that made it: what it signs proves nothing."
_BEGIN = "-----BEGIN "
_PUBLIC = re.compile(r"-----BEGIN PUBLIC KEY-----\s+([A-Za-z0-9+/=\s]+)-----END PUBLIC KEY-----")


@dataclass(frozen=True)
class Signatory:
    """A trusted signer: the owner of a key pair, or (keyless) an identity.

    key: the public key, as its file or as its PEM text.
    identity, issuer: as Sigstore's certificate authority confirmed them, such as a workflow's address and
        `https://token.actions.githubusercontent.com`.
    trusted_root: Sigstore's roots as a file, for those who run their own; None: those of the public Sigstore.
    """

    key: Path | str | None = None
    identity: str | None = None
    issuer: str | None = None
    trusted_root: Path | None = None

    def check(self) -> None:
        """Raise InputError when it names nobody, or can't be used."""
        if self.key is None and not (self.identity and self.issuer):
            raise InputError(
                "no trusted signer was given",
                hint="name the public key with --key (or VALIDATOR_KEY), or the signer with --identity and"
                " --issuer; `run --uncertified` starts an image that nobody signed",
            )
        if self.key is not None and (self.identity or self.issuer):
            raise InputError("give a trusted key or a trusted identity, not both")
        if self.key is not None:
            public_pem(self.key)

    @property
    def signer(self) -> str:
        """The signer's name in certificates: the key's fingerprint, or the identity."""
        return fingerprint(self.key) if self.key is not None else str(self.identity)

    @property
    def throw_away(self) -> bool:
        """True if the key is marked as made for a test."""
        return self.key is not None and is_throw_away(self.key)


@dataclass(frozen=True)
class Trust(Signatory):
    """The signatory whose certificates count.

    fixtures: accept certificates of test fixtures. This needs a throw-away key, and such a key signs nothing
        else: no trust accepts both real certificates and fixtures.
    refuse_limits: codes of limits. A certificate with one of them does not count.
    """

    fixtures: bool = False
    refuse_limits: tuple[str, ...] = ()

    def check(self) -> None:
        super().check()
        if self.fixtures and (self.key is None or not is_throw_away(self.key)):
            raise InputError(
                "certificates of test fixtures are accepted only with a throw-away key",
                hint="make such a key with `certify keygen --throw-away`",
            )


@dataclass(frozen=True)
class Terms:
    """The conditions that a certificate must meet.

    trust: whose certificates count. max_age: the oldest measurement to accept. accept_expired: accept
    expired certificates. now: None for the current time.
    """

    trust: Trust
    max_age: timedelta | None = None
    accept_expired: bool = False
    now: datetime | None = None


def public_pem(key: Path | str) -> str:
    """Return the PEM block of one public key, given its file or its text. Raises InputError."""
    text = read_key(key)
    match = _PUBLIC.search(text)
    try:
        encoded = base64.b64decode("".join(match[1].split()), validate=True) if match else b""
    except binascii.Error:
        encoded = b""
    if not encoded or text.count(_BEGIN) != 1:
        raise InputError(
            f"{key if isinstance(key, Path) else 'the key in the trust file'}: not a public key",
            hint="it has one block, which begins with -----BEGIN PUBLIC KEY-----;"
            " `cosign public-key --key FILE` writes it",
        )
    return f"{_BEGIN}PUBLIC KEY-----\n{base64.b64encode(encoded).decode()}\n-----END PUBLIC KEY-----\n"


def fingerprint(key: Path | str) -> str:
    """Return `sha256:` over a public key's DER encoding. Raises InputError for anything but a public key."""
    encoded = base64.b64decode(public_pem(key).splitlines()[1])
    return f"sha256:{hashlib.sha256(encoded).hexdigest()}"


def is_throw_away(key: Path | str) -> bool:
    """Tell whether a key, private or public, is marked as made for a test."""
    return THROW_AWAY in read_key(key).splitlines()


def read_key(key: Path | str) -> str:
    """Return the text of a key, given its file or its text. Raises InputError when it can't be read."""
    if isinstance(key, str):
        return key
    try:
        return read_text(key)
    except OSError as error:
        raise InputError(
            f"{key}: can't be read: {error.strerror}",
            hint="to verify images, ask whoever publishes them for their public key, and name its file:"
            f" {manual('how-to/pull-an-image.md')}",
        ) from error


#: The file's name, next to the matrix.
NAME = "trust.yaml"
HINT = f"{manual('reference/trust-file.md')} describes the file"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_PEM = re.compile(
    rf"\s*({re.escape(THROW_AWAY)}\s+)?"
    r"-----BEGIN PUBLIC KEY-----\s+[A-Za-z0-9+/=\s]+-----END PUBLIC KEY-----\s*"
)
_GLOB = re.compile(r"[a-z0-9.*+-]+")
#: The facts from outside that have to be allowed. What the host itself reads always counts.
_SOURCES = (Source.NODE_LABELS.value,)
#: The codes of the limits that a probe can report.
_LIMITS = tuple(code for code, kind in CATALOGUE.items() if kind.severity == LIMIT)


@dataclass(frozen=True)
class Party:
    """A builder or a runner.

    until, revoked: its signatures count only before these times; revoked is None if it was not revoked.
    host_classes: the host classes that a runner may sign for; empty for a builder.
    outside: where a runner's facts from outside the container may come from, in addition to its own host.
    """

    name: str
    signatory: Signatory
    until: datetime
    revoked: datetime | None = None
    host_classes: tuple[str, ...] = ()
    outside: tuple[Source, ...] = ()

    @property
    def labels_trusted(self) -> bool:
        """True if the labels of a node count as facts from outside the container."""
        return Source.NODE_LABELS in self.outside

    def may_sign_for(self, host_class: str) -> bool:
        """Return True if a runner may sign for a host class."""
        # No dash, or a runner for *-t4 could sign for a model that it calls h100-t4.
        patterns = (re.escape(glob).replace(r"\*", "[^-]*") for glob in self.host_classes)
        return any(re.fullmatch(pattern, host_class) for pattern in patterns)

    def silent_since(self, at: datetime) -> str | None:
        """Return why the party's signature does not count at that time, or None if it does."""
        if self.revoked is not None and at >= self.revoked:
            return f"was revoked from {self.revoked.isoformat()} on"
        if at >= self.until:
            return f"was registered until {self.until.isoformat()}"
        return None


@dataclass(frozen=True)
class TrustFile:
    """The trusted signers. release: the only signer of certificates; None: whoever runs `certify`.

    refuse_limits: codes of limits. A certificate with one of them does not count.
    """

    release: Signatory | None = None
    builders: tuple[Party, ...] = ()
    runners: tuple[Party, ...] = ()
    refuse_limits: tuple[str, ...] = ()

    def party_of(self, public_key: str) -> Party | None:
        """Return the builder or runner with this public key."""
        signer = Signatory(key=public_key).signer
        parties = (*self.builders, *self.runners)
        return next((party for party in parties if party.signatory.signer == signer), None)


def read_trust_file(path: Path) -> TrustFile:
    """Read the file. Raises InputError, with the line of each problem."""
    if not path.exists():
        raise InputError(
            f"{path}: does not exist, so nobody may sign measurements",
            hint="register the machines that measure: `runner init --register` on the machine adds it;"
            f" {HINT}",
        )
    try:
        return _parties(read_document(path))
    except EmptyFile:
        return TrustFile()
    except MatrixError as error:
        raise InputError(str(error), hint=HINT) from None


def is_empty(path: Path) -> bool:
    """Tell whether the reader of YAML finds nothing but comments in the file."""
    try:
        read_document(path)
    except MatrixError as error:
        return isinstance(error, EmptyFile)
    return False


# The shape of the file.


class _Release(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    key: Text = ""
    identity: Text = ""
    issuer: Text = ""


class _Builder(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    name: Text
    key: Text = ""
    identity: Text = ""
    issuer: Text = ""
    until: datetime
    revoked: datetime = NEVER


class _Runner(_Builder, frozen=True, forbid_unknown_fields=True, kw_only=True):
    host_classes: Axis
    outside: Axis = []


_Parties = Annotated[list[_Builder], Meta(max_length=1000)]
_Runners = Annotated[list[_Runner], Meta(max_length=1000)]


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    release: _Release = _Release()
    builders: _Parties = []
    runners: _Runners = []
    refuse_limits: Axis = []


def _parties(document: Document) -> TrustFile:
    check_shape(document, _File)
    document.raise_problems()
    content = plain_value(document.root)
    release = _signatory(content["release"], ("release",), document) if "release" in content else None
    found = {
        section: tuple(
            _party(entry, (section, index), document) for index, entry in enumerate(content.get(section, []))
        )
        for section in ("builders", "runners")
    }
    document.raise_problems()
    _refuse_repeats(release, found, document)
    codes = content.get("refuse_limits", [])
    codes = [codes] if isinstance(codes, str) else codes
    for index, code in enumerate(codes):
        if code not in _LIMITS:
            document.report(("refuse_limits", index), unknown_name(code, _LIMITS))
    document.raise_problems()
    return TrustFile(release, found["builders"], found["runners"], tuple(codes))


def _party(entry: dict[str, Any], place: Place, document: Document) -> Party:
    if not _NAME.fullmatch(entry["name"]):
        document.report((*place, "name"), f"{quote(entry['name'])} is not a name: use letters, digits, . _ -")
    globs = entry.get("host_classes", [])
    globs = [globs] if isinstance(globs, str) else globs
    for index, glob in enumerate(globs):
        if not _GLOB.fullmatch(glob):
            message = f'{quote(glob)} is not a host class (such as "r580-h100", or "*-h100" for every driver)'
            document.report((*place, "host_classes", index), message)
    sources = entry.get("outside", [])
    sources = [sources] if isinstance(sources, str) else sources
    for index, source in enumerate(sources):
        if source not in _SOURCES:
            document.report((*place, "outside", index), unknown_name(source, _SOURCES))
    until = parse_timestamp(entry["until"])
    assert until is not None
    revoked = parse_timestamp(entry["revoked"]) if "revoked" in entry else None
    known = tuple(Source(source) for source in sources if source in _SOURCES)
    signatory = _signatory(entry, place, document)
    return Party(entry["name"], signatory, until, revoked, tuple(globs), known)


def _signatory(entry: dict[str, str], place: Place, document: Document) -> Signatory:
    given = {name for name in ("key", "identity", "issuer") if name in entry}
    if given == {"key"}:
        try:
            is_key = _PEM.fullmatch(entry["key"]) is not None and bool(public_pem(entry["key"]))
        except InputError:
            is_key = False
        if not is_key:
            message = "not a public key in PEM: it begins with -----BEGIN PUBLIC KEY-----"
            document.report((*place, "key"), message)
        return Signatory(key=f"{entry['key'].strip()}\n")
    if given == {"identity", "issuer"}:
        return Signatory(identity=entry["identity"], issuer=entry["issuer"])
    document.report(place, "needs either a key, or an identity and its issuer")
    return Signatory()


def _refuse_repeats(
    release: Signatory | None, found: dict[str, tuple[Party, ...]], document: Document
) -> None:
    """Report names and signers that are given twice: it would not be clear which entry revokes a key.

    The release signer may have the identity of a builder, because one workflow may be both, unless that is
    revoked: the release signer can't be.
    """
    names: set[str] = set()
    keys = {release.signer} if release is not None and release.key is not None else set[str]()
    placed = (((section, index), one) for section in found for index, one in enumerate(found[section]))
    for place, party in placed:
        if party.name in names:
            document.report((*place, "name"), f"the name {quote(party.name)} is given twice")
        names.add(party.name)
        if release is not None and party.revoked is not None and party.signatory == release:
            document.report(("release",), f"its identity is revoked as that of {quote(party.name)}")
        if party.signatory.key is not None:
            signer = party.signatory.signer
            message = "this key is given twice; each role needs a key of its own"
        else:
            signer = f"{party.signatory.identity}\n{party.signatory.issuer}"
            message = "this identity is given twice; each party needs one of its own"
        if signer in keys:
            document.report((*place, "key" if party.signatory.key is not None else "identity"), message)
        keys.add(signer)
