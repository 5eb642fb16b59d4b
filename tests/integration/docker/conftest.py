"""A real engine, and small images in it. Skipped, with the reason, if no engine responds."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from docker.errors import ImageNotFound

from validator.assemble.image import Assembler, put_base
from validator.engines.docker import DockerEngine
from validator.engines.endpoint import Endpoint, connect
from validator.engines.images import list_images, load
from validator.engines.protocol import Built
from validator.errors import MissingError
from validator.model.record import Record, record_of
from validator.model.spec import Choice, ImageSpec, Lock, Variant, image_reference
from validator.pipeline.makers import ImageSettings, assembler
from validator.system.files import cache_directory
from validator.system.package_sources import PackageSources, host_sources

from ...emulation import cdi
from ...loop import tiers
from ...registry.proxy import Proxy, running_proxy
from ...registry.server import RunningRegistry
from .package_index import Index, TinyWheel, lock_of, running_index

ROOT = Path(__file__).parents[3]
#: A Python that both a registry and a bootstrap provide.
PYTHON = "3.11"
CPU = ImageSpec("2.99.0", PYTHON, Variant.CPU)
GPU = ImageSpec("2.99.0", PYTHON, Variant.GPU, Choice("as-built", "12.5"), Choice("as-built", "9.3"))

#: An image of a real release that has a committed lock.
REAL_CPU = ImageSpec("2.21.0", PYTHON, Variant.CPU)


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


def new_cache(place: Path) -> Path:
    """Make a cache directory with nothing but the machine's bases, which take long to make."""
    place.mkdir(exist_ok=True)
    bases = cache_directory() / "bases"
    bases.mkdir(parents=True, exist_ok=True)
    (place / "bases").symlink_to(bases)
    return place


def made_by(cache: Path, sources: PackageSources, endpoint: Endpoint | None) -> Assembler:
    """Return what makes images, with wheels and layer table in this cache directory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VALIDATOR_CACHE", str(cache))
        return assembler(sources, ImageSettings(), endpoint)


def maker_at(cache: Path, index_url: str, endpoint: Endpoint | None) -> Assembler:
    """Return what makes images from the wheels of an index."""
    return made_by(cache, PackageSources(index_url=index_url), endpoint)


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the cache directory of this test run, which has only wheels and a layer table of the tests."""
    return new_cache(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def docker_engine(endpoint: Endpoint) -> DockerEngine:
    """Return the engine with this machine's own package sources and cache."""
    engine = DockerEngine(endpoint, assembler(host_sources(), ImageSettings(), endpoint))
    if reason := engine.provides(PYTHON):
        pytest.skip(reason)
    return engine


@pytest.fixture(scope="session")
def index() -> Iterator[Index]:
    """Yield a package index that only this test run knows.

    The tool reads the page of each project once, so what `maker` is to find there is there from the start.
    """
    with running_index(tensorflow(), tensorflow(name="tensorflow"), KERAS, OTHER_KERAS, *NVIDIA) as index:
        yield index


@pytest.fixture(scope="session")
def maker(endpoint: Endpoint, docker_engine: DockerEngine, index: Index, cache: Path) -> Assembler:
    """Makes images with the tiny wheels' index as its only source."""
    return maker_at(cache, index.url, endpoint)


@pytest.fixture(scope="session")
def tiny_engine(endpoint: Endpoint, maker: Assembler) -> DockerEngine:
    """Return the engine with the tiny wheels' index as its only source."""
    return DockerEngine(endpoint, maker)


def put_default_base(endpoint: Endpoint, maker: Assembler) -> str:
    """Give an engine the default base as an image. Return its name."""
    name = "validator-test-base:default"
    base = maker.bases.base(CPU, quiet)
    load(endpoint, name, lambda into: put_base(base, into, maker.table))
    return name


@pytest.fixture(scope="session")
def base_image(endpoint: Endpoint, maker: Assembler) -> Iterator[str]:
    """Yield the name of the default base as an image of the engine."""
    name = put_default_base(endpoint, maker)
    yield name
    with contextlib.suppress(ImageNotFound):
        endpoint.client.images.remove(name, force=True)


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


KERAS = TinyWheel.make("keras", "3.0.0", {"keras/__init__.py": b"X = 1\n"})
OTHER_KERAS = TinyWheel.make("keras", "2.0.0", {"keras/__init__.py": b"X = 2\n"})


def cpu_lock(index: Index) -> Lock:
    """Return the lock of a tiny cpu image; its wheels are in the index."""
    wheels = (tensorflow(), KERAS)
    index.add(*wheels)
    return lock_of(CPU, *wheels)


def gpu_lock(index: Index, tensorflow_version: str = "2.99.0") -> Lock:
    """Return the lock of a tiny gpu image; its wheels are in the index."""
    wheels = (tensorflow(tensorflow_version, "tensorflow"), KERAS, *NVIDIA)
    index.add(*wheels)
    return lock_of(GPU, *wheels)


@pytest.fixture(scope="session")
def removals() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Yield a list for processes that remove large images while tests go on: a minute for each."""
    begun: list[subprocess.Popen[bytes]] = []
    yield begun
    assert [process.args for process in begun if process.wait()] == []


def begin_removal(image: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["docker", "image", "rm", "--force", image], stdout=subprocess.DEVNULL)


def removed_afterwards(engine: DockerEngine, endpoint: Endpoint, built: Built) -> Iterator[Built]:
    """Give an image to tests and remove it when they are done."""
    yield built
    # Another test run on the same engine makes the same image, and may have removed it.
    with contextlib.suppress(ImageNotFound):
        endpoint.client.images.remove(built.digest or built.reference, force=True)


@pytest.fixture(scope="module")
def cpu_image(tiny_engine: DockerEngine, endpoint: Endpoint, index: Index) -> Iterator[Built]:
    """Yield a tiny image without CUDA."""
    yield from removed_afterwards(tiny_engine, endpoint, tiny_engine.build(CPU, cpu_lock(index), quiet))


@pytest.fixture(scope="module")
def gpu_image(tiny_engine: DockerEngine, endpoint: Endpoint, index: Index) -> Iterator[Built]:
    """Yield a tiny image with all of NVIDIA's layers."""
    yield from removed_afterwards(tiny_engine, endpoint, tiny_engine.build(GPU, gpu_lock(index), quiet))


@pytest.fixture
def registry(own_server: RunningRegistry) -> RunningRegistry:
    return own_server


@pytest.fixture
def proxy(registry: RunningRegistry) -> Iterator[Proxy]:
    with running_proxy(registry.address) as proxy:
        yield proxy


def build_matrix(store: Path, profile: str) -> tuple[dict[str, Any], str]:
    """Build and probe the one image of a profile. Return its result, and the progress messages."""
    done = subprocess.run(
        [
            sys.executable, "-m", "validator", "build-matrix", "--engine", "docker", "--profile", profile,
            "--select", f"python={PYTHON}", "--store", str(store), "--json",
        ],
        cwd=ROOT, capture_output=True, text=True, timeout=1500,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    [result] = json.loads(done.stdout)
    return result, done.stderr


def measured(
    endpoint: Endpoint,
    store: Path,
    profile: str,
    identifier: str,
    removals: list[subprocess.Popen[bytes]],
) -> Iterator[Record]:
    """Give the record of a profile's image to tests. Remove an image afterwards that was not there before."""
    reference = image_reference(identifier)
    before = {tag for image in list_images(endpoint.client) for tag in image.tags}
    result, _ = build_matrix(store, profile)
    assert result["image"] == identifier
    yield record_of(result["record"])
    if reference not in before:
        removals.append(begin_removal(reference))


@pytest.fixture(scope="package")
def real_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the store with the records of real images."""
    return tmp_path_factory.mktemp("store") / "records.db"


@pytest.fixture(scope="package")
def real_cpu(
    docker_engine: DockerEngine,
    endpoint: Endpoint,
    real_store: Path,
    removals: list[subprocess.Popen[bytes]],
) -> Iterator[Record]:
    """Yield the record of REAL_CPU, whose image stays while the tests of this directory run."""
    yield from measured(endpoint, real_store, "cpu", REAL_CPU.identifier, removals)
