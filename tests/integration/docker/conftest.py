"""A real engine, and small images in it. Skipped, with the reason, if no engine responds."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from docker.errors import ImageNotFound

from validator.engines.base import Built
from validator.engines.docker import DockerEngine
from validator.engines.docker.endpoint import Endpoint, connect
from validator.errors import MissingError
from validator.model.lock import Lock
from validator.model.spec import Choice, ImageSpec, Variant
from validator.system.sources import PackageSources, host_sources

from ...emulation import cdi
from ...loop import tiers
from ...registry.proxy import Proxy, running_proxy
from ...registry.server import RunningRegistry, running_registry
from .package_index import Index, TinyWheel, lock_of, running_index

#: A Python that both a registry and a bootstrap provide.
PYTHON = "3.11"
CPU = ImageSpec("2.99.0", PYTHON, Variant.CPU)
GPU = ImageSpec("2.99.0", PYTHON, Variant.GPU, Choice("as-built", "12.5"), Choice("as-built", "9.3"))


def quiet(_: str) -> None:
    """Ignore progress."""


@pytest.fixture(scope="session")
@tiers.docker
def endpoint() -> Iterator[Endpoint]:
    cdi.remove_leftovers()
    try:
        endpoint = connect()
    except MissingError as error:
        pytest.skip(str(error))
    yield endpoint
    endpoint.client.close()
    endpoint.quick.close()


@pytest.fixture(scope="session")
def docker_engine(endpoint: Endpoint) -> DockerEngine:
    """The engine with this machine's own package sources."""
    engine = DockerEngine(endpoint, host_sources())
    if reason := engine.provides(PYTHON):
        pytest.skip(reason)
    return engine


@pytest.fixture(scope="session")
def index() -> Iterator[Index]:
    """A package index that only this test run knows."""
    with running_index() as index:
        yield index


@pytest.fixture(scope="session")
def tiny_engine(endpoint: Endpoint, docker_engine: DockerEngine, index: Index) -> DockerEngine:
    """The engine with the tiny wheels' index as its only source."""
    if not endpoint.is_local:
        pytest.skip("the engine is remote: its builds can't reach an index on this machine")
    return DockerEngine(endpoint, PackageSources(index_url=index.url))


def tensorflow(version: str = "2.99.0", name: str = "tensorflow-cpu") -> TinyWheel:
    """Stands in for TensorFlow where only its place in the image matters."""
    module = f'__version__ = "{version}"\n\n\ndef main():\n    print("saved")\n'
    return TinyWheel.make(
        name,
        version,
        {"tensorflow/__init__.py": module.encode()},
        scripts="saved_model_cli = tensorflow:main",
    )


def nvidia(library: str, version: str = "12.5.1") -> TinyWheel:
    """Stands in for one of NVIDIA's wheels."""
    directory = library.replace("-", "_")
    return TinyWheel.make(
        f"nvidia-{library}-cu12",
        version,
        {"nvidia/__init__.py": b"", f"nvidia/{directory}/lib/lib{directory}.so.12": version.encode()},
    )


NVIDIA = tuple(
    nvidia(library)
    for library in ("cublas", "cudnn", "cufft", "cusolver", "cusparse", "nccl", "cuda-nvcc", "cuda-runtime")
)


def cpu_lock(index: Index) -> Lock:
    """The lock of a tiny cpu image; its wheels are in the index."""
    wheels = (tensorflow(), TinyWheel.make("keras", "3.0.0", {"keras/__init__.py": b"X = 1\n"}))
    index.add(*wheels)
    return lock_of(CPU, *wheels)


def gpu_lock(index: Index, tensorflow_version: str = "2.99.0") -> Lock:
    """The lock of a tiny gpu image; its wheels are in the index."""
    wheels = (
        tensorflow(tensorflow_version, "tensorflow"),
        TinyWheel.make("keras", "3.0.0", {"keras/__init__.py": b"X = 1\n"}),
        *NVIDIA,
    )
    index.add(*wheels)
    return lock_of(GPU, *wheels)


def removed_afterwards(engine: DockerEngine, endpoint: Endpoint, built: Built) -> Iterator[Built]:
    """Give an image to tests and remove it when they are done."""
    yield built
    # Another test run on the same engine makes the same image, and may have removed it.
    with contextlib.suppress(ImageNotFound):
        endpoint.client.images.remove(built.digest or built.reference, force=True)


@pytest.fixture(scope="module")
def cpu_image(tiny_engine: DockerEngine, endpoint: Endpoint, index: Index) -> Iterator[Built]:
    """A tiny image without CUDA. From the second module on, its layers come from the cache."""
    yield from removed_afterwards(tiny_engine, endpoint, tiny_engine.build(CPU, cpu_lock(index), quiet))


@pytest.fixture(scope="module")
def gpu_image(tiny_engine: DockerEngine, endpoint: Endpoint, index: Index) -> Iterator[Built]:
    """A tiny image with all of NVIDIA's layers."""
    yield from removed_afterwards(tiny_engine, endpoint, tiny_engine.build(GPU, gpu_lock(index), quiet))


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[RunningRegistry]:
    with running_registry(tmp_path / "registry") as registry:
        yield registry


@pytest.fixture
def proxy(registry: RunningRegistry) -> Iterator[Proxy]:
    with running_proxy(registry.address) as proxy:
        yield proxy
