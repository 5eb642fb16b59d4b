"""A registry for the tests in this directory, with a proxy in front of it for each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from validator.registry.names import Repository

from ..loop import tiers
from .proxy import Proxy, running_proxy
from .server import RunningRegistry, running_registry

_numbers = itertools.count()


@pytest.fixture(scope="session")
@tiers.service
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningRegistry]:
    with running_registry(tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture
def repository(server: RunningRegistry) -> Repository:
    """Return an empty repository."""
    return Repository(server.address, f"team/tensorflow-{next(_numbers)}")


@pytest.fixture
def proxy(server: RunningRegistry) -> Iterator[Proxy]:
    with running_proxy(server.address) as running:
        yield running


@pytest.fixture
def through(proxy: Proxy, repository: Repository) -> Repository:
    """Return the same repository behind the proxy."""
    return Repository(proxy.address, repository.path)
