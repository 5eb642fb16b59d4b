"""The fixtures of the tests with Docker, with Podman in its place. Skipped, with the reason, without it."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from validator.engines.endpoint import Endpoint, connect_podman
from validator.errors import MissingError

from ...loop import tiers
from ..docker.conftest import (  # noqa: F401
    base_image,
    cache,
    cpu_image,
    docker_engine,
    gpu_image,
    index,
    maker,
    tiny_engine,
)

_LIMITS = {"nofile": resource.RLIMIT_NOFILE, "nproc": resource.RLIMIT_NPROC}
#: More processes than any container of the tests has.
_MOST = 20_000


@contextlib.contextmanager
def limited(directory: Path) -> Iterator[None]:
    """Let Podman keep the limits that root has, also in a container that may not raise them.

    directory: for Podman's configuration.
    """
    limits = {
        name: min((value for value in resource.getrlimit(kind) if 0 < value < _MOST), default=_MOST)
        for name, kind in _LIMITS.items()
    }
    settings = directory / "containers.conf"
    chosen = ", ".join(f'"{name}={value}:{value}"' for name, value in limits.items())
    settings.write_text(f"[containers]\ndefault_ulimits = [{chosen}]\n", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTAINERS_CONF", str(settings))
        yield


@pytest.fixture(scope="session")
@tiers.docker
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """Connect to Podman."""
    with limited(tmp_path_factory.mktemp("containers")):
        try:
            found = connect_podman()
        except MissingError as error:
            pytest.skip(str(error))
        yield found
        found.client.close()
        found.quick.close()
