"""Say whose certificates count."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from ..errors import InputError

#: A line before the key in its file, where PEM allows text (RFC 7468). cosign ignores it.
THROW_AWAY = "This key is thrown away with the test that made it: what it signs proves nothing."
_PUBLIC = re.compile(r"-----BEGIN PUBLIC KEY-----\s+([A-Za-z0-9+/=\s]+)-----END PUBLIC KEY-----")


@dataclass(frozen=True)
class Trust:
    """The accepted signature: of a key pair, or (keyless) of an identity.

    key: the public key's file.
    identity, issuer: as sigstore's certificate authority confirmed them, such as a workflow's address and
        `https://token.actions.githubusercontent.com`.
    trusted_root: sigstore's roots as a file, for those who run their own; None: sigstore's public ones.
    fixtures: accept certificates of test fixtures. This needs a throw-away key, and such a key signs nothing
        else: no trust accepts both real certificates and fixtures.
    """

    key: Path | None = None
    identity: str | None = None
    issuer: str | None = None
    trusted_root: Path | None = None
    fixtures: bool = False

    def check(self) -> None:
        """Raise InputError when it names nobody, or can't be used."""
        if self.key is None and not (self.identity and self.issuer):
            raise InputError(
                "no trusted signer was given",
                hint="name the public key with --key (or VALIDATOR_KEY), or the signer with --identity and"
                " --issuer",
            )
        if self.key is not None and (self.identity or self.issuer):
            raise InputError("give a trusted key or a trusted identity, not both")
        if self.key is not None:
            fingerprint(self.key)
        if self.fixtures and (self.key is None or not is_throw_away(self.key)):
            raise InputError(
                "certificates of test fixtures are accepted only with a throw-away key",
                hint="make such a key with `certify keygen --throw-away`",
            )

    @property
    def signer(self) -> str:
        """The signer's name in certificates: the key's fingerprint, or the identity."""
        return fingerprint(self.key) if self.key is not None else str(self.identity)


def fingerprint(key: Path) -> str:
    """Return `sha256:` over a public key's DER encoding. Raises InputError for anything but a public key."""
    match = _PUBLIC.search(read_key(key))
    try:
        encoded = base64.b64decode("".join(match[1].split()), validate=True) if match else b""
    except binascii.Error:
        encoded = b""
    if not encoded:
        raise InputError(
            f"{key}: not a public key",
            hint="it begins with -----BEGIN PUBLIC KEY-----; `cosign public-key --key FILE` writes it",
        )
    return f"sha256:{hashlib.sha256(encoded).hexdigest()}"


def is_throw_away(key: Path) -> bool:
    """Tell whether a key file, private or public, is marked as made for a test."""
    return THROW_AWAY in read_key(key).splitlines()


def read_key(key: Path) -> str:
    """Return the text of a key file. Raises InputError when it can't be read."""
    try:
        return key.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a PEM file"
        raise InputError(f"{key}: can't be read: {reason}") from error
