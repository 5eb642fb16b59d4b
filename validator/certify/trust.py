"""Whose certificates count."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from ..errors import InputError

#: A line before the key in its file, where PEM allows text (RFC 7468). cosign reads over it.
THROW_AWAY = "This key is thrown away with the test that made it: what it signs proves nothing."
_PUBLIC = re.compile(r"-----BEGIN PUBLIC KEY-----\s+([A-Za-z0-9+/=\s]+)-----END PUBLIC KEY-----")


@dataclass(frozen=True)
class Trust:
    """Whose signature is taken: that of a key pair, or (keyless) that of an identity.

    key: the public key's file.
    identity, issuer: as sigstore's certificate authority confirmed them, such as a workflow's address and
        `https://token.actions.githubusercontent.com`.
    trusted_root: sigstore's roots as a file, for those who run their own; None: sigstore's public ones.
    fixtures: take certificates of test fixtures. Only with a key that is marked as thrown away, and such a
        key signs nothing else: what is real and what is not can't be had by one and the same trust.
    """

    key: Path | None = None
    identity: str | None = None
    issuer: str | None = None
    trusted_root: Path | None = None
    fixtures: bool = False

    def check(self) -> None:
        """Raises InputError when it names nobody, or can't be used."""
        if self.key is None and not (self.identity and self.issuer):
            raise InputError(
                "nothing says whose certificates to trust",
                hint="name the public key with --key (or VALIDATOR_KEY), or who signs with --identity and"
                " --issuer",
            )
        if self.key is not None and (self.identity or self.issuer):
            raise InputError("certificates are trusted by a key or by an identity, not by both")
        if self.key is not None:
            fingerprint(self.key)
        if self.fixtures and (self.key is None or not is_throw_away(self.key)):
            raise InputError(
                "certificates of test fixtures are taken only with a key that is marked as thrown away",
                hint="such a key is made by `certify keygen --throw-away`",
            )

    @property
    def signer(self) -> str:
        """As certificates name who signed: the key's fingerprint, or the identity."""
        return fingerprint(self.key) if self.key is not None else str(self.identity)


def fingerprint(key: Path) -> str:
    """`sha256:` over a public key as it is encoded in its file (DER). Raises InputError for anything else."""
    match = _PUBLIC.search(read_key(key))
    try:
        encoded = base64.b64decode("".join(match[1].split()), validate=True) if match else b""
    except binascii.Error:
        encoded = b""
    if not encoded:
        raise InputError(
            f"{key}: is no public key",
            hint="it begins with -----BEGIN PUBLIC KEY-----; `cosign public-key --key FILE` writes it",
        )
    return f"sha256:{hashlib.sha256(encoded).hexdigest()}"


def is_throw_away(key: Path) -> bool:
    """Whether the file of a key, private or public, is marked as made for a test."""
    return THROW_AWAY in read_key(key).splitlines()


def read_key(key: Path) -> str:
    """A key's file. Raises InputError where it can't be read."""
    try:
        return key.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no PEM file"
        raise InputError(f"{key}: can't be read: {reason}") from error
