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
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from validator.assemble.image import Assembler, OciLayout
from validator.engines.docker import DockerEngine
from validator.engines.endpoint import Endpoint, connect
from validator.errors import EXIT_INTERRUPTED, MissingError
from validator.model.spec import LABEL_LOCK

from .conftest import CPU, KERAS, cpu_lock, maker_at, new_cache, put_default_base, quiet, tensorflow
from .package_index import Index, TinyWheel, lock_of, running_index
from .private_engine import PrivateEngine, private_engine
from .test_probe import request

pytestmark = pytest.mark.engine

#: Has room for the base (60 MB packed, 190 MB unpacked) and not much more.
SMALL_DISK = "500m"
SAY_AND_WAIT = "import sys, time; print('x', file=sys.stderr, flush=True); time.sleep(60)"


@pytest.fixture
def root() -> Iterator[Path]:
    """Yield a directory with a short path: a socket's address has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="v-", ignore_cleanup_errors=True) as name:
        yield Path(name)


@pytest.fixture
def own(root: Path) -> Iterator[PrivateEngine]:
    with private_engine(root, root / "data") as engine:
        yield engine


@pytest.fixture
def own_index() -> Iterator[Index]:
    """Yield a separate index, because these tests delay its answers."""
    with running_index() as index:
        yield index


def endpoint_of(engine: PrivateEngine, monkeypatch: pytest.MonkeyPatch) -> Endpoint:
    monkeypatch.setenv("DOCKER_HOST", engine.url)
    return connect()


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
@pytest.mark.parametrize("moment", ["downloading", "making"])
def test_an_engine_that_dies_while_it_gets_an_image_is_named(
    own: PrivateEngine, index: Index, tmp_path: Path, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = endpoint_of(own, monkeypatch)
    engine = DockerEngine(endpoint, maker_at(new_cache(tmp_path / "cache"), index.url, endpoint))
    killed: list[str] = []

    def kill(line: str) -> None:
        if line.startswith(moment) and not killed:
            killed.append(line)
            own.kill()

    try:
        with pytest.raises(MissingError, match="the Docker Engine stopped responding"):
            engine.build(CPU, cpu_lock(index), kill)
    finally:
        engine.close()
    assert killed


@LEAKY
@pytest.mark.usefixtures("collected")
def test_an_engine_that_dies_under_a_probe_is_named(
    own: PrivateEngine, maker: Assembler, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = DockerEngine(endpoint := endpoint_of(own, monkeypatch))
    base = put_default_base(endpoint, maker)
    try:
        with pytest.raises(MissingError, match="the Docker Engine stopped responding"):
            # Kill the engine at the probe's first line.
            engine.probe_image(base, request(SAY_AND_WAIT), lambda _: own.kill())
    finally:
        engine.close()


def test_a_full_disk_is_named(
    root: Path, own_index: Index, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = root / "data"
    data.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK}", "tmpfs", data], check=True)
    with private_engine(root, data) as own:
        endpoint = endpoint_of(own, monkeypatch)
        # Less than a megabyte packed, more than the free space unpacked.
        large = TinyWheel.make("tensorflow-cpu", "2.92.0", {"tensorflow/zeros": bytes(500 * 2**20)})
        own_index.add(large)
        spec = dataclasses.replace(CPU, tensorflow="2.92.0")
        engine = DockerEngine(endpoint, maker_at(cache, own_index.url, endpoint))
        try:
            with pytest.raises(MissingError, match="no space left on the engine's disk"):
                engine.build(spec, lock_of(spec, large), quiet)
            assert engine.existing(spec, lock_of(spec, large)) is None
        finally:
            engine.close()


def test_two_machines_make_the_same_image(
    own: PrivateEngine, own_index: Index, endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The digest depends only on spec, lock, base and recipe: not on the engine, a cache, or the time."""
    # An image that no other test uses, because it is removed from the shared engine.
    wheels = (tensorflow("2.91.0"), KERAS)
    own_index.add(*wheels)
    spec = dataclasses.replace(CPU, tensorflow="2.91.0")
    lock = lock_of(spec, *wheels)
    digests = set[str | None]()
    # The environment names the engine, also to the docker command.
    places: tuple[Callable[[], Endpoint], ...] = (lambda: endpoint, lambda: endpoint_of(own, monkeypatch))
    for number, place in enumerate(places):
        there = place()
        maker = maker_at(new_cache(tmp_path / f"cache-{number}"), own_index.url, there)
        built = DockerEngine(there, maker).build(spec, lock, quiet)
        digests.add(built.digest)
        there.client.images.remove(built.reference, force=True)
    there.client.close()
    there.quick.close()
    without = maker_at(new_cache(tmp_path / "cache"), own_index.url, None)
    digests.add(without.make(spec, lock, OciLayout(tmp_path / "layout", "x"), quiet).digest)
    assert len(digests) == 1


@pytest.mark.parametrize("moment", ["asked", "downloading", "making"])
def test_ctrl_c_ends_the_work_and_leaves_no_image(
    tiny_engine: DockerEngine, endpoint: Endpoint, own_index: Index, tmp_path: Path, moment: str
) -> None:
    """Moments: the index is asked for TensorFlow's page; wheels are downloaded; layers are made."""
    wheel, rest = tensorflow("2.94.0"), KERAS
    own_index.add(wheel, rest)
    script = f"""
        from pathlib import Path
        from tests.integration.docker.conftest import KERAS, PYTHON, maker_at, tensorflow
        from tests.integration.docker.package_index import lock_of
        from validator import cli
        from validator.__main__ import main
        from validator.engines.endpoint import connect
        from validator.engines.docker import DockerEngine
        from validator.model.spec import ImageSpec, Variant

        spec = ImageSpec("2.94.0", PYTHON, Variant.CPU)
        endpoint = connect()
        maker = maker_at(Path({str(tmp_path / "cache")!r}), {own_index.url!r}, endpoint)
        lock = lock_of(spec, tensorflow("2.94.0"), KERAS)
        engine = DockerEngine(endpoint, maker)
        cli.run = lambda: engine.build(spec, lock, lambda line: print(line, flush=True))
        main()
    """
    cache = new_cache(tmp_path / "cache")
    if moment == "downloading":
        maker_at(cache, own_index.url, endpoint).wheels.path(wheel.wheel)
    if moment != "making":
        own_index.asked.clear()
        own_index.open.clear()
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, text=True,
    )  # fmt: skip
    assert child.stdout is not None
    try:
        if moment == "making":
            assert any(line.startswith(moment) for line in child.stdout), "the work did not come so far"
        else:
            assert own_index.asked.wait(timeout=120), "the work did not come so far"
        os.kill(child.pid, signal.SIGINT)
        _, said = child.communicate(timeout=60)
    finally:
        child.kill()
        own_index.open.set()
    assert said == "stopped\n"
    assert child.returncode == EXIT_INTERRUPTED
    spec = dataclasses.replace(CPU, tensorflow="2.94.0")
    lock = lock_of(spec, wheel, rest)
    assert tiny_engine.existing(spec, lock) is None
    assert endpoint.client.images.list(all=True, filters={"label": f"{LABEL_LOCK}={lock.digest}"}) == []
