"""JupyterLab starts from an assembled image of the variant jupyter, with a small stand-in for TensorFlow."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from validator.engines.base import Built
from validator.engines.docker import DockerEngine
from validator.engines.docker.endpoint import Endpoint
from validator.locks.resolve import resolve
from validator.matrix.additions import JUPYTER_PACKAGES
from validator.model.spec import JUPYTER_PORT, Variant
from validator.pipeline.workplace import Making, assembler
from validator.system.sources import host_sources

from .conftest import GPU, quiet, removed_afterwards, tensorflow

SPEC = replace(GPU, variant=Variant.JUPYTER)
#: JupyterLab's first start, on a machine with much to do.
_WITHIN_S = 120


@pytest.fixture
def image(docker_engine: DockerEngine, endpoint: Endpoint, tmp_path: Path) -> Iterator[Built]:
    """An image with the newest JupyterLab, whose wheels stay in this machine's cache."""
    stand_in = tensorflow(name="tensorflow")
    (tmp_path / stand_in.wheel.filename).write_bytes(stand_in.content)
    found = resolve(SPEC, JUPYTER_PACKAGES, host_sources())
    wheels = (*found.wheels, replace(stand_in.wheel, path=stand_in.wheel.filename))
    lock = replace(found, wheels=tuple(sorted(wheels, key=lambda wheel: wheel.name)))
    engine = DockerEngine(endpoint, assembler(host_sources(), Making(local=tmp_path), endpoint))
    yield from removed_afterwards(engine, endpoint, engine.build(SPEC, lock, quiet))


def test_it_answers_on_its_port(endpoint: Endpoint, image: Built) -> None:
    port = f"{JUPYTER_PORT}/tcp"
    container = endpoint.client.containers.run(image.reference, detach=True, ports={port: ("127.0.0.1", 0)})
    try:
        container.reload()
        [published, *_] = container.ports[port] or []
        address = f"http://127.0.0.1:{published['HostPort']}/api"
        deadline = time.monotonic() + _WITHIN_S
        while True:
            try:
                with urlopen(address, timeout=5) as answer:
                    version = json.load(answer)["version"]
                break
            except (URLError, ConnectionError):
                container.reload()
                assert container.status == "running", container.logs().decode()
                assert time.monotonic() < deadline, container.logs().decode()
                time.sleep(0.5)
        assert version.split(".")[0].isdigit()
        # The line to open it with, which has the token.
        assert f"http://127.0.0.1:{JUPYTER_PORT}/lab?token=" in container.logs().decode()
        exposed = endpoint.client.images.get(image.reference).attrs["Config"]["ExposedPorts"]
        assert list(exposed) == [port]
    finally:
        container.remove(force=True)
