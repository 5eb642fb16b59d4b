"""Who signs: a key pair, or the identity whose OIDC token is there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import InputError, MissingError
from . import cosign
from .trust import THROW_AWAY, Trust, read_key

_VARIABLE = "env://"


@dataclass(frozen=True)
class Signer:
    """key: the private key's file, or `env://NAME`; None signs as an identity.

    identity, issuer: who that is, as those who verify will ask for it.
    log: enter what a key signs into sigstore's public transparency log.
    """

    key: str | None = None
    password: str | None = field(default=None, repr=False)
    identity: str | None = None
    issuer: str | None = None
    trusted_root: Path | None = None
    log: bool = False

    @property
    def throw_away(self) -> bool:
        """Whether the key is marked as made for a test."""
        return self.key is not None and THROW_AWAY in self._text().splitlines()

    def sign(self, statement: bytes) -> bytes:
        """The bundle around a statement."""
        return cosign.sign(statement, key=self.key, password=self.password, log=self.log)

    @contextmanager
    def trust(self) -> Iterator[Trust]:
        """The trust that takes what this signer signs. Raises ValidatorError when the key can't be used."""
        if self.key is None:
            trust = Trust(identity=self.identity, issuer=self.issuer, trusted_root=self.trusted_root)
            trust.check()
            yield trust
            return
        throw_away = self.throw_away
        public = cosign.public_key(self.key, self.password or "")
        with tempfile.TemporaryDirectory(prefix="validator-key-") as name:
            file = Path(name) / "key.pub"
            file.write_text(_marked(public) if throw_away else public, encoding="ascii")
            yield Trust(key=file, fixtures=throw_away)

    def _text(self) -> str:
        key = self.key or ""
        if not key.startswith(_VARIABLE):
            return read_key(Path(key))
        name = key.removeprefix(_VARIABLE)
        if not os.environ.get(name):
            raise InputError(f"the variable {name}, which is to hold the private key, is not set")
        return os.environ[name]


def make_key_pair(prefix: Path, password: str, *, throw_away: bool = False) -> tuple[Path, Path]:
    """Writes `PREFIX.key`, readable by its owner alone, and `PREFIX.pub`, in cosign's format.

    throw_away: mark both as made for a test, see `Trust.fixtures`.

    Raises InputError when either is there already.
    """
    files = prefix.with_name(f"{prefix.name}.key"), prefix.with_name(f"{prefix.name}.pub")
    for file in files:
        if file.exists():
            raise InputError(f"{file}: is there already; keys are never overwritten", hint="choose a name")
    with tempfile.TemporaryDirectory(prefix="validator-key-") as name:
        pair = cosign.generate_key_pair(Path(name), password)
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
