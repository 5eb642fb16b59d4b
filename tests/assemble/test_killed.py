"""An assembly that is killed publishes nothing by half, and is continued without sending a blob twice."""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from tests.registry.server import RunningRegistry
from validator.assemble.encodings import encoding
from validator.assemble.image import Assembled, assemble
from validator.assemble.layers import Layers
from validator.assemble.registry_destination import RegistryDestination
from validator.assemble.sources import plan_image
from validator.assemble.table import LayerTable
from validator.model.lock import Lock
from validator.registry import upload
from validator.registry.names import Repository

from ..support import FORKED
from .bases import CPU, FILES, Shelf, ThisPython, base_of, layer, lock_of

pytestmark = pytest.mark.service

TIMES = 20
#: Random bytes of each large wheel.
SIZE = 700_000
#: A line of the registry's own log: a blob that was completed.
COMPLETED = re.compile(
    r'"PUT /v2/([^"?]+)/blobs/uploads/[^"]*digest=(sha256(?:%3A|:)[0-9a-f]{64})[^"]*" 201 '
)


def locked(place: Path, seed: int) -> Lock:
    """Return a lock of wheels that no other seed gives, five of them with layers of their own."""
    chance = random.Random(seed)
    shelf = Shelf(place / "wheels")
    modules = {f"six/m{number}.py": b"def f(): return %d\n" % (seed + number) for number in range(20)}
    large = [
        shelf.wheel(f"large{number}", {f"large{number}/data": chance.randbytes(SIZE)}, size=6_000_000)
        for number in range(4)
    ]
    small = shelf.wheel("six", {"six/__init__.py": b"", **modules})
    return lock_of(CPU, *large, small, shelf.wheel("tensorflow", {"tensorflow/x": chance.randbytes(SIZE)}))


def published(place: Path, address: str, path: str, choice: Layers, seed: int) -> Assembled:
    """Assemble an image and push it, with the layer table in a directory."""
    upload._CHUNK = 1 << 16
    lock, table = locked(place, seed), LayerTable(place / "table")
    plan = plan_image(CPU, lock, base_of(table, layer(FILES)), Shelf(place / "wheels"), table, ThisPython())
    destination = RegistryDestination(Repository(address, path), "v1")
    return assemble(plan, destination, table, encoding(choice), lambda line: None)


def completed(server: RunningRegistry, path: str) -> Counter[str]:
    """Return how often the registry completed each blob of a repository, as its log says."""
    found = COMPLETED.findall(server.log.read_text(encoding="utf-8", errors="replace"))
    return Counter(digest.replace("%3A", ":") for repository, digest in found if repository == path)


def test_it_is_killed_at_random_moments(server: RunningRegistry, tmp_path: Path) -> None:
    def begun(number: int) -> tuple[BaseProcess, tuple[Path, str, str, Layers, int]]:
        place, choice = tmp_path / str(number), list(Layers)[number % 2]
        place.mkdir()
        what = (place, server.address, f"killed/{number + 2}", choice, 1000 * number)
        child = FORKED.Process(target=published, args=what)
        child.start()
        return child, what

    # The first one also starts the server of processes.
    for number in (-2, -1):
        begin = time.monotonic()
        whole = begun(number)[0]
        whole.join()
        duration = time.monotonic() - begin
        assert whole.exitcode == 0
    chance, killed, unfinished = random.Random(14), 0, 0
    for number in range(1, TIMES + 1):
        child, what = begun(number)
        path = what[2]
        time.sleep(duration * (number - chance.random()) / TIMES)
        child.kill()
        child.join()
        killed += child.exitcode != 0
        # What the registry had received completely, it may still be storing.
        time.sleep(0.1)
        before = server.tags(path)
        unfinished += bool(completed(server, path)) and not before
        image = published(*what)
        digests = {placed.encoded.digest for placed in image.layers}
        # Nothing has the name until everything is there.
        assert before in ({}, {"v1": image.digest})
        assert server.tags(path) == {"v1": image.digest}
        assert digests <= set(server.blobs())
        counts = completed(server, path)
        assert digests <= set(counts) and len(counts) == len(digests) + 1
        assert set(counts.values()) == {1}, path
    # Otherwise the moments were not in the middle.
    assert killed >= TIMES // 4 and unfinished >= 1
