"""Package sources as build secrets."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from validator.engines.docker.secrets import LARGEST_SECRET, write_secrets
from validator.errors import InputError
from validator.system.sources import PackageSources

CERTIFICATE = b"-----BEGIN CERTIFICATE-----\n" + b"QUJD\n" * 300 + b"-----END CERTIFICATE-----\n"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory without the developer's own netrc."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("NETRC", raising=False)
    return home


def read_by_shell(path: Path) -> dict[str, str]:
    """Return the variables that a shell gets from sourcing a file."""
    text = subprocess.run(
        ["sh", "-c", '. "$0"; env -0', path], env={}, stdout=subprocess.PIPE, check=True
    ).stdout.decode()
    found = dict(entry.partition("=")[::2] for entry in text.split("\0") if entry)
    return {name: value for name, value in found.items() if name not in ("PWD", "SHLVL", "_", "OLDPWD")}


@pytest.mark.service
def test_values_reach_the_shell_unchanged(tmp_path: Path) -> None:
    hostile = "https://us'er:p$a`id`ss\"@index.example/simple?a=1&b=2"
    sources = PackageSources(index_url=hostile, proxies={"https_proxy": "http://p;w@proxy:1"})
    variables = read_by_shell(write_secrets(sources, tmp_path)["sources"])
    assert variables["UV_DEFAULT_INDEX"] == hostile
    assert variables["HTTPS_PROXY"] == variables["https_proxy"] == "http://p;w@proxy:1"


def test_the_host_path_of_the_ca_bundle_stays_on_the_host(tmp_path: Path) -> None:
    bundle = tmp_path / "corporate.pem"
    bundle.write_bytes(CERTIFICATE)
    written = write_secrets(PackageSources(ca_bundle=bundle), tmp_path)
    assert "corporate" not in written["sources"].read_text(encoding="utf-8")
    assert written["ca"].read_bytes() == CERTIFICATE


def test_only_the_owner_can_read_the_files(tmp_path: Path) -> None:
    written = write_secrets(PackageSources(index_url="https://index.example/simple"), tmp_path)
    assert {path.stat().st_mode & 0o777 for path in written.values()} == {0o600}


def test_netrc_is_passed_to_the_build(tmp_path: Path, home: Path) -> None:
    assert "netrc" not in write_secrets(PackageSources(), tmp_path)
    (home / ".netrc").write_text("machine index.example login a password b\n", encoding="utf-8")
    assert b"password b" in write_secrets(PackageSources(), tmp_path)["netrc"].read_bytes()


def test_a_large_bundle_is_reduced_to_its_certificates(tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.pem"
    bundle.write_bytes((b"# a long comment\n" * 100 + CERTIFICATE) * 300)
    assert bundle.stat().st_size > LARGEST_SECRET
    assert write_secrets(PackageSources(ca_bundle=bundle), tmp_path)["ca"].read_bytes() == CERTIFICATE


def test_a_bundle_that_is_still_too_large_is_rejected_by_name(tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.pem"
    bundle.write_bytes(
        b"".join(CERTIFICATE.replace(b"QUJD", str(number).encode().zfill(4)) for number in range(400))
    )
    assert os.path.getsize(bundle) > LARGEST_SECRET
    with pytest.raises(InputError, match=r"bundle\.pem: the CA bundle has \d+ bytes"):
        write_secrets(PackageSources(ca_bundle=bundle), tmp_path)
