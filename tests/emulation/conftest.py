"""Fixtures for these tests: the stubs, the probe, and a real TensorFlow of each release."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from validator.engines.probe_archive import probe_archive

from ..loop import tiers
from ..probe.environments import tensorflow_environment
from .environments import requirements_of
from .faults import faults
from .stubs import Stubs, build


@pytest.fixture(scope="session")
@tiers.service
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Stubs:
    return build(tmp_path_factory.mktemp("stubs"))


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("archive") / "probe.pyz"
    path.write_bytes(probe_archive())
    return path


@pytest.fixture(scope="session")
@tiers.engine
def tensorflow() -> Callable[[str], Path]:
    """The Python of a release with all of its CUDA libraries."""
    return lambda release: tensorflow_environment(requirements_of(faults()["no_driver"], release))
