"""Provide a registry, throw-away keys, and a certified image for each test."""

from __future__ import annotations

import itertools

import pytest

from validator.certify.signatures import Signer, candidates, make_key_pair
from validator.certify.statement import PREDICATE
from validator.certify.trust import Trust
from validator.registry import client as registry_module
from validator.registry.client import Registry
from validator.registry.names import Repository, identifier_of

from ..loop import tiers
from ..registry.images import push_image
from ..registry.proxy import Proxy
from ..registry.server import RunningRegistry
from ..registry.stock import Stock
from .fixtures import PASSWORD, record
from .measuring import certify_measured, note_proven, prove
from .private_keys import KeyOwner

TAG = "2.21.0-cuda12.5-cudnn9.3-py3.12"
NAMED = "tf2.21.0-cuda12.5-cudnn9.3-py312"
_numbers = itertools.count()


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the waiting for other processes: nobody else attaches anything at the same time."""
    monkeypatch.setattr(registry_module, "_SETTLE_S", 0.0)


@pytest.fixture
def repository(server: RunningRegistry) -> Repository:
    """Return a repository that nothing was pushed to yet."""
    return Repository(server.address, f"team/certified-{next(_numbers)}")


@pytest.fixture
def registry(repository: Repository) -> Registry:
    return Registry(repository)


@pytest.fixture
def through(proxy: Proxy, repository: Repository) -> Registry:
    """Return the same repository, reached through the proxy."""
    return Registry(Repository(proxy.address, repository.path))


@pytest.fixture
def image(stock: Stock, repository: Repository) -> str:
    """Push an image with the tag of its image spec, signed by its builder, and return its digest."""

    return put_image(stock, repository)


@pytest.fixture
def certificate(stock: Stock, repository: Repository, image: str, signer: Signer, trust: Trust) -> bytes:
    """Certify the image, and return the bundle that is attached to it."""

    def fill(place: Repository) -> bytes:
        registry = Registry(place)
        certify_measured(registry, record(put_image(stock, place)), signer, trust)
        (candidate,) = candidates(registry, image, PREDICATE)
        return candidate.read().canonical

    return stock.put(repository, (TAG, "certified"), fill)


def put_image(stock: Stock, repository: Repository) -> str:
    """Push the image of the fixture `image`, and return its digest."""
    identifier = str(identifier_of(TAG))

    def fill(place: Repository) -> str:
        digest = push_image(place, TAG)
        prove(Registry(place), digest, identifier)
        return digest

    digest = stock.put(repository, TAG, fill)
    note_proven(Registry(repository), digest, identifier)
    return digest


@pytest.fixture(scope="session")
def signer(keys: tuple[KeyOwner, Trust]) -> KeyOwner:
    return keys[0]


@pytest.fixture(scope="session")
def by_cosign(signer: KeyOwner) -> Signer:
    """Return the same signer as people have it, for tests about signing."""
    return signer.with_cosign()


@pytest.fixture(scope="session")
def trust(keys: tuple[Signer, Trust]) -> Trust:
    return keys[1]


@pytest.fixture(scope="session")
@tiers.service
def release(tmp_path_factory: pytest.TempPathFactory) -> tuple[Signer, Trust]:
    """Return a pair without the mark, as releases have, to see that it does not sign a fixture."""
    private, public = make_key_pair(tmp_path_factory.mktemp("release") / "release", PASSWORD)
    return Signer(key=str(private), password=PASSWORD), Trust(key=public)
