"""Choose who signs what `build-matrix --push` builds, and the list that `sbom --attach` attaches to it."""

from __future__ import annotations

import os
from pathlib import Path

from ..certify.cosign import is_installed
from ..certify.registration import register_builder
from ..certify.signing import Signer
from ..certify.trust_file import read_trust_file
from ..errors import MissingError, ValidatorError
from .options import print_status

_UNSIGNED = "What is built here can't be certified"


def builder_of(trust_path: Path, key: str | None, identity: str | None, issuer: str | None) -> Signer | None:
    """Return who signs what is built here; prints why nobody does, or whose signature will not count."""
    if key is None and identity is None:
        registration = register_builder(trust_path)
        if registration.said:
            print_status(registration.said)
        return registration.signer
    if not is_installed():
        print_status(f"{_UNSIGNED}: the program cosign is not installed")
        return None
    signer = _signer(key, identity, issuer)
    if (stranger := _stranger(signer, trust_path)) is not None:
        print_status(f"{_UNSIGNED}: {trust_path} has no builder {stranger}")
    return signer


def trusted_builder_of(trust_path: Path, key: str | None, identity: str | None, issuer: str | None) -> Signer:
    """Return the signer of statements about an image that is already in a registry.

    Raises MissingError if nobody can, and ValidatorError if the trust file does not list the signer.
    """
    if key is None and identity is None:
        registration = register_builder(trust_path)
        if registration.signer is None:
            raise MissingError(registration.said or "this machine has no key")
        if registration.said:
            print_status(registration.said)
        return registration.signer
    signer = _signer(key, identity, issuer)
    if (stranger := _stranger(signer, trust_path)) is not None:
        raise ValidatorError(
            f"{trust_path} has no builder {stranger}, so nobody would accept what it signs",
            hint="use the key of a builder in that file, or name another file with --trust",
        )
    return signer


def _signer(key: str | None, identity: str | None, issuer: str | None) -> Signer:
    return Signer(key, os.environ.get("COSIGN_PASSWORD", "") if key else None, identity, issuer)


def _stranger(signer: Signer, trust_path: Path) -> str | None:
    """Return the name of a signer that is not a builder in the trust file; None for a builder."""
    with signer.trust() as own:
        known = read_trust_file(trust_path).builders if trust_path.exists() else ()
        return None if any(one.signatory.signer == own.signer for one in known) else own.signer
