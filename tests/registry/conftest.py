"""A registry for the tests in this directory, with a proxy in front of it for each test."""

from __future__ import annotations

import itertools

import pytest

from validator.registry.names import Repository

from .proxy import Proxy
from .server import RunningRegistry

_numbers = itertools.count()


@pytest.fixture
def repository(server: RunningRegistry) -> Repository:
    """Return an empty repository."""
    return Repository(server.address, f"team/tensorflow-{next(_numbers)}")


@pytest.fixture
def through(proxy: Proxy, repository: Repository) -> Repository:
    """Return the same repository behind the proxy."""
    return Repository(proxy.address, repository.path)
