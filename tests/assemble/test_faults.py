"""Faults while a whole image is assembled and pushed.

After each fault that stays, nothing has the image's name. When the fault is over, the same command publishes
the same image as without it, and sends again only what did not arrive.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import random
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.registry.proxy import Fault, Proxy
from tests.registry.server import RunningRegistry
from validator.assemble import layers
from validator.assemble.image import Assembled, RegistryDestination, assemble
from validator.assemble.layer_table import LayerTable
from validator.assemble.layers import Encoded, Entry, Write
from validator.assemble.wheel import WheelError
from validator.assemble.wheel_layers import plan_image
from validator.assemble.wheels import Wheelhouse
from validator.errors import MissingError
from validator.model.spec import Lock, Wheel
from validator.registry import blobs, session
from validator.registry.names import Repository

from ..locks.local_index import LocalIndex
from ..support import FORKED, small_disk
from .bases import CPU, FILES, Shelf, ThisPython, base_of, layer, lock_of
from .pushes import CHUNK, TAG, completed, locked, publish, published

pytestmark = pytest.mark.service

#: The end of the path of the one large file, and about its size in bytes: several frames of zstd, so that
#: its end is not yet read when its first part is written.
LARGE, LARGE_SIZE = "big/data", 20_000_000
_numbers = itertools.count()


@dataclass(frozen=True)
class Whole:
    """An image that was published without a fault. place: of its wheels and its layer table."""

    place: Path
    lock: Lock
    repository: Repository
    image: Assembled

    @property
    def large(self) -> Wheel:
        """The wheel with the large file."""
        return next(wheel for wheel in self.lock.wheels if wheel.name == "big")

    @property
    def layers(self) -> set[str]:
        """The digests of all layers."""
        return {placed.encoded.digest for placed in self.image.layers}

    def is_published(self, server: RunningRegistry, place: Path, repository: Repository) -> None:
        """Publish the image from another place, and assert that it is the same and no blob came twice."""
        assert published(place, self.lock, repository).digest == self.image.digest
        assert server.tags(repository.path) == {TAG: self.image.digest}
        counts = completed(server, repository.path)
        assert self.layers <= counts.keys() and len(counts) == len(self.layers) + 1
        assert set(counts.values()) == {1}


@pytest.fixture(scope="module")
def whole(server: RunningRegistry, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    place = tmp_path_factory.mktemp("whole")
    repository = Repository(server.address, "faults/whole")
    content = random.Random(8).randbytes(LARGE_SIZE)
    lock = lock_of(CPU, *locked(place, 7).wheels, Shelf(place / "wheels").wheel("big", {LARGE: content}))
    return Whole(place, lock, repository, published(place, lock, repository))


@pytest.fixture
def place(whole: Whole, tmp_path: Path) -> Path:
    """Return the place of a machine that has the wheels, and made no layer so far."""
    shutil.copytree(whole.place / "wheels", tmp_path / "wheels")
    return tmp_path


@pytest.fixture
def path() -> str:
    """Return the path of an empty repository."""
    return f"faults/{next(_numbers)}"


@pytest.fixture
def through(proxy: Proxy, path: str) -> Repository:
    """Return that repository behind the proxy."""
    return Repository(proxy.address, path)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retry a few times without pauses, and send small chunks."""
    monkeypatch.setattr(session, "PAUSES", (0.0, 0.0, 0.0))
    monkeypatch.setattr(blobs, "_CHUNK", CHUNK)


@dataclass
class Interrupted:
    """Makes something happen once: after the first part of the layer of a large file."""

    happens: Callable[[], object]
    happened: bool = False

    @contextlib.contextmanager
    def meanwhile(self) -> Iterator[None]:
        """Let it happen to a layer that is made in the block."""
        with pytest.MonkeyPatch.context() as patch:
            self._encode = layers.encode
            patch.setattr(layers, "encode", self.encode)
            yield

    def encode(self, entries: Iterable[Entry], write: Write, diff_id: str | None = None) -> Encoded:
        """Write the layer."""
        is_here = False

        def watched_entries() -> Iterator[Entry]:
            nonlocal is_here
            for entry in entries:
                is_here = is_here or entry.path.endswith(LARGE)
                yield entry

        def watched_write(part: bytes) -> None:
            write(part)
            if is_here and not self.happened:
                self.happened = True
                self.happens()

        return self._encode(watched_entries(), watched_write, diff_id)


# -- wheels ----------------------------------------------------------------------------------------------


def overwrite(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(-1_000_000, os.SEEK_END)
        file.write(b"another byte")


def truncate(path: Path) -> None:
    os.truncate(path, LARGE_SIZE - 1_000_000)


@pytest.mark.parametrize("change", [overwrite, truncate])
def test_a_wheel_that_changes_while_its_layer_is_made(
    server: RunningRegistry, whole: Whole, place: Path, path: str, change: Callable[[Path], object]
) -> None:
    file = Shelf(place / "wheels").path(whole.large)
    content = file.read_bytes()
    interrupted = Interrupted(lambda: change(file))
    with pytest.raises(WheelError, match="was changed while it was read"), interrupted.meanwhile():
        published(place, whole.lock, Repository(server.address, path))
    assert interrupted.happened
    assert server.tags(path) == {}
    assert completed(server, path).keys() <= whole.layers
    file.write_bytes(content)
    whole.is_published(server, place, Repository(server.address, path))


def assembled_with(
    index: LocalIndex, cache: Path, place: Path, whole: Whole, repository: Repository
) -> Assembled:
    """Assemble and push the image with wheels from an index."""
    house, table = Wheelhouse(index.sources, cache), LayerTable(place / "table")
    plan = plan_image(CPU, whole.lock, base_of(table, layer(FILES)), house, table, ThisPython())
    destination = RegistryDestination(repository, TAG)
    return assemble(
        plan,
        destination,
        table,
        lambda _: None,
        lambda some: house.fetch(some, lambda _: None),
    )


@pytest.fixture
def offered(index: LocalIndex, whole: Whole) -> LocalIndex:
    """Return an index that has the wheels."""
    for wheel in whole.lock.wheels:
        index.add(wheel.filename, content=Shelf(whole.place / "wheels").path(wheel).read_bytes())
    return index


def test_a_wheel_that_is_gone_from_the_index(
    server: RunningRegistry, whole: Whole, offered: LocalIndex, tmp_path: Path, path: str
) -> None:
    repository, content = Repository(server.address, path), offered.files.pop(whole.large.filename)
    with pytest.raises(MissingError, match=f"the package index does not have {whole.large.filename}"):
        assembled_with(offered, tmp_path / "cache", tmp_path, whole, repository)
    assert server.tags(path) == {}
    offered.add(whole.large.filename, content=content)
    image = assembled_with(offered, tmp_path / "cache", tmp_path, whole, repository)
    assert image.digest == whole.image.digest


# -- the disk of this machine ----------------------------------------------------------------------------


def fill(directory: Path) -> Path:
    """Fill a disk. Return the file to remove."""
    path = directory / "filler"
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            try:
                while True:
                    file.write(bytes(size))
            except OSError as error:
                assert error.errno == errno.ENOSPC
    return path


def test_a_disk_that_is_full_before_the_wheels_are_here(
    server: RunningRegistry, whole: Whole, offered: LocalIndex, tmp_path: Path, path: str
) -> None:
    repository = Repository(server.address, path)
    with small_disk("56m") as disk:
        filler, cache = disk / "filler", disk / "cache"
        filler.write_bytes(bytes(40 << 20))
        with pytest.raises(MissingError, match=f"no space left on the disk that holds {cache}"):
            assembled_with(offered, cache, tmp_path, whole, repository)
        assert server.tags(path) == {}
        filler.unlink()
        image = assembled_with(offered, cache, tmp_path, whole, repository)
        assert image.digest == whole.image.digest


def test_a_disk_that_becomes_full_while_layers_are_sent(
    server: RunningRegistry, whole: Whole, path: str
) -> None:
    repository = Repository(server.address, path)
    with small_disk("4m") as disk:
        (disk / "wheels").symlink_to(whole.place / "wheels")
        interrupted = Interrupted(lambda: fill(disk))
        no_space = pytest.raises(MissingError, match=f"no space left on the disk that holds {disk}")
        with no_space, interrupted.meanwhile():
            published(disk, whole.lock, repository)
        assert interrupted.happened
        assert server.tags(path) == {}
        (disk / "filler").unlink()
        whole.is_published(server, disk, repository)


# -- the registry ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize(
    "fault",
    [
        Fault("PUT|PATCH", "/uploads/", status=416),
        Fault("POST|PUT", "/uploads/", status=429, headers={"Retry-After": "0"}),
        Fault("PUT", "/uploads/.*digest=", status=500),
        Fault("PUT|PATCH", "/uploads/", after_bytes=300_000),
        Fault("PUT", "/manifests/", after_answer=True),
    ],
    ids=["416", "429", "500", "cut", "lost"],
)
def test_a_fault_that_passes(
    server: RunningRegistry,
    whole: Whole,
    place: Path,
    through: Repository,
    proxy: Proxy,
    fault: Fault,
    known: bool,
) -> None:
    # Otherwise, the layers are sent without knowing what they give.
    if known:
        shutil.copytree(whole.place / "table", place / "table")
    proxy.faults = [replace(fault, times=2)]
    whole.is_published(server, place, through)
    assert proxy.faults[0].happened == 2


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (Fault("PUT", "/manifests/", status=401), "requires a login, or rejects the current one"),
        (Fault("PUT|PATCH", "/uploads/", status=416), "can't be sent.* an internal error"),
        (Fault("PUT", "/uploads/.*digest=", status=429), "rejects requests because there were too many"),
        (Fault("PUT|PATCH", "/uploads/"), "can't be reached"),
    ],
    ids=["401", "416", "429", "cut"],
)
def test_a_fault_that_stays(
    server: RunningRegistry,
    whole: Whole,
    place: Path,
    through: Repository,
    proxy: Proxy,
    fault: Fault,
    says: str,
) -> None:
    proxy.faults = [fault]
    with pytest.raises(MissingError, match=says):
        published(place, whole.lock, through)
    assert fault.happened
    assert server.tags(through.path) == {}
    proxy.faults = []
    whole.is_published(server, place, through)


@pytest.mark.parametrize("refused", [False, True])
def test_a_registry_that_mounts_or_does_not(
    server: RunningRegistry, whole: Whole, place: Path, through: Repository, proxy: Proxy, refused: bool
) -> None:
    shutil.copytree(whole.place / "table", place / "table")
    proxy.faults = [Fault("POST", "mount=", status=404)] if refused else []
    other = Repository(through.host, whole.repository.path)
    image = published(place, whole.lock, through, [other])
    assert image.digest == whole.image.digest
    assert server.tags(through.path) == {TAG: image.digest}
    sizes = sum({one.encoded.digest: one.encoded.size for one in image.layers}.values())
    sent = sizes + len(image.config) if refused else 0
    assert proxy.sent() == sent + len(image.manifest)


# -- others at the same time -----------------------------------------------------------------------------


def test_two_assemblies_in_two_processes(
    server: RunningRegistry, whole: Whole, place: Path, path: str
) -> None:
    repository, start = Repository(server.address, path), FORKED.Barrier(2)
    arguments = (place, whole.lock, repository, start)
    both = [FORKED.Process(target=publish, args=arguments) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert [one.exitcode for one in both] == [0, 0]
    assert server.tags(path) == {TAG: whole.image.digest}
    # Both wrote into one layer table, which is right and complete.
    again = published(place, whole.lock, repository)
    assert again.digest == whole.image.digest
    assert not any(placed.is_new for placed in again.layers)
