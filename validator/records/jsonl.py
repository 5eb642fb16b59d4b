"""Write and read records as JSON Lines, plain or gzipped, to move them between machines."""

from __future__ import annotations

import contextlib
import gzip
import json
import sys
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from io import BufferedReader
from pathlib import Path
from typing import IO, cast

from ..errors import InputError
from ..model.codec import LARGEST
from ..model.record import REHEARSAL, Origin, Record, RecordError, read_record
from ..system import files
from .finish_time import WRONG_TIME_HINT, wrong_time

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


def read_file(path: Path, now: datetime | None = None, limits: Limits | None = None) -> Iterator[Record]:
    """Read records; `-` is standard input. Raises InputError as `read` does."""
    try:
        with files.open_file(path, sys.maxsize) as stream:
            where = "stdin" if str(path) == "-" else str(path)
            yield from read(cast("BufferedReader", stream), where, now, limits)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error


def read(
    stream: BufferedReader, where: str, now: datetime | None = None, limits: Limits | None = None
) -> Iterator[Record]:
    """Read records from a stream.

    where: its name in errors. now: the clock by which a record's finish time must be right; None accepts any.
    limits: shared by the streams that they are for.
    Raises InputError that names the line which is not a record.
    """
    zipped = stream.peek(len(_GZIP)).startswith(_GZIP)
    number, limits = 0, limits or Limits()
    try:
        with gzip.open(stream) if zipped else contextlib.nullcontext(stream) as lines:
            while line := lines.readline(min(LARGEST, limits.most_bytes) + 1):
                number += 1
                limits.count(line, where)
                if line.strip():
                    yield _record(line, f"{where}:{number}", now)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(
            f"{where}:{number + 1}: the gzip file is incomplete or damaged: {error}",
            hint="copy or download it again; nothing was imported",
        ) from error


def _record(line: bytes, where: str, now: datetime | None) -> Record:
    try:
        record = read_record(line)
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
