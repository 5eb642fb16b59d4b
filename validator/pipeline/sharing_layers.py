"""The shared layer table: write its rows, and make layers again to see if their rows are right.

    python -m validator.pipeline.sharing_layers OLD     makes the rows again that the file OLD does not have

Only layers that wheels give on every base are shared. Byte code and the host files depend on the base, and
the entry point on this tool: each machine makes them itself.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..assemble import layers
from ..assemble.layer_table import FILE, LayerTable, SharedRow, read_rows, write_rows
from ..assemble.layers import Encoded, LayerSource, layer_key
from ..assemble.wheel_layers import layers_of_wheels, made_from, wheel_layers
from ..assemble.wheels import Wheelhouse
from ..locks.lock_files import DIRECTORY, LockDirectory
from ..matrix.load import load_matrix
from ..model.spec import ImageSpec, Lock
from ..resources import images_directory, shipped_matrix
from ..system.package_sources import host_sources
from ..system.pools import map_in_threads
from ..system.processes import Progress

_AT_ONCE = 2


@dataclass(frozen=True)
class Image:
    spec: ImageSpec
    lock: Lock


@dataclass(frozen=True)
class LayerMaker:
    """Makes layers, and keeps their digests and sizes. table: this machine's own, without shared rows."""

    wheels: Wheelhouse
    table: LayerTable
    progress: Progress

    def rows(self, image: Image, shared: Iterable[SharedRow] = ()) -> list[SharedRow]:
        """Return the rows of an image's layers.

        Only layers are made that have no row in `shared`, and that this machine has not made yet. Raises
        MissingError if a wheel can't be downloaded, and InputError for one that no image may have.
        """
        there = {row.key: row for row in shared}
        sources = list(layers_of_wheels(image.spec, image.lock, self.wheels, self.table))
        keys = [_key(source) for source in sources]
        new = [
            source
            for source, key in zip(sources, keys, strict=True)
            if key not in there and self.table.row(key) is None
        ]
        needed = {part for source in new for part in (*source.made_from, *source.read_from)}
        self.wheels.fetch([wheel for wheel in image.lock.wheels if wheel.sha256 in needed], self.progress)

        def row(source: LayerSource) -> SharedRow:
            key = _key(source)
            if key in there:
                return there[key]
            known = self.table.row(key)
            return SharedRow.of(source, known.encoded if known else self._made(source))

        return map_in_threads(row, sources, _AT_ONCE)

    def problems(self, rows: Iterable[SharedRow], images: Iterable[Image]) -> Iterator[str]:
        """Make the layers of rows again, and yield a sentence for each row that is wrong."""
        images = list(images)
        for row in rows:
            if row.recipe != layers.RECIPE:
                yield f"{row.name}: its encoding ({row.recipe}) is not {layers.RECIPE}"
                continue
            sources = (
                source
                for image in images
                if {wheel.sha256 for wheel in image.lock.wheels}.issuperset(row.wheels)
                for source in layers_of_wheels(image.spec, image.lock, self.wheels, self.table)
                if source.made_from == row.made_from
            )
            source = next(sources, None)
            if source is None:
                yield f"{row.name}: no lock gives this layer (row {row.key[:12]})"
                continue
            made = self._made(source)
            if SharedRow.of(source, made) != row:
                yield f"{row.name}: its wheels give {made.digest} (row {row.key[:12]} says {row.digest})"

    def _made(self, source: LayerSource) -> Encoded:
        self.progress(f"making {source.name}")
        made = layers.encode(source.entries(), lambda part: None)
        self.table.add(_key(source), source.name, made)
        return made


def locked_images(specs: Iterable[ImageSpec], locks: LockDirectory) -> list[Image]:
    """Return all images of a matrix that have a lock. Raises InputError if a lock is invalid."""
    found = [(spec, locks.read(spec.identifier)) for spec in specs]
    return [Image(spec, lock) for spec, lock in found if lock is not None]


def without_row(image: Image, rows: Iterable[SharedRow]) -> list[str]:
    """Return the names of the layers of an image's wheels that have no row, without reading a wheel.

    The large files of TensorFlow's wheel are left out. Their rows are written with that of the rest of it.
    """
    keys = {row.key for row in rows}
    groups = wheel_layers(image.lock, image.spec.variant)
    return [group.name for group in groups if layer_key(layers.RECIPE, made_from(group)) not in keys]


def share(path: Path, rows: Iterable[SharedRow], images: Iterable[Image]) -> tuple[int, int]:
    """Add rows to a shared table, and remove those that no image can use any more.

    images: all that have a lock. Returns how many rows were added and how many were removed.
    """
    old = {row.key: row for row in read_rows(path)}
    wheels = {wheel.sha256 for image in images for wheel in image.lock.wheels}
    kept = {
        key: row for key, row in old.items() if row.recipe == layers.RECIPE and wheels.issuperset(row.wheels)
    }
    new = {**kept, **{row.key: row for row in rows}}
    write_rows(path, new.values())
    return len(new.keys() - old.keys()), len(old.keys() - new.keys())


def _key(source: LayerSource) -> str:
    return layer_key(layers.RECIPE, source.made_from)


def main(arguments: list[str]) -> int:
    """Make the layers of the rows again that a file does not have. Return the exit code."""
    (old,) = map(Path, arguments)
    known = set(map(repr, read_rows(old)))
    added = [row for row in read_rows(images_directory() / FILE) if repr(row) not in known]
    locks = LockDirectory(shipped_matrix().parent / DIRECTORY)
    maker = LayerMaker(
        Wheelhouse(host_sources()), LayerTable(), lambda line: print(line, file=sys.stderr, flush=True)
    )
    found = list(maker.problems(added, locked_images(load_matrix(shipped_matrix()).images, locks)))
    for problem in found:
        print(problem, file=sys.stderr)
    print(f"{len(added) - len(found)} of {len(added)} new rows are right")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
