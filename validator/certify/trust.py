"""Define whose certificates count."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from ..errors import InputError
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
