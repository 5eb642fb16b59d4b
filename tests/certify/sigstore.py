"""A Sigstore of our own, without a server: certificate authority, logs and timestamp authority of a test run.

Every key is made here and kept in memory. `sign` returns what `cosign attest-blob` returns for an identity,
so that keyless verification is tested without a network. The formats: RFC 6962 (certificate transparency,
Merkle trees), RFC 3161 (timestamps), https://github.com/sigstore/fulcio/blob/main/docs/oid-info.md
(certificates) and https://github.com/sigstore/protobuf-specs (bundles, trusted roots).
"""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

from validator.certify.signatures import BUNDLE, IN_TOTO
from validator.certify.trust import Trust

IDENTITY = "https://github.example/team/images/.github/workflows/nightly.yml@refs/heads/main"
ISSUER = "https://issuer.example"

_SCT_LIST = ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")
_ISSUER = ObjectIdentifier("1.3.6.1.4.1.57264.1.1")
_ISSUER_V2 = ObjectIdentifier("1.3.6.1.4.1.57264.1.8")
_ORIGIN = "log.example"
_SHA256 = ec.ECDSA(hashes.SHA256())


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _spki(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _id(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return the id of a log: the digest of its public key."""
    return hashlib.sha256(_spki(key)).digest()


def _der(tag: int, content: bytes) -> bytes:
    assert len(content) < 0x10000
    size = bytes([len(content)]) if len(content) < 0x80 else b"\x82" + len(content).to_bytes(2, "big")
    return bytes([tag]) + size + content


def _name(name: str) -> x509.Name:
    organization = x509.NameAttribute(NameOID.ORGANIZATION_NAME, "a test")
    return x509.Name([organization, x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _usage(*, signs: bool, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=signs, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=authority, crl_sign=authority, encipher_only=False,
        decipher_only=False,
    )  # fmt: skip


@dataclass
class Sigstore:
    """The keys of a Sigstore, and the clock that its services agree on."""

    now: datetime = field(default_factory=lambda: datetime.now(timezone.utc).replace(microsecond=0))
    authority: ec.EllipticCurvePrivateKey = field(default_factory=_key)
    certificate_log: ec.EllipticCurvePrivateKey = field(default_factory=_key)
    log: ec.EllipticCurvePrivateKey = field(default_factory=_key)
    timestamps: ec.EllipticCurvePrivateKey = field(default_factory=_key)

    def __post_init__(self) -> None:
        self.root = self._root(self.authority, "a certificate authority")
        self.timestamp_root_key = _key()
        self.timestamp_root = self._root(self.timestamp_root_key, "a root of timestamps")
        self.timestamp_certificate = (
            self._builder(self.timestamps, "a timestamp authority", "a root of timestamps", days=365)
            .add_extension(_usage(signs=True, authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.TIME_STAMPING]), critical=True)
            .sign(self.timestamp_root_key, hashes.SHA256())
        )

    def trust(self, directory: Path, identity: str = IDENTITY, issuer: str = ISSUER) -> Trust:
        """Return the trust in an identity of this Sigstore."""
        return Trust(identity=identity, issuer=issuer, trusted_root=self.trusted_root(directory))

    def trusted_root(self, directory: Path) -> Path:
        """Write the trusted root, and return its file."""
        start = {"start": (self.now - timedelta(days=30)).strftime("%Y-%m-%dT%H:%M:%SZ")}

        def log(key: ec.EllipticCurvePrivateKey, url: str) -> dict[str, Any]:
            details = {
                "rawBytes": _b64(_spki(key)),
                "keyDetails": "PKIX_ECDSA_P256_SHA_256",
                "validFor": start,
            }
            return {
                "baseUrl": url, "hashAlgorithm": "SHA2_256", "publicKey": details,
                "logId": {"keyId": _b64(_id(key))},
            }  # fmt: skip

        def authority(url: str, *chain: x509.Certificate) -> dict[str, Any]:
            certificates = [{"rawBytes": _b64(entry.public_bytes(Encoding.DER))} for entry in chain]
            return {
                "subject": {"organization": "a test", "commonName": url}, "uri": url,
                "certChain": {"certificates": certificates}, "validFor": start,
            }  # fmt: skip

        document = {
            "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
            "tlogs": [log(self.log, f"https://{_ORIGIN}")],
            "ctlogs": [log(self.certificate_log, "https://certificates.example")],
            "certificateAuthorities": [authority("https://authority.example", self.root)],
            "timestampAuthorities": [
                authority("https://time.example", self.timestamp_certificate, self.timestamp_root)
            ],
        }
        file = directory / "trusted-root.json"
        file.write_text(json.dumps(document), encoding="utf-8")
        return file

    def environment(self, directory: Path) -> dict[str, str]:
        """Return the variables with which cosign takes this Sigstore for the public one."""
        keys = {
            "SIGSTORE_REKOR_PUBLIC_KEY": self.log,
            "SIGSTORE_CT_LOG_PUBLIC_KEY_FILE": self.certificate_log,
        }
        variables = {"SIGSTORE_ROOT_FILE": str(directory / "authority.pem")}
        (directory / "authority.pem").write_bytes(self.root.public_bytes(Encoding.PEM))
        for name, key in keys.items():
            public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
            (directory / name).write_bytes(public)
            variables[name] = str(directory / name)
        return variables

    def sign(
        self,
        statement: bytes,
        *,
        identity: str = IDENTITY,
        issuer: str = ISSUER,
        logged: datetime | None = None,
        timestamps: Path | None = None,
    ) -> bytes:
        """Return the bundle around a statement that an identity signs.

        logged: the time of the entry in the transparency log, if not now. timestamps: a directory to make a
        timestamp in, which replaces the time that the log promises.
        """
        key = _key()
        certificate = self._certificate(key, identity, issuer)
        kind = IN_TOTO.encode()
        signed = b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(statement), statement)
        signature = key.sign(signed, _SHA256)
        envelope = {
            "payload": _b64(statement), "payloadType": IN_TOTO, "signatures": [{"sig": _b64(signature)}]
        }  # fmt: skip
        entry = self._entry(envelope, statement, signature, certificate, logged or self.now)
        material: dict[str, Any] = {
            "certificate": {"rawBytes": _b64(certificate.public_bytes(Encoding.DER))},
            "tlogEntries": [entry],
        }
        if timestamps is not None:
            del entry["inclusionPromise"]
            token = self._timestamp(signature, timestamps)
            material["timestampVerificationData"] = {"rfc3161Timestamps": [{"signedTimestamp": _b64(token)}]}
        document = {"mediaType": BUNDLE, "verificationMaterial": material, "dsseEnvelope": envelope}
        return json.dumps(document).encode()

    def _builder(
        self, key: ec.EllipticCurvePrivateKey, name: str | None, issuer: str, *, days: float
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(_name(name) if name else x509.Name([]))
            .issuer_name(_name(issuer))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(self.now - timedelta(days=days))
            .not_valid_after(self.now + timedelta(days=days))
        )

    def _root(self, key: ec.EllipticCurvePrivateKey, name: str) -> x509.Certificate:
        return (
            self._builder(key, name, name, days=365)
            .add_extension(x509.BasicConstraints(ca=True, path_length=1), critical=True)
            .add_extension(_usage(signs=False, authority=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )

    def _certificate(self, key: ec.EllipticCurvePrivateKey, identity: str, issuer: str) -> x509.Certificate:
        """Return a certificate for ten minutes, with the certificate log's promise in it."""
        builder = (
            self._builder(key, None, "a certificate authority", days=5 / 24 / 60)
            .add_extension(_usage(signs=True, authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.authority.public_key()),
                critical=False,
            )
            .add_extension(
                x509.SubjectAlternativeName([x509.UniformResourceIdentifier(identity)]), critical=True
            )
            .add_extension(x509.UnrecognizedExtension(_ISSUER, issuer.encode()), critical=False)
            .add_extension(
                x509.UnrecognizedExtension(_ISSUER_V2, _der(0x0C, issuer.encode())), critical=False
            )
        )
        # The log signs the certificate without the extension that holds its promise.
        logged = builder.sign(self.authority, hashes.SHA256()).tbs_certificate_bytes
        time = int(self.now.timestamp() * 1000).to_bytes(8, "big")
        issuer_key = hashlib.sha256(_spki(self.authority)).digest()
        entry = b"\0\0" + time + b"\0\1" + issuer_key + len(logged).to_bytes(3, "big") + logged + b"\0\0"
        promise = self.certificate_log.sign(entry, _SHA256)
        timestamp = b"\0" + _id(self.certificate_log) + time + b"\0\0" + b"\4\3"
        timestamp += len(promise).to_bytes(2, "big") + promise
        one = len(timestamp).to_bytes(2, "big") + timestamp
        promises = len(one).to_bytes(2, "big") + one
        extension = x509.UnrecognizedExtension(_SCT_LIST, _der(0x04, promises))
        return builder.add_extension(extension, critical=False).sign(self.authority, hashes.SHA256())

    def _entry(
        self, envelope: dict[str, Any], statement: bytes, signature: bytes, certificate: x509.Certificate,
        logged: datetime,
    ) -> dict[str, Any]:  # fmt: skip
        """Return the entry of a transparency log that has no other."""

        def digest(data: bytes) -> dict[str, str]:
            return {"algorithm": "sha256", "value": hashlib.sha256(data).hexdigest()}

        verifier = _b64(certificate.public_bytes(Encoding.PEM))
        spec = {
            "envelopeHash": digest(_canonical(envelope)),
            "payloadHash": digest(statement),
            "signatures": [{"signature": _b64(signature), "verifier": verifier}],
        }
        body = _canonical({"apiVersion": "0.0.1", "kind": "dsse", "spec": spec})
        root = hashlib.sha256(b"\0" + body).digest()
        # The number of a tree marks a log of Rekor 1, whose entries have a time.
        note = f"{_ORIGIN} - 1\n1\n{_b64(root)}\n"
        mark = _b64(_id(self.log)[:4] + self.log.sign(note.encode(), _SHA256))
        time = int(logged.timestamp())
        promised = {
            "body": _b64(body), "integratedTime": time, "logID": _id(self.log).hex(), "logIndex": 0
        }  # fmt: skip
        return {
            "logIndex": "0",
            "logId": {"keyId": _b64(_id(self.log))},
            "kindVersion": {"kind": "dsse", "version": "0.0.1"},
            "integratedTime": str(time),
            "inclusionPromise": {"signedEntryTimestamp": _b64(self.log.sign(_canonical(promised), _SHA256))},
            "inclusionProof": {
                "logIndex": "0",
                "rootHash": _b64(root),
                "treeSize": "1",
                "checkpoint": {"envelope": f"{note}\n\u2014 {_ORIGIN} {mark}\n"},
            },
            "canonicalizedBody": _b64(body),
        }

    def _timestamp(self, signature: bytes, directory: Path) -> bytes:
        """Return the timestamp authority's response about a signature, made by OpenSSL."""
        key, certificate, data = directory / "tsa.key", directory / "tsa.pem", directory / "signature"
        key.write_bytes(
            self.timestamps.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
        )
        certificate.write_bytes(self.timestamp_certificate.public_bytes(Encoding.PEM))
        data.write_bytes(signature)
        (directory / "serial").write_text("01\n")
        (directory / "tsa.cnf").write_text(
            "[tsa]\ndefault_tsa = own\n[own]\nserial = serial\nsigner_digest = sha256\n"
            "default_policy = 1.2.3.4\ndigests = sha256\nordering = yes\ness_cert_id_alg = sha256\n"
        )
        for arguments in (
            ["-query", "-data", "signature", "-sha256", "-cert", "-out", "query"],
            ["-reply", "-queryfile", "query", "-config", "tsa.cnf", "-signer", "tsa.pem", "-inkey", "tsa.key",
             "-out", "reply"],
        ):  # fmt: skip
            subprocess.run(["openssl", "ts", *arguments], cwd=directory, check=True, capture_output=True)
        return (directory / "reply").read_bytes()


def _canonical(document: dict[str, Any]) -> bytes:
    """Return JSON in its canonical form (RFC 8785), for objects with ASCII in them."""
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def legacy(bundle: bytes, payload: bytes) -> bytes:
    """Return a bundle in cosign's older format that verifies, and that also looks like a newer one.

    The signature of `bundle` stands where cosign's older format has it. The envelope of the newer format
    holds `payload`, which nobody signed.
    """
    document = json.loads(bundle)
    entry, envelope = document["verificationMaterial"]["tlogEntries"][0], document["dsseEnvelope"]
    certificate = x509.load_der_x509_certificate(
        base64.b64decode(document["verificationMaterial"]["certificate"]["rawBytes"])
    )
    entry_as_it_was = {
        "body": entry["canonicalizedBody"],
        "integratedTime": int(entry["integratedTime"]),
        "logIndex": int(entry["logIndex"]),
        "logID": base64.b64decode(entry["logId"]["keyId"]).hex(),
    }
    forged = document | {
        "dsseEnvelope": envelope | {"payload": _b64(payload)},
        "base64Signature": _b64(_canonical(envelope)),
        "cert": _b64(certificate.public_bytes(Encoding.PEM)),
        "rekorBundle": {
            "SignedEntryTimestamp": entry["inclusionPromise"]["signedEntryTimestamp"],
            "Payload": entry_as_it_was,
        },
    }
    return json.dumps(forged).encode()
