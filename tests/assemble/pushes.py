"""Whole images of small wheels, assembled and pushed by a process that may end at any moment."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from threading import Barrier

from tests.registry.server import RunningRegistry
from validator.assemble.image import Assembled, RegistryDestination, assemble
from validator.assemble.layer_table import LayerTable
from validator.assemble.wheel_layers import ImagePlan, plan_image
from validator.model.spec import Lock
from validator.registry import blobs
from validator.registry.names import Repository

from .bases import CPU, FILES, Shelf, ThisPython, base_of, layer, lock_of

TAG = "v1"
#: Random bytes of each large wheel.
SIZE = 700_000
#: The size of chunks in bytes: large wheels have several.
CHUNK = 1 << 16
#: A line of the registry's own log: a blob that was completed.
_COMPLETED = re.compile(
    r'"PUT /v2/([^"?]+)/blobs/uploads/[^"]*digest=(sha256(?:%3A|:)[0-9a-f]{64})[^"]*" 201 '
)


def locked(place: Path, seed: int) -> Lock:
    """Return a lock of wheels that no other seed gives, five of them with layers of their own.

    The wheels are written to `wheels/` in the place.
    """
    chance = random.Random(seed)
    shelf = Shelf(place / "wheels")
    modules = {f"six/m{number}.py": b"def f(): return %d\n" % (seed + number) for number in range(20)}
    large = [
        shelf.wheel(f"large{number}", {f"large{number}/data": chance.randbytes(SIZE)}, size=6_000_000)
        for number in range(4)
    ]
    small = shelf.wheel("six", {"six/__init__.py": b"", **modules})
    return lock_of(CPU, *large, small, shelf.wheel("tensorflow", {"tensorflow/x": chance.randbytes(SIZE)}))


def planned(place: Path, lock: Lock, table: LayerTable) -> ImagePlan:
    """Return the plan of the image of a lock whose wheels are in `wheels/` in the place."""
    return plan_image(CPU, lock, base_of(table, layer(FILES)), Shelf(place / "wheels"), table, ThisPython())


def published(
    place: Path,
    lock: Lock,
    repository: Repository,
    mount_from: Sequence[Repository] = (),
) -> Assembled:
    """Assemble an image and push it, with the layer table in `table/` in the place."""
    table = LayerTable(place / "table")
    destination = RegistryDestination(repository, TAG, mount_from)
    try:
        return assemble(planned(place, lock, table), destination, table, lambda line: None)
    finally:
        table.close()


def publish(place: Path, lock: Lock, repository: Repository, start: Barrier | None = None) -> None:
    """Do the same in a process of its own. start: passed before anything is done."""
    blobs._CHUNK = CHUNK
    if start is not None:
        start.wait()
    published(place, lock, repository)


def completed(server: RunningRegistry, path: str) -> Counter[str]:
    """Return how often the registry completed each blob of a repository, as its log says."""
    found = _COMPLETED.findall(server.log.read_text(encoding="utf-8", errors="replace"))
    return Counter(digest.replace("%3A", ":") for repository, digest in found if repository == path)
