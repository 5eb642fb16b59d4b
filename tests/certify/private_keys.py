"""Private keys that tests make up, which sign in this process.

cosign takes a quarter of a second of processor time to decrypt its key for each signature. The bundles are
those that cosign writes, and cosign verifies them.
"""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from validator.certify.signatures import BUNDLE, IN_TOTO, Signer
from validator.certify.trust import Trust


def make_key(path: Path) -> str:
    """Write a private key without a password to a file, and return its public half in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()))
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


@functools.cache
def _read(path: Path) -> ec.EllipticCurvePrivateKey:
    key = load_pem_private_key(path.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key


def signed(statement: bytes, path: Path) -> bytes:
    """Return the bundle around a statement that the key in this file signs."""
    text = b"DSSEv1 %d %b %d %b" % (len(IN_TOTO), IN_TOTO.encode(), len(statement), statement)
    envelope = {
        "payload": base64.b64encode(statement).decode(),
        "payloadType": IN_TOTO,
        "signatures": [{"sig": base64.b64encode(_read(path).sign(text, ec.ECDSA(hashes.SHA256()))).decode()}],
    }
    material = {"publicKey": {"hint": ""}}
    bundle = {"mediaType": BUNDLE, "verificationMaterial": material, "dsseEnvelope": envelope}
    return json.dumps(bundle).encode()


@dataclass(frozen=True)
class KeyOwner(Signer):
    """A signer for tests that are not about signing. plain: its key without the password."""

    plain: Path = Path()

    def sign(self, statement: bytes) -> bytes:
        return signed(statement, self.plain)

    @contextmanager
    def trust(self) -> Iterator[Trust]:
        yield Trust(key=Path(str(self.key)).with_suffix(".pub"), fixtures=True)

    def with_cosign(self) -> Signer:
        """Return the same signer as people have it: cosign signs."""
        return Signer(key=self.key, password=self.password)
