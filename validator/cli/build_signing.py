"""Choose who signs what `build-matrix --push` builds."""

from __future__ import annotations

import os
from pathlib import Path

from ..certify.registration import register_builder
from ..certify.signing import Signer, is_installed
from ..certify.trust_file import read_trust_file
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
    signer = Signer(key, os.environ.get("COSIGN_PASSWORD", "") if key else None, identity, issuer)
    with signer.trust() as own:
        known = read_trust_file(trust_path).builders if trust_path.exists() else ()
        if not any(builder.signatory.signer == own.signer for builder in known):
            print_status(f"{_UNSIGNED}: {trust_path} has no builder {own.signer}")
    return signer
