"""What makes a signature count: a trusted key or identity, and the answer to a challenge.

A challenge is a random number that a measurement has to repeat, so that an old measurement can't be reused.
Whoever certifies makes one for each cell and run, and accepts a measurement only with a challenge of its own
that no other record has used. The time when it was made is known to the certifier, so a measurement can't
claim to be older than its challenge.

The trust file is in `trust_file`: commands that need no file start without what reads it.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import re
import secrets
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from ..errors import InputError, MissingError
from ..model import codec
from ..model.codec import DocumentError, format_timestamp, now_utc, parse_timestamp
from ..model.record import Source
from ..resources import manual
from ..system.files import machine_directory, make_machine_directory, read_file, read_text

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
        # `*` matches no dash, or a runner for *-t4 could sign for a model that it calls h100-t4.
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


#: How long a challenge stays valid. By default, certificates are valid for the same time.
LIFETIME = timedelta(days=14)
_FORM = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Challenge:
    """32 random bytes in hex, with what they were made for: a cell, or an image spec on any host class."""

    value: str
    asked: str
    issued: datetime

    def is_for(self, image: str, cell: str) -> bool:
        """Return True if a measurement of this cell may answer the challenge."""
        return self.asked in (image, cell)


def new_challenge(asked: str, now: datetime | None = None) -> Challenge:
    """Make a challenge. asked: the cell or the image spec that is to be measured."""
    return Challenge(secrets.token_hex(32), asked, now or now_utc())


# In a workflow, one job makes the challenges and passes them to the certifying job as a file.


class _Row(msgspec.Struct):
    id: str
    challenge: str
    issued: str


class _Rows(msgspec.Struct):
    include: list[_Row]


@dataclass
class IssuedChallenges:
    """The challenges of one run of a workflow."""

    by_value: dict[str, Challenge]
    _used: dict[str, str] = field(default_factory=dict)

    def find(self, value: str) -> Challenge | None:
        """Return the challenge with this value, if the run made it."""
        return self.by_value.get(value)

    def use(self, value: str, record: str) -> str | None:
        """Use a challenge for a record, once. Return the id of another record that has used it before.

        The same record may use it again, so that an interrupted `certify` can be repeated.
        """
        before = self._used.setdefault(value, record)
        return None if before == record else before


def read_challenges(path: Path) -> IssuedChallenges:
    """Read the cells of a workflow's plan: `{"include": [{"id": CELL, "challenge": …, "issued": …}]}`.

    Raises InputError.
    """
    try:
        rows = codec.convert(codec.parse(read_file(path)), _Rows).include
    except OSError as error:
        raise InputError(f"{path}: can't be read: {error.strerror}") from error
    except DocumentError as error:
        raise InputError(f"{path}: not a file of challenges: {error}", hint=_MADE_BY) from None
    found: dict[str, Challenge] = {}
    for row in rows:
        issued = parse_timestamp(row.issued)
        if not _FORM.fullmatch(row.challenge) or issued is None:
            raise InputError(f"{path}: the challenge of {row.id} can't be read", hint=_MADE_BY)
        if row.challenge in found:
            raise InputError(f"{path}: {row.id} has the challenge of another cell", hint=_MADE_BY)
        found[row.challenge] = Challenge(row.challenge, row.id, issued)
    return IssuedChallenges(found)


_MADE_BY = "`certify challenges` writes such a file"


# On a machine that both measures and certifies, or that certifies for others by hand.


class Ledger:
    """The challenges that this machine made, in its own directory. Several processes may use it at once."""

    def __init__(self) -> None:
        self.path = machine_directory() / "challenges.db"

    def issue(self, asked: str, now: datetime | None = None) -> Challenge:
        """Make a challenge and note it. Raises MissingError if it can't be noted."""
        made = new_challenge(asked, now)
        with self._open() as database:
            # A challenge that is not in the file is refused, so expired ones can be deleted.
            database.execute("DELETE FROM challenges WHERE issued < ?", (_text(made.issued - 2 * LIFETIME),))
            database.execute(
                "INSERT INTO challenges (value, asked, issued) VALUES (?, ?, ?)",
                (made.value, made.asked, _text(made.issued)),
            )
        return made

    def find(self, value: str) -> Challenge | None:
        """Return the challenge with this value, if this machine made it. Raises MissingError."""
        if not self.path.exists():
            return None
        with self._open() as database:
            row = database.execute(
                "SELECT asked, issued FROM challenges WHERE value = ?", (value,)
            ).fetchone()
        issued = parse_timestamp(row[1]) if row else None
        return Challenge(value, row[0], issued) if issued is not None else None

    def use(self, value: str, record: str) -> str | None:
        """Use a challenge for a record, once, like `IssuedChallenges.use`. Raises MissingError."""
        with self._open() as database:
            database.execute(
                "UPDATE challenges SET record = ? WHERE value = ? AND record IS NULL", (record, value)
            )
            row = database.execute("SELECT record FROM challenges WHERE value = ?", (value,)).fetchone()
        assert row is not None, "only a challenge that was found is used"
        return None if row[0] == record else str(row[0])

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Open the file for one transaction, which waits for those of other processes."""
        make_machine_directory()
        try:
            with contextlib.closing(sqlite3.connect(self.path, timeout=30, isolation_level=None)) as database:
                database.execute("BEGIN IMMEDIATE")
                database.execute(_TABLE)
                yield database
                database.execute("COMMIT")
        except sqlite3.Error as error:
            raise MissingError(
                f"{self.path}: the challenges can't be read or written: {error}",
                hint="if the file is damaged, remove it; what was measured but not certified yet has to be"
                " measured again",
            ) from error


#: The challenges that a certifier made.
Challenges = IssuedChallenges | Ledger
_TABLE = (
    "CREATE TABLE IF NOT EXISTS challenges"
    " (value TEXT PRIMARY KEY, asked TEXT NOT NULL, issued TEXT NOT NULL, record TEXT)"
)


def _text(when: datetime) -> str:
    return format_timestamp(when, "milliseconds")
