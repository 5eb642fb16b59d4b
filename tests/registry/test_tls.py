"""Images are sent and read over TLS with a private authority, and through an HTTP proxy."""

from __future__ import annotations

import datetime
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from validator.assemble.image import RegistryDestination
from validator.errors import MissingError
from validator.registry import session as session_module
from validator.registry.blobs import Blobs
from validator.registry.client import Registry
from validator.registry.names import Repository

from ..assemble.synthetic import Image, digest, image
from .server import RunningRegistry, running_registry
from .tunnel import Tunnel, running_tunnel

pytestmark = pytest.mark.service

NAME = "registry.example"
PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove this machine's own proxies and authorities, and the pauses between attempts."""
    for name in (*PROXY_VARIABLES, "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setattr(session_module, "PAUSES", (0.0,))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a private authority: `ca`, and a registry's `certificate` and `key`."""
    directory = tmp_path_factory.mktemp("authority")
    ca_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "an authority of a test")])
    now = datetime.datetime.now(datetime.timezone.utc)

    def certificate(subject: x509.Name, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder(ca_name, subject, public, x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), False)
        )

    usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
    ca = certificate(ca_name, ca_key.public_key()).add_extension(x509.BasicConstraints(True, None), True)
    ca = ca.add_extension(usage, True)
    ca = ca.add_extension(x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), False)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    names = x509.SubjectAlternativeName([x509.DNSName(NAME)])
    own = certificate(subject, key.public_key()).add_extension(names, False)
    for name, made in (("ca", ca), ("certificate", own)):
        signed = made.sign(ca_key, hashes.SHA256())
        (directory / name).write_bytes(signed.public_bytes(Encoding.PEM))
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (directory / "key").write_bytes(private)
    return directory


@pytest.fixture(scope="module")
def server(authority: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningRegistry]:
    """Yield a registry with TLS."""
    files = (authority / "certificate", authority / "key")
    with running_registry(tmp_path_factory.mktemp("registry"), tls=files) as running:
        yield running


@pytest.fixture
def trusted(authority: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trust the private authority."""
    monkeypatch.setenv("SSL_CERT_FILE", str(authority / "ca"))


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process look up the registry's name, as a DNS server would."""
    look_up = socket.getaddrinfo

    def with_registry(host: Any, *arguments: Any, **options: Any) -> Any:
        return look_up("127.0.0.1" if host in (NAME, f"other.{NAME}") else host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", with_registry)


@pytest.fixture
def tunnel(server: RunningRegistry) -> Iterator[Tunnel]:
    """Yield a proxy that knows the registry's name, which this process does not."""
    with running_tunnel({f"{NAME}:443": server.address}) as running:
        yield running


def repository(server: RunningRegistry, path: str) -> Repository:
    return Repository(f"{NAME}:{server.address.partition(':')[2]}", path)


def sent_and_read(place: Repository, seed: int) -> Image:
    """Send an image, and read its layers."""
    made = image(seed, seed + 1)
    assert made.send(RegistryDestination(place, "v1")) == digest(made.manifest)
    blobs = Blobs.to_read(place)
    for layer in made.layers:
        assert b"".join(blobs.read(layer.encoded.digest, layer.encoded.size)) == layer.blob
    return made


def test_a_private_authority_is_trusted(server: RunningRegistry, known: None, trusted: None) -> None:
    made = sent_and_read(repository(server, "tls/trusted"), 70_000)
    assert server.tags("tls/trusted") == {"v1": digest(made.manifest)}


def test_an_unknown_authority_is_not(server: RunningRegistry, known: None) -> None:
    with pytest.raises(MissingError, match="has a TLS certificate that this machine does not trust"):
        sent_and_read(repository(server, "tls/unknown"), 70_010)
    assert server.tags("tls/unknown") == {}


def test_a_certificate_for_another_name_is_rejected(
    server: RunningRegistry, known: None, trusted: None
) -> None:
    place = repository(server, "tls/other")
    with pytest.raises(MissingError, match="has a TLS certificate that this machine does not trust"):
        sent_and_read(Repository(f"other.{place.host}", place.path), 70_020)
    assert server.tags("tls/other") == {}


def test_a_registry_elsewhere_needs_tls(known: None, trusted: None, tmp_path: Path) -> None:
    """Not even a first request is sent without it."""
    with running_registry(tmp_path) as plain:
        with pytest.raises(
            MissingError, match="uses HTTP without TLS, which is only allowed on this machine"
        ):
            sent_and_read(repository(plain, "tls/plain"), 70_030)
        assert "/v2/" not in plain.log.read_text(encoding="utf-8", errors="replace")


@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY"])
def test_a_registry_is_reached_through_a_proxy(
    server: RunningRegistry, tunnel: Tunnel, trusted: None, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, tunnel.url)
    path = f"tls/through-{variable.lower()}"
    made = sent_and_read(Repository(NAME, path), 70_040)
    assert server.tags(path) == {"v1": digest(made.manifest)}
    assert set(tunnel.asked) == {f"CONNECT {NAME}:443"}


def test_the_proxy_is_also_used_to_look_up_a_tag(
    tunnel: Tunnel, trusted: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", tunnel.url)
    place = Repository(NAME, "tls/looked-up")
    made = sent_and_read(place, 70_050)
    tunnel.asked.clear()
    assert Registry(place).digest_of("v1") == digest(made.manifest)
    assert set(tunnel.asked) == {f"CONNECT {NAME}:443"}


def test_no_proxy_is_used_for_what_no_proxy_names(
    server: RunningRegistry, tunnel: Tunnel, known: None, trusted: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", tunnel.url)
    monkeypatch.setenv("NO_PROXY", "elsewhere.example,.example")
    sent_and_read(repository(server, "tls/direct"), 70_060)
    assert tunnel.asked == []


def test_this_machine_is_not_reached_through_a_proxy(
    tunnel: Tunnel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, tunnel.url)
    with running_registry(tmp_path) as plain:
        sent_and_read(Repository(plain.address, "tls/loopback"), 70_070)
    assert tunnel.asked == []


@pytest.mark.parametrize("status", [403, 407, 502])
def test_a_proxy_that_refuses_is_an_error(
    tunnel: Tunnel, trusted: None, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    tunnel.status = status
    monkeypatch.setenv("HTTPS_PROXY", tunnel.url)
    with pytest.raises(MissingError, match=f"{NAME} can't be reached") as caught:
        sent_and_read(Repository(NAME, "tls/refused"), 70_080)
    assert tunnel.url not in str(caught.value)
