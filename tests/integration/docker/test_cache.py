"""The layer cache in a registry: an engine that never built an image gets its layers from there."""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import zstandard

from validator.engines.base import Built
from validator.engines.docker import BasePolicy, DockerEngine
from validator.engines.docker.endpoint import Endpoint, connect
from validator.errors import ValidatorError
from validator.system.sources import PackageSources

from ...registry.server import RunningRegistry, running_registry
from .conftest import CPU, cpu_lock, quiet
from .package_index import Index
from .private_engine import private_engine

NOWHERE = PackageSources(index_url="http://127.0.0.1:9/simple")


@pytest.fixture
def short_path() -> Iterator[Path]:
    """Paths of sockets may have 107 characters."""
    with tempfile.TemporaryDirectory(prefix="cache-", dir="/tmp") as name:
        yield Path(name)


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[RunningRegistry]:
    with running_registry(tmp_path / "registry") as registry:
        yield registry


@pytest.fixture
def base(docker_engine: DockerEngine, endpoint: Endpoint) -> bytes:
    """The base from the machine's own engine, for other engines."""
    name = docker_engine._bases.base(CPU, quiet).reference
    return b"".join(endpoint.client.images.get(name).save(named=True))


@contextmanager
def new_engine(
    root: Path, base: bytes, sources: PackageSources, cache: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[DockerEngine]:
    """An engine that has the base and nothing else."""
    (root / "data").mkdir(parents=True)
    with private_engine(root, root / "data") as private:
        monkeypatch.setenv("DOCKER_HOST", private.url)
        endpoint = connect()
        endpoint.client.images.load(base)
        engine = DockerEngine(endpoint, sources, BasePolicy.AUTO, cache)
        try:
            yield engine
        finally:
            engine.close()


def content(registry: RunningRegistry) -> Iterator[bytes]:
    """Every blob of a registry, unpacked."""
    for path in registry.storage.glob("docker/registry/v2/blobs/sha256/*/*/data"):
        blob = path.read_bytes()
        if blob.startswith(b"\x1f\x8b"):
            blob = gzip.decompress(blob)
        elif blob.startswith(b"\x28\xb5\x2f\xfd"):
            blob = zstandard.ZstdDecompressor().decompressobj().decompress(blob)
        yield blob


def test_another_engine_gets_the_layers_without_any_secret(
    short_path: Path, registry: RunningRegistry, base: bytes, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = cpu_lock(index)
    cache = f"{registry.address}/team/tf"
    sources = PackageSources(index_url=f"http://user-canary:password-canary@{index.address}/simple")
    built: list[Built] = []
    with new_engine(short_path / "a", base, sources, cache, monkeypatch) as engine:
        built.append(engine.build(CPU, lock, quiet))
    assert list(registry.tags("team/tf")) == [f"cache-{CPU.identifier}"]
    blobs = list(content(registry))
    assert any(b"site-packages" in blob or b"keras" in blob for blob in blobs), "the layers are there"
    for needle in (b"user-canary", b"password-canary", index.address.encode()):
        assert not any(needle in blob for blob in blobs)

    # Without an index nothing can be installed, so everything comes from the cache.
    with new_engine(short_path / "b", base, NOWHERE, cache, monkeypatch) as engine:
        built.append(engine.build(CPU, lock, quiet))
    assert built[0].digest == built[1].digest

    registry.stop()
    with (
        new_engine(short_path / "c", base, NOWHERE, cache, monkeypatch) as engine,
        pytest.raises(ValidatorError, match="install-wheels"),
    ):
        engine.build(CPU, lock, quiet)


def test_without_the_registry_the_image_is_built_without_a_cache(
    short_path: Path, registry: RunningRegistry, base: bytes, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.stop()
    sources = PackageSources(index_url=index.url)
    with new_engine(short_path / "a", base, sources, f"{registry.address}/team/tf", monkeypatch) as engine:
        assert engine.build(CPU, cpu_lock(index), quiet).digest
