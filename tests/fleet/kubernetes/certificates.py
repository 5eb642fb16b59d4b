"""The keys, certificates and kubeconfigs of a cluster for tests, which is reached on 127.0.0.1 only."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

#: Common name and organization, which is Kubernetes' group, of each client.
CLIENTS = {
    "admin": ("admin", "system:masters"),
    "controller-manager": ("system:kube-controller-manager", ""),
    "scheduler": ("system:kube-scheduler", ""),
    "kubelet": ("system:node:127.0.0.1", "system:nodes"),
    "fleet": ("fleet", "testers"),
    "nobody": ("nobody", "testers"),
}


class Authority:
    """A certificate authority in a directory: `ca.crt`, and `NAME.crt` and `NAME.key` of everybody."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("test-ca", "")
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        certificate = self._builder(self._name, self._key.public_key(), 365).add_extension(constraints, True)
        (directory / "ca.crt").write_bytes(_pem(certificate.sign(self._key, hashes.SHA256())))

    def make_all(self) -> None:
        """Make the keys of the server, of service accounts and of all clients."""
        addresses = [x509.IPAddress(ipaddress.ip_address(text)) for text in ("127.0.0.1", "10.96.0.1")]
        names = x509.SubjectAlternativeName([*addresses, x509.DNSName("localhost")])
        self.issue("server", "kube-apiserver", extension=names)
        for name, (common_name, organization) in CLIENTS.items():
            self.issue(name, common_name, organization)
        # Expired for a day.
        self.issue("expired", "fleet", "testers", days=-1)
        accounts = ec.generate_private_key(ec.SECP256R1())
        (self.directory / "accounts.key").write_bytes(_private(accounts))
        public = accounts.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        (self.directory / "accounts.pub").write_bytes(public)

    def issue(
        self,
        name: str,
        common_name: str,
        organization: str = "",
        *,
        days: int = 365,
        extension: x509.SubjectAlternativeName | None = None,
    ) -> None:
        """Make the key and the certificate of a client, or with alternative names those of a server."""
        key = ec.generate_private_key(ec.SECP256R1())
        usage = ExtendedKeyUsageOID.SERVER_AUTH if extension else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = self._builder(_name(common_name, organization), key.public_key(), days)
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), False)
        if extension is not None:
            builder = builder.add_extension(extension, False)
        (self.directory / f"{name}.crt").write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))
        (self.directory / f"{name}.key").write_bytes(_private(key))

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, days: int
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.timezone.utc)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=2))
            .not_valid_after(now + datetime.timedelta(days=days))
        )


def write_kubeconfig(path: Path, server: str, authority: Path, client: str, namespace: str) -> None:
    """Write a kubeconfig with which a client of the authority reaches the API server."""

    def encoded(name: str) -> str:
        return base64.b64encode((authority / name).read_bytes()).decode()

    user = {
        "client-certificate-data": encoded(f"{client}.crt"),
        "client-key-data": encoded(f"{client}.key"),
    }
    cluster = {"server": server, "certificate-authority-data": encoded("ca.crt")}
    context = {"cluster": "test", "user": client, "namespace": namespace}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": context}],
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": client, "user": user}],
    }
    path.write_text(json.dumps(content, indent=1), encoding="utf-8")


def _name(common_name: str, organization: str) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    if organization:
        attributes.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(attributes)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
