"""The signer of statements, and new key pairs, in files that only their owner can read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import InputError, MissingError
from ..system.runs import temporary_directory
from .cosign import generate_key_pair, public_key, sign
from .trust import THROW_AWAY, Trust, read_key

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
        return self.key is not None and THROW_AWAY in self._text().splitlines()

    def sign(self, statement: bytes) -> bytes:
        """Return the bundle around a statement."""
        return sign(statement, key=self.key, password=self.password, log=self.log)

    @contextmanager
    def trust(self) -> Iterator[Trust]:
        """Return the trust that accepts this signer. Raises ValidatorError when the key can't be used."""
        if self.key is None:
            trust = Trust(identity=self.identity, issuer=self.issuer, trusted_root=self.trusted_root)
            trust.check()
            yield trust
            return
        throw_away = self.throw_away
        public = public_key(self.key, self.password or "")
        with temporary_directory("key") as directory:
            file = directory / "key.pub"
            file.write_text(_marked(public) if throw_away else public, encoding="ascii")
            yield Trust(key=file, fixtures=throw_away)

    def _text(self) -> str:
        key = self.key or ""
        if not key.startswith(_VARIABLE):
            return read_key(Path(key))
        name = key.removeprefix(_VARIABLE)
        if not os.environ.get(name):
            raise InputError(f"the variable {name}, which should contain the private key, is not set")
        return os.environ[name]


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
        pair = generate_key_pair(directory, password)
    for file, text, mode in zip(files, pair, (0o600, 0o644), strict=True):
        _write_new(file, _marked(text) if throw_away else text, mode)
    return files


def _write_new(file: Path, text: str, mode: int) -> None:
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except OSError as error:
        raise MissingError(f"{file}: can't be written: {error.strerror}") from error
    with os.fdopen(handle, "w", encoding="ascii") as stream:
        stream.write(text)


def _marked(key: str) -> str:
    return f"{THROW_AWAY}\n{key}"
