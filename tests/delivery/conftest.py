"""Start one registry and make one key pair for these tests, with a repository and a proxy for each test."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest
from docker.errors import ImageNotFound

from validator.certify.signatures import Signer
from validator.certify.trust import Trust
from validator.engines.endpoint import Endpoint, reach
from validator.errors import MissingError
from validator.registry import client as registry_module
from validator.registry import session as session_module
from validator.registry.client import Registry
from validator.registry.names import Repository

from ..loop import tiers
from ..registry.proxy import Proxy
from ..registry.server import RunningRegistry
from ..registry.stock import Stock
from .shelf import Shelf


@pytest.fixture
def shelf(
    server: RunningRegistry, stock: Stock, keys: tuple[Signer, Trust], monkeypatch: pytest.MonkeyPatch
) -> Shelf:
    """Return an empty repository. Nobody else writes to it, so pushes need no time to settle."""
    monkeypatch.setattr(registry_module, "_SETTLE_S", 0.0)
    return Shelf(Registry(Repository(server.address, f"team/pulled-{uuid4().hex}")), *keys, stock)


@pytest.fixture
def behind(shelf: Shelf, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    """Return the same repository through the proxy, with short pauses between attempts."""
    monkeypatch.setattr(session_module, "PAUSES", (0.1, 0.1))
    return dataclasses.replace(
        shelf, registry=Registry(Repository(proxy.address, shelf.registry.repository.path))
    )


@pytest.fixture(scope="module")
@tiers.docker
def engine() -> Iterator[Endpoint]:
    try:
        reached = reach()
    except MissingError as error:
        pytest.skip(str(error))
    if not reached.is_local:
        pytest.skip("the engine is remote, so it can't reach a registry on this machine")
    yield reached
    reached.quick.close()


@pytest.fixture
def stored(engine: Endpoint, shelf: Shelf, proxy: Proxy) -> Iterator[Callable[[], list[str]]]:
    """List the engine's names for images of the test's repository, direct or through the proxy."""

    def names() -> list[str]:
        path = shelf.registry.repository.path
        return sorted(
            {
                name
                for image in engine.quick.api.images()
                for name in (*(image["RepoTags"] or ()), *(image["RepoDigests"] or ()))
                if f"/{path}:" in name or f"/{path}@" in name
            }
        )

    assert names() == []
    yield names
    for name in names():
        # Removing the last name removes the image and all its other names.
        with contextlib.suppress(ImageNotFound):
            engine.quick.images.remove(name, force=True)
