"""Builders that tests make up: throw-away keys, and the provenance that they sign.

openssl signs here, because cosign takes most of a second for each signature. The bundles are those that
cosign writes, and cosign verifies them.
"""

from __future__ import annotations

import base64
import json
import subprocess
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from validator.certify import attached
from validator.certify.bundle import BUNDLE, IN_TOTO
from validator.certify.provenance import PREDICATE, Inputs, statement
from validator.certify.trust import THROW_AWAY, Signatory
from validator.certify.trust_file import Party, TrustFile
from validator.model.timestamps import now_utc
from validator.registry.client import Registry

from .fixtures import LOCK, MEASURED

INPUTS = Inputs(
    image="tf2.21.0-cuda12.5-cudnn9.3-py312",
    lock_digest=LOCK,
    recipe_digest="sha256:" + "6" * 64,
    base=f"registry:python:3.12-slim-bookworm@sha256:{'7' * 64}",
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
        signed = b"DSSEv1 %d %b %d %b" % (len(IN_TOTO), IN_TOTO.encode(), len(statement), statement)
        signature = _openssl("dgst", "-sha256", "-sign", str(self.key), data=signed)
        envelope = {
            "payload": base64.b64encode(statement).decode(),
            "payloadType": IN_TOTO,
            "signatures": [{"sig": base64.b64encode(signature).decode()}],
        }
        material = {"publicKey": {"hint": ""}}
        bundle = {"mediaType": BUNDLE, "verificationMaterial": material, "dsseEnvelope": envelope}
        return json.dumps(bundle).encode()

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
            _PROVEN.add(place)

    def prove(self, registry: Registry, digest: str, inputs: Inputs = INPUTS) -> None:
        """Sign what an image was made from, and attach it."""
        attached.attach(registry, digest, self.sign(self.statement(digest, inputs)), PREDICATE)


def trusting(*builders: Signatory) -> TrustFile:
    """Return a trust file with these builders."""
    until = now_utc() + timedelta(days=365)
    return TrustFile(
        builders=tuple(Party(f"builder-{number}", one, until) for number, one in enumerate(builders))
    )


def make_builder(directory: Path, name: str = "builder-1", *, throw_away: bool = True) -> Builder:
    """Make a builder. throw_away: mark the key as made for a test."""
    key = directory / f"{name}.pem"
    _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(key))
    public = _openssl("ec", "-in", str(key), "-pubout").decode()
    signatory = Signatory(key=f"{THROW_AWAY}\n{public}" if throw_away else public)
    return Builder(key, Party(name, signatory, now_utc() + timedelta(days=365)))


def _openssl(*arguments: str, data: bytes | None = None) -> bytes:
    return subprocess.run(["openssl", *arguments], input=data, capture_output=True, check=True).stdout
