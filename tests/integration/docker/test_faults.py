"""Engines that die, disks that fill up, people who press Ctrl-C."""

from __future__ import annotations

import dataclasses
import gc
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from validator.engines.base import Built
from validator.engines.docker import DockerEngine
from validator.engines.docker.endpoint import Endpoint, connect
from validator.errors import MissingError
from validator.system.sources import PackageSources

from .conftest import CPU, PYTHON, cpu_lock, quiet, tensorflow
from .package_index import Index, TinyWheel, lock_of, running_index
from .private_engine import PrivateEngine, private_engine
from .test_probe import request

#: Has room for the base (60 MB packed, 190 MB unpacked) and not much more.
SMALL_DISK = "700m"
SAY_AND_WAIT = "import sys, time; print('x', file=sys.stderr, flush=True); time.sleep(60)"


@pytest.fixture
def root() -> Iterator[Path]:
    """A directory with a short path: a socket's address has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="v-", ignore_cleanup_errors=True) as name:
        yield Path(name)


@pytest.fixture
def own(root: Path) -> Iterator[PrivateEngine]:
    with private_engine(root, root / "data") as engine:
        yield engine


@pytest.fixture
def own_index() -> Iterator[Index]:
    """A separate index, because these tests delay its answers."""
    with running_index() as index:
        yield index


def engine_at(
    engine: PrivateEngine, index: Index, base: str, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> DockerEngine:
    """The docker engine over a private one that was given the base of the machine's engine."""
    monkeypatch.setenv("DOCKER_HOST", engine.url)
    other = connect()
    other.client.api.load_image(endpoint.client.api.get_image(base))
    return DockerEngine(other, PackageSources(index_url=index.url))


@pytest.fixture
def base(docker_engine: DockerEngine, endpoint: Endpoint) -> str:
    """The default base, in the machine's engine."""
    found = docker_engine._bases.base(CPU, quiet)
    if "@" in found.reference:
        endpoint.client.images.pull(found.name)
    return found.name if "@" in found.reference else found.reference


# The SDK (7.2) does not close the socket of a connection that is refused.
LEAKY = pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"
)


@pytest.fixture
def collected() -> Iterator[None]:
    """Collect the garbage of a test while its own warning filters are in force."""
    yield
    gc.collect()


@LEAKY
@pytest.mark.usefixtures("collected")
def test_an_engine_that_dies_while_it_builds_is_named(
    own: PrivateEngine, own_index: Index, base: str, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_at(own, own_index, base, endpoint, monkeypatch)
    lock = cpu_lock(own_index)
    spec = dataclasses.replace(CPU, base=base)
    own_index.open.clear()

    def kill_once_asked() -> None:
        own_index.asked.wait(timeout=120)
        own.kill()

    assassin = threading.Thread(target=kill_once_asked)
    assassin.start()
    try:
        with pytest.raises(MissingError, match="the Docker Engine stopped responding"):
            engine.build(spec, dataclasses.replace(lock, identifier=spec.identifier), quiet)
    finally:
        assassin.join()
        engine.close()


@LEAKY
@pytest.mark.usefixtures("collected")
def test_an_engine_that_dies_under_a_probe_is_named(
    own: PrivateEngine, own_index: Index, base: str, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_at(own, own_index, base, endpoint, monkeypatch)
    try:
        with pytest.raises(MissingError, match="the Docker Engine stopped responding"):
            # Kill the engine at the probe's first line.
            engine.probe_image(base, request(SAY_AND_WAIT), lambda _: own.kill())
    finally:
        engine.close()


def test_a_full_disk_is_named(
    root: Path, own_index: Index, base: str, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = root / "data"
    data.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK}", "tmpfs", data], check=True)
    with private_engine(root, data) as own:
        engine = engine_at(own, own_index, base, endpoint, monkeypatch)
        # Less than a megabyte packed, more than the free space unpacked.
        large = TinyWheel.make("tensorflow-cpu", "2.99.0", {"tensorflow/__init__.py": b"\n" * (800 * 2**20)})
        own_index.add(large)
        spec = dataclasses.replace(CPU, base=base)
        try:
            with pytest.raises(MissingError, match="no space left on the engine's disk"):
                engine.build(spec, lock_of(spec, large), quiet)
        finally:
            engine.close()


def test_two_engines_build_the_same_image(
    own: PrivateEngine, own_index: Index, base: str, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The digest depends only on spec, lock, base and recipe: not on the builder, its cache, or the time."""
    spec = dataclasses.replace(CPU, base=base)
    lock = dataclasses.replace(cpu_lock(own_index), identifier=spec.identifier)
    first = DockerEngine(endpoint, PackageSources(index_url=own_index.url))
    one: Built = first.build(spec, lock, quiet)
    endpoint.client.images.remove(one.reference, force=True)
    second = engine_at(own, own_index, base, endpoint, monkeypatch)
    try:
        assert second.build(spec, lock, quiet).digest == one.digest
    finally:
        second.close()


def test_ctrl_c_ends_the_builder_and_leaves_no_image(
    tiny_engine: DockerEngine, endpoint: Endpoint, own_index: Index
) -> None:
    wheel = tensorflow("2.94.0")
    own_index.add(wheel)
    script = f"""
        import sys
        from tests.integration.docker.conftest import tensorflow
        from tests.integration.docker.package_index import lock_of
        from validator.engines.docker import find
        from validator.model.spec import ImageSpec, Variant
        from validator.system.sources import PackageSources

        spec = ImageSpec("2.94.0", "{PYTHON}", Variant.CPU)
        lock = lock_of(spec, tensorflow("2.94.0"))
        find(PackageSources(index_url="{own_index.url}")).build(spec, lock, print)
    """
    own_index.open.clear()
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    try:
        assert own_index.asked.wait(timeout=120), "the build did not come so far"
        builders = [pid for pid in _children(child.pid) if "bake" in _command(pid)]
        assert builders
        os.kill(child.pid, signal.SIGINT)
        _, said = child.communicate(timeout=60)
    finally:
        child.kill()
        own_index.open.set()
    assert b"KeyboardInterrupt" in said
    assert not [pid for pid in builders if "bake" in _command(pid)]
    spec = dataclasses.replace(CPU, tensorflow="2.94.0")
    assert tiny_engine.existing(spec, lock_of(spec, wheel)) is None


def _children(pid: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(path.parent.name))
    return found


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
