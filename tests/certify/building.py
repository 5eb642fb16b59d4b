"""Builders that tests make up: throw-away keys, and the provenance that they sign."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from validator.certify import signatures
from validator.certify.provenance import PREDICATE, Inputs, statement
from validator.certify.trust import THROW_AWAY, Party, Signatory, TrustFile
from validator.model.codec import now_utc
from validator.model.record import BaseOrigin
from validator.registry.client import Registry

from .fixtures import LOCK, MEASURED
from .private_keys import make_key, signed

INPUTS = Inputs(
    image="tf2.21.0-cuda12.5-cudnn9.3-py312",
    lock_digest=LOCK,
    recipe_digest="sha256:" + "6" * 64,
    base=BaseOrigin("registry", "python:3.12-slim-bookworm", f"sha256:{'7' * 64}"),
    source_commit="8" * 40,
    version="1.0.0",
)


#: The repository's path, the digest and the inputs of what was proven in this process.
_PROVEN: set[tuple[str, str, Inputs]] = set()


@dataclass(frozen=True)
class Builder:
    """A machine with a key. party: its entry in a trust file."""

    key: Path
    party: Party

    def sign(self, statement: bytes) -> bytes:
        """Return the bundle around a statement."""
        return signed(statement, self.key)

    def changed(self, **changes: Any) -> Builder:
        """Return the same machine with another entry."""
        return replace(self, party=replace(self.party, **changes))

    def statement(self, digest: str, inputs: Inputs = INPUTS) -> bytes:
        """Return what it says about an image that it built."""
        signatory = self.party.signatory
        return statement(digest, inputs, "registry.example/tf", signatory, finished=MEASURED)

    def prove_once(self, registry: Registry, digest: str, inputs: Inputs = INPUTS) -> None:
        """Prove an image that is in the registry, unless that was done before."""
        place = (registry.repository.path, digest, inputs)
        if place not in _PROVEN and registry.manifest(digest) is not None:
            self.prove(registry, digest, inputs)
            self.note_proven(registry, digest, inputs)

    def note_proven(self, registry: Registry, digest: str, inputs: Inputs) -> None:
        """Note that the image is proven in the registry."""
        _PROVEN.add((registry.repository.path, digest, inputs))

    def prove(self, registry: Registry, digest: str, inputs: Inputs = INPUTS) -> None:
        """Sign what an image was made from, and attach it."""
        signatures.attach(registry, digest, self.sign(self.statement(digest, inputs)), PREDICATE)


def trusting(*builders: Signatory) -> TrustFile:
    """Return a trust file with these builders."""
    until = now_utc() + timedelta(days=365)
    return TrustFile(
        builders=tuple(Party(f"builder-{number}", one, until) for number, one in enumerate(builders))
    )


def make_builder(directory: Path, name: str = "builder-1", *, throw_away: bool = True) -> Builder:
    """Make a builder. throw_away: mark the key as made for a test."""
    key = directory / f"{name}.pem"
    public = make_key(key)
    signatory = Signatory(key=f"{THROW_AWAY}\n{public}" if throw_away else public)
    return Builder(key, Party(name, signatory, now_utc() + timedelta(days=365)))
