"""Merge records from many machines, reading the artifact of each machine on its own.

An artifact is a directory with JSON Lines, as a job of a workflow uploads it. Whoever controls the machine
controls every byte of it, so it is read within limits. One that can't be accepted is refused as a whole, and
the others are merged.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from io import BufferedReader
from pathlib import Path

from ..errors import InputError, MissingError
from ..model.record import Record
from ..model.verdict import as_judged
from . import jsonl
from .jsonl import Limits
from .store import Store

#: Bytes of one artifact, unpacked.
LARGEST = 64 << 20
#: Records of one artifact.
MOST_RECORDS = 10_000
#: Files of records in one artifact; a job writes one.
_MOST_FILES = 100

#: The names of the artifacts of a nightly workflow, which the jobs `validate` and `build` upload.
_OF_CELL, _OF_BUILD = "records-", "records-build-"


@dataclass(frozen=True)
class Refused:
    """An artifact that was not merged. Both texts may come from the machine that sent it."""

    artifact: str
    reason: str


@dataclass(frozen=True)
class Merged:
    """The result of a merge. cells: those with a record. added: records that were new to the store."""

    artifacts: int
    cells: frozenset[str]
    added: int
    refused: tuple[Refused, ...]


def merge(
    directory: Path,
    store: Store,
    now: datetime,
    planned: Collection[str] = (),
    believe: Callable[[Record], Record] = as_judged,
) -> Merged:
    """Merge the artifacts in a directory into a store, each completely or not at all.

    believe: returns a record as it counts here, see `certify.acceptance.believed`.

    planned: the planned cells; each job measures one of them, so the artifact `records-CELL` may have only
    records of this cell. Raises MissingError when the store can't be written.
    """
    accepted, added = 0, 0
    cells: set[str] = set()
    refused: list[Refused] = []
    for path in sorted(directory.iterdir()):
        try:
            records = [believe(record) for record in _read(path, now, planned)]
        except MissingError:
            raise
        except InputError as error:
            refused.append(Refused(path.name, str(error)))
        except Exception as error:
            # Whatever one machine sends, the records of the others must still be merged.
            refused.append(Refused(path.name, f"it can't be read ({type(error).__name__})"))
        else:
            added += store.add_all(records)
            accepted += 1
            cells.update(record.cell for record in records)
    return Merged(accepted, frozenset(cells), added, tuple(refused))


def _read(artifact: Path, now: datetime, planned: Collection[str]) -> Iterator[Record]:
    """Yield the records of an artifact. Raises InputError for one that can't be accepted."""
    limits = Limits(LARGEST, MOST_RECORDS)
    for path in _files(artifact):
        where = str(path.relative_to(artifact.parent))
        with _open(path, where) as stream:
            for record in jsonl.read(stream, where, now, limits):
                if objection := _objection(record, artifact.name, planned):
                    raise InputError(f"{where}: {objection}")
                yield record


def _files(artifact: Path) -> list[Path]:
    if artifact.is_symlink() or not artifact.is_dir():
        raise InputError(f"{artifact.name}: it is not a directory")
    found: list[Path] = []
    for directory, _, names in os.walk(artifact):
        found += (Path(directory, name) for name in names if name.endswith((".jsonl", ".jsonl.gz")))
        if len(found) > _MOST_FILES:
            raise InputError(f"{artifact.name}: it has more than {_MOST_FILES} files with records")
    return sorted(found)


def _open(path: Path, where: str) -> BufferedReader:
    """Open a regular file; neither a link, which could lead anywhere, nor a pipe, which could block."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise InputError(f"{where}: it can't be opened: {error.strerror}") from error
    stream = os.fdopen(number, "rb")
    found = os.fstat(number)
    if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST:
        stream.close()
        raise InputError(f"{where}: it is not a file of at most {LARGEST >> 20} MiB")
    return stream


def _objection(record: Record, artifact: str, planned: Collection[str]) -> str | None:
    """Return why an artifact of this name may not have this record, or None."""
    if artifact.startswith(_OF_BUILD):
        image = artifact.removeprefix(_OF_BUILD)
        return None if record.image == image else f"a record is about {record.image}, not about {image}"
    cell = artifact.removeprefix(_OF_CELL)
    if cell in planned and record.cell != cell:
        return f"a record is of the cell {record.cell}, but the job had to measure {cell}"
    return None
