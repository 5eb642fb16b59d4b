"""Read `trust.yaml`, next to `matrix.yaml`: who may sign, and which limits are refused.

The file is read from the certifier's own checkout, never from an artifact: whoever can change it decides what
is certified.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ..errors import InputError
from ..matrix.document import Document, EmptyFile, check_shape, plain_value, read_document
from ..matrix.document import Path as Place
from ..matrix.problems import MatrixError, quote, unknown_name
from ..matrix.schema import Axis, Text
from ..model.codec import NEVER, parse_timestamp
from ..model.measurement import Source
from ..problems import CATALOGUE, LIMIT
from ..resources import manual
from .trust import THROW_AWAY, Signatory, public_pem

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
