"""Real TensorFlow in real images, probed by the real probe."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.docker.conftest import PYTHON, quiet, removed_afterwards
from tests.probe.environments import AS_BUILT_2_21
from validator.engines.archive import probe_archive
from validator.engines.base import Built, ProbeRequest
from validator.engines.docker import DockerEngine
from validator.engines.docker.endpoint import Endpoint
from validator.locks.files import render
from validator.locks.resolve import resolve
from validator.model.lock import Lock
from validator.model.spec import Choice, ImageSpec, Variant
from validator.system.sources import host_sources

pytestmark = [pytest.mark.docker, pytest.mark.network, pytest.mark.slow]

CPU = ImageSpec("2.21.0", PYTHON, Variant.CPU)
GPU = ImageSpec("2.21.0", PYTHON, Variant.GPU, Choice("as-built", "12.5"), Choice("as-built", "9.3"))


@pytest.fixture(scope="module")
def cpu_lock() -> Lock:
    return resolve(CPU, ["tensorflow-cpu==2.21.0"], host_sources())


@pytest.fixture(scope="module")
def gpu_lock() -> Lock:
    return resolve(GPU, AS_BUILT_2_21, host_sources())


@pytest.fixture(scope="module")
def real_cpu_image(docker_engine: DockerEngine, endpoint: Endpoint, cpu_lock: Lock) -> Iterator[Built]:
    yield from removed_afterwards(docker_engine, endpoint, docker_engine.build(CPU, cpu_lock, quiet))


@pytest.fixture(scope="module")
def real_gpu_image(docker_engine: DockerEngine, endpoint: Endpoint, gpu_lock: Lock) -> Iterator[Built]:
    yield from removed_afterwards(docker_engine, endpoint, docker_engine.build(GPU, gpu_lock, quiet))


def probe(engine: DockerEngine, image: Built, lock: Lock) -> dict[str, dict[str, Any]]:
    """The probe's checks by name."""
    request = ProbeRequest(
        probe_archive(), ("--lock", "lock.txt"), {"lock.txt": render(lock).encode()}, timeout_s=600
    )
    report = json.loads(engine.probe(image, request, quiet))
    return {check["id"]: check for check in report["checks"]}


def test_a_cpu_image_compiles_with_xla(
    docker_engine: DockerEngine, real_cpu_image: Built, cpu_lock: Lock
) -> None:
    checks = probe(docker_engine, real_cpu_image, cpu_lock)
    assert checks["lock_match"]["outcome"] == "pass", checks["lock_match"]
    assert checks["xla_train_step"]["outcome"] == "pass", checks["xla_train_step"]


def test_a_gpu_image_holds_what_its_lock_says(
    docker_engine: DockerEngine, real_gpu_image: Built, gpu_lock: Lock
) -> None:
    checks = probe(docker_engine, real_gpu_image, gpu_lock)
    for name in ("lock_match", "cuda_libraries", "cudnn_load", "tensorflow_build", "xla_train_step"):
        assert checks[name]["outcome"] == "pass", checks[name]
    assert "9.3.0" in checks["cudnn_load"]["summary"]


def test_the_loader_finds_cudnn_without_tensorflows_runpath(
    endpoint: Endpoint, real_gpu_image: Built
) -> None:
    """As releases need that have no RUNPATH to the wheels, 2.16.1 among them."""
    load = "import ctypes; [ctypes.CDLL(name) for name in ('libcudnn.so.9', 'libcublas.so.12', 'libcufft.so.11')]"
    endpoint.client.containers.run(
        real_gpu_image.reference, ["python", "-c", load], remove=True, network_mode="none"
    )
