"""Write and read records as JSON Lines, plain or gzipped, and merge what other machines wrote."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import stat
import sys
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from io import BufferedReader
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from ..errors import InputError, MissingError
from ..model.codec import LARGEST
from ..model.record import REHEARSAL, Origin, Record, RecordError, read_record
from ..model.verdict import as_judged
from ..system import files
from .history import WRONG_TIME_HINT, wrong_time

if TYPE_CHECKING:
    from .store import Store

#: The files that are read in a directory, such as a CI run's artifacts.
_PATTERNS = ("*.jsonl", "*.jsonl.gz")
_GZIP = b"\x1f\x8b"
_IN_PARTS = "split the lines into several files, and read one after the other"


@dataclass
class Limits:
    """The limits of what may be read, and what was read so far: unpacked bytes, and lines."""

    most_bytes: int = 512 << 20
    most_lines: int = 500_000
    read_bytes: int = 0
    read_lines: int = 0

    def count(self, line: bytes, where: str) -> None:
        """Count a line. Raises InputError where it is too much."""
        self.read_bytes += len(line)
        self.read_lines += 1
        if self.read_bytes > self.most_bytes:
            raise InputError(f"{where}: it unpacks to more than {self.most_bytes >> 20} MiB", hint=_IN_PARTS)
        if self.read_lines > self.most_lines:
            raise InputError(f"{where}: there are more than {self.most_lines} lines", hint=_IN_PARTS)


def write(records: Iterable[Record], stream: IO[str]) -> int:
    """Write one record per line, and return how many."""
    count = 0
    for record in records:
        text = json.dumps(record.document(), sort_keys=True, separators=(",", ":"))
        # If the lines are written to the log of a workflow, its runner would take `##[error]` for a command.
        stream.write(text.replace("##[", "\\u0023#[") + "\n")
        count += 1
    return count


def files_of(path: Path) -> list[Path]:
    """Return the file, or all JSON Lines files below a directory. Raises InputError if there are none."""
    if not path.is_dir():
        return [path]
    found = sorted(file for pattern in _PATTERNS for file in path.rglob(pattern) if file.is_file())
    if not found:
        raise InputError(
            f"{path}: this directory has no file whose name ends in .jsonl or .jsonl.gz",
            hint="check that the artifacts were downloaded; `records export --output` writes such files",
        )
    return found


def read_file(
    path: Path,
    now: datetime | None = None,
    limits: Limits | None = None,
    read_line: Callable[[bytes], Record] = read_record,
) -> Iterator[Record]:
    """Read records; `-` is standard input. read_line: reads one. Raises InputError as `read` does."""
    try:
        with files.open_file(path, sys.maxsize) as stream:
            where = "stdin" if str(path) == "-" else str(path)
            yield from read(cast("BufferedReader", stream), where, now, limits, read_line)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error


def read(
    stream: BufferedReader,
    where: str,
    now: datetime | None = None,
    limits: Limits | None = None,
    read_line: Callable[[bytes], Record] = read_record,
) -> Iterator[Record]:
    """Read records from a stream.

    where: its name in errors. now: the clock by which a record's finish time must be right; None accepts any.
    limits: shared by the streams that they are for. Raises InputError with the line which is not a record.
    """
    zipped = stream.peek(len(_GZIP)).startswith(_GZIP)
    number, limits = 0, limits or Limits()
    try:
        with gzip.open(stream) if zipped else contextlib.nullcontext(stream) as lines:
            while line := lines.readline(min(LARGEST, limits.most_bytes) + 1):
                number += 1
                limits.count(line, where)
                if line.strip():
                    yield _record(line, f"{where}:{number}", now, read_line)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(
            f"{where}:{number + 1}: the gzip file is incomplete or damaged: {error}",
            hint="copy or download it again; nothing was imported",
        ) from error


def _record(line: bytes, where: str, now: datetime | None, read_line: Callable[[bytes], Record]) -> Record:
    try:
        record = read_line(line)
    except RecordError as error:
        raise InputError(
            f"{where}: {error}",
            hint="export it again with `validator records export`; nothing was imported",
        ) from error
    if record.origin is Origin.REHEARSAL:
        raise InputError(
            f"{where}: this record was made by a {REHEARSAL}, which proves nothing",
            hint="look at it where it was made, with `records show --store`; nothing was imported",
        )
    if now is not None and (problem := wrong_time(record, now)):
        raise InputError(f"{where}: {problem}", hint=f"{WRONG_TIME_HINT}; nothing was imported")
    return record


# Merge records from many machines, reading the artifact of each machine on its own.
#
# An artifact is a directory with JSON Lines, as a job of a workflow uploads it. Whoever controls the machine
# controls every byte of it, so it is read within limits. One that can't be accepted is refused as a whole.

#: Bytes of one artifact, unpacked.
LARGEST_ARTIFACT = 64 << 20
#: Records of one artifact.
MOST_RECORDS_OF_ARTIFACT = 10_000
#: Files of records in one artifact; a job writes one.
_MOST_FILES = 100

#: The names of the artifacts of a nightly workflow, which the jobs `validate` and `build` upload.
_OF_CELL, _OF_BUILD = "records-", "records-build-"


@dataclass(frozen=True)
class RefusedArtifact:
    """An artifact that was not merged. Both texts may come from the machine that sent it."""

    artifact: str
    reason: str


@dataclass(frozen=True)
class Merged:
    """The result of a merge. cells: those with a record. added: records that were new to the store."""

    artifacts: int
    cells: frozenset[str]
    added: int
    refused: tuple[RefusedArtifact, ...]


def merge(
    directory: Path,
    store: Store,
    now: datetime,
    planned: Collection[str] = (),
    believe: Callable[[Record], Record] = as_judged,
) -> Merged:
    """Merge the artifacts in a directory into a store, each completely or not at all.

    believe: returns a record as it counts here, see `certify.acceptance.believed`. planned: the planned
    cells; each job measures one of them, so the artifact `records-CELL` may have only records of this cell.
    Raises MissingError when the store can't be written.
    """
    accepted, added = 0, 0
    cells: set[str] = set()
    refused: list[RefusedArtifact] = []
    for path in sorted(directory.iterdir()):
        try:
            records = [believe(record) for record in _read_artifact(path, now, planned)]
        except MissingError:
            raise
        except InputError as error:
            refused.append(RefusedArtifact(path.name, str(error)))
        except Exception as error:
            # Whatever one machine sends, the records of the others must still be merged.
            refused.append(RefusedArtifact(path.name, f"it can't be read ({type(error).__name__})"))
        else:
            added += store.add_all(records)
            accepted += 1
            cells.update(record.cell for record in records)
    return Merged(accepted, frozenset(cells), added, tuple(refused))


def _read_artifact(artifact: Path, now: datetime, planned: Collection[str]) -> Iterator[Record]:
    """Yield the records of an artifact. Raises InputError for one that can't be accepted."""
    if artifact.is_symlink() or not artifact.is_dir():
        raise InputError(f"{artifact.name}: it is not a directory")
    found: list[Path] = []
    for directory, _, names in os.walk(artifact):
        found += (Path(directory, name) for name in names if name.endswith((".jsonl", ".jsonl.gz")))
        if len(found) > _MOST_FILES:
            raise InputError(f"{artifact.name}: it has more than {_MOST_FILES} files with records")
    limits = Limits(LARGEST_ARTIFACT, MOST_RECORDS_OF_ARTIFACT)
    for path in sorted(found):
        where = str(path.relative_to(artifact.parent))
        with _open_in_artifact(path, where) as stream:
            for record in read(stream, where, now, limits):
                image = artifact.name.removeprefix(_OF_BUILD)
                cell = artifact.name.removeprefix(_OF_CELL)
                if artifact.name.startswith(_OF_BUILD):
                    if record.image != image:
                        raise InputError(f"{where}: a record is about {record.image}, not about {image}")
                elif cell in planned and record.cell != cell:
                    raise InputError(
                        f"{where}: a record is of the cell {record.cell}, but the job had to measure {cell}"
                    )
                yield record


def _open_in_artifact(path: Path, where: str) -> BufferedReader:
    """Open a regular file; neither a link, which could lead anywhere, nor a pipe, which could block."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise InputError(f"{where}: it can't be opened: {error.strerror}") from error
    stream = os.fdopen(number, "rb")
    found = os.fstat(number)
    if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST_ARTIFACT:
        stream.close()
        raise InputError(f"{where}: it is not a file of at most {LARGEST_ARTIFACT >> 20} MiB")
    return stream
