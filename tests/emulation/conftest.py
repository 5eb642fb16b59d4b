"""Fixtures for these tests: the stubs, the probe, and a real TensorFlow of each release."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ..loop import tiers
from ..probe.environments import tensorflow_environment
from ..probe.unpacked import unpacked_probe
from .environments import requirements_of
from .faults import faults
from .stubs import Stubs, built


@pytest.fixture(scope="session")
@tiers.service
def stubs() -> Stubs:
    return built()


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked_probe(tmp_path_factory.mktemp("probe"))


@pytest.fixture(scope="session")
@tiers.engine
def tensorflow() -> Callable[[str], Path]:
    """Return the Python of a release with all of its CUDA libraries."""
    return lambda release: tensorflow_environment(requirements_of(faults()["no_driver"], release))
