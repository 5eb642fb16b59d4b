"""Servers and keys that the tests of several rooms share. Each worker makes its own, once."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from validator.certify.trust import Trust
from validator.registry import session

from .certify.fixtures import throw_away_key
from .certify.private_keys import KeyOwner
from .certify.sigstore import Sigstore
from .locks import local_index
from .loop import tiers
from .postgresql import Server, running_server
from .registry.proxy import Proxy, running_proxy
from .registry.server import RunningRegistry, running_registry
from .registry.stock import Stock

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="session")
@tiers.service
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningRegistry]:
    """Yield a registry. Tests take repositories of their own in it."""
    with running_registry(tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture
@tiers.service
def own_server(tmp_path: Path) -> Iterator[RunningRegistry]:
    """Yield a registry of a test's own: what another test pushes is not there."""
    with running_registry(tmp_path / "registry") as running:
        yield running


@pytest.fixture(scope="session")
@tiers.service
def stock(server: RunningRegistry) -> Stock:
    """Return what tests have put into that registry, for others to copy."""
    return Stock(server)


@pytest.fixture(scope="session")
@tiers.service
def browser() -> Iterator[Browser]:
    """Yield a Chromium. A process can have only one Playwright at a time, so all tests share it."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium here (Debian, Ubuntu: apt install chromium)")
    # Most workers need no browser.
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium)
        yield browser
        browser.close()


@pytest.fixture
def proxy(server: RunningRegistry, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """Yield a proxy for the registry: a thread of this process, so that each test can have its own.

    Failed requests are sent again as often as usual, but without a pause.
    """
    monkeypatch.setattr(session, "PAUSES", (0.0,) * len(session.PAUSES))
    with running_proxy(server.address) as running:
        yield running


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[local_index.LocalIndex]:
    """Yield a package index that has nothing new. If it fails, it is asked again without a pause."""
    monkeypatch.setattr("validator.locks.index._PAUSES", (0.0, 0.0, 0.0))
    with local_index.running() as running:
        yield running


@pytest.fixture(scope="session")
@tiers.service
def postgresql() -> Iterator[Server]:
    """Yield a database server. Tests make databases of their own in it."""
    with running_server() as running:
        yield running


@pytest.fixture(scope="session")
@tiers.service
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[KeyOwner, Trust]:
    """Return a key pair that is thrown away, and the trust in it."""
    return throw_away_key(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="session")
@tiers.service
def foreign(tmp_path_factory: pytest.TempPathFactory) -> tuple[KeyOwner, Trust]:
    """Return the key pair of somebody else, thrown away too."""
    return throw_away_key(tmp_path_factory.mktemp("foreign"), "foreign")


@pytest.fixture
@tiers.service
def sigstore() -> Sigstore:
    """Return a Sigstore for keyless signatures without a network.

    Each test has its own, because what it signs with is valid for five minutes.
    """
    return Sigstore()
