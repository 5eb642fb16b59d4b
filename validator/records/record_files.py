"""Records in files: write and read them as JSON Lines, merge them, and find them in a damaged SQLite file.

JSON Lines may be gzipped, and may come from other machines.

SQLite gives up a whole table when one of its pages is damaged. But the id of a record proves that it is
unchanged, so every row that can be reassembled and matches its id is good. A row is recognized by how it
begins, so neither the file's header nor the schema, an index or an inner page of the tree is needed. The
format is that of https://www.sqlite.org/fileformat2.html: 1.6 (pages, overflow), 2.1 (rows), 4 (the log).
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import json
import mmap
import os
import re
import stat
import sys
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from io import BufferedReader
from operator import itemgetter
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from ..errors import InputError, MissingError
from ..model.codec import LARGEST, parse_time
from ..model.record import REHEARSAL, Origin, Record, RecordError, read_record
from ..model.verdict import as_judged
from ..system import files
from ..system.files import open_file
from .history import WRONG_TIME_HINT, Entry, Fetch, credible_time, finish_time, newest_by_cell, wrong_time

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
            f"{where}: {error}", hint="export it again with `validator records export`; nothing was imported"
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


# Read what a person compares: stores, files and earlier states of a store.


@dataclass(frozen=True)
class Snapshot:
    """The newest record of every cell as of some time. fetch: returns these records."""

    newest: dict[str, Entry]
    fetch: Fetch


def open_snapshot(
    text: str, store_url: str, now: datetime, stack: contextlib.ExitStack, believe: Callable[[Record], Record]
) -> Snapshot:
    """Open what a person named: a store, a file or directory of JSON Lines, or a time.

    store_url: the store whose earlier state a time stands for. stack: closes what is opened here. believe:
    returns a record of a file as it counts here. Raises InputError for anything else.
    """
    from .store import Store

    path = Path(text)
    # A URL may have a password in it, so it is never opened as a file.
    is_store = "://" in text
    if not is_store:
        with contextlib.suppress(OSError), open_file(path, sys.maxsize) as stream:
            is_store = stream.read(len(_MAGIC)) == _MAGIC
    if is_store:
        store = stack.enter_context(Store(text, read_only=True))
        return Snapshot(store.newest(now), store.fetch)
    if path.exists():
        limits = Limits()
        files = (record for file in files_of(path) for record in read_file(file, limits=limits))
        read = {record.id: record for record in map(believe, _newest(files, now))}
        newest = newest_by_cell(map(Entry.of, read.values()), now)
        return Snapshot(newest, lambda identifiers: {each: read[each] for each in identifiers})
    try:
        at = parse_time(text, now)
    except InputError:
        raise InputError(
            f"{text}: not a file, a store's URL or a time",
            hint="for example records.jsonl, postgresql+psycopg://user@host/database, 2026-11-01 or 7d (ago)",
        ) from None
    store = stack.enter_context(Store(store_url, read_only=True))
    return Snapshot(store.newest(now, at), store.fetch)


def _newest(records: Iterable[Record], now: datetime) -> list[Record]:
    """Return the newest record of each cell with a key and without one, so that only those are in memory."""
    newest: dict[tuple[str, bool], tuple[datetime, str, Record]] = {}
    for record in records:
        if when := credible_time(finish_time(record), now):
            place = record.cell, bool(record.key)
            newest[place] = max(
                newest.get(place, (when, record.id, record)), (when, record.id, record), key=itemgetter(0, 1)
            )
    return [record for _, _, record in newest.values()]


# Find the records in a damaged SQLite file.

_MAGIC = b"SQLite format 3\0"
#: SQLite's default comes first.
_PAGE_SIZES = (4096, 1024, 2048, 8192, 16384, 32768, 65536, 512)
#: The beginning of a row in the table of records: the size of its header, and the type of its first column,
#: text of 32 bytes (13 + 2 * 32). Documents have no control characters, so there are few false finds.
_ROW = re.compile(rb"[\x08-\x14]\x4d")
#: An entry of the index of ids: a header with the type of the row's number, the id, and then that number.
_ENTRY = re.compile(rb"\x03\x4d([\x01-\x06\x08\x09])([0-9a-f]{32})")
_ID = re.compile(rb"[0-9a-f]{32}")
#: Bytes of an integer, by its type. Type 9 is the number 1 itself.
_INTEGERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8, 8: 0, 9: 0}
#: The write-ahead log has a header, and another in front of each page.
_LOG_MAGIC = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")
_LOG_HEADER, _FRAME_HEADER = 32, 24

#: Returns a page by its number, which starts with 1, or nothing where there is no such page.
Pages = Callable[[int], bytes]


@dataclass(frozen=True)
class Salvaged:
    """The result of a salvage. records: by id. lost: how many more the file is known to have had."""

    records: dict[str, Record]
    lost: int


@functools.cache
def _columns() -> int:
    # Imported here because only reading a damaged file needs SQLAlchemy.
    from .store import RECORDS

    return len(RECORDS.columns)


def salvage(path: Path) -> Salvaged:
    """Return the records in a file and its write-ahead log. Raises InputError if the file can't be read."""
    with contextlib.ExitStack() as stack:
        data = _content(path, stack)
        log_path = path.with_name(f"{path.name}-wal")
        log = _content(log_path, stack) if log_path.is_file() else b""
        # Where rows begin does not depend on the size of the pages.
        rows_of_data, rows_of_log = list(_rows(data)), list(_rows(log))
        known, numbered = _known(data, log)
        known |= {row.id for row in (*rows_of_data, *rows_of_log)}
        best = Salvaged({}, 0)
        for size, reserved in _layouts(data, log):
            records = _File(data, log, size, reserved).records(rows_of_data, rows_of_log)
            found = Salvaged(records, max(len(known - records.keys()), numbered - len(records)))
            if len(found.records) > len(best.records) or not best.records:
                best = found
            if not found.lost and found.records:
                break
        return best


def _content(path: Path, stack: contextlib.ExitStack) -> mmap.mmap | bytes:
    try:
        with open_file(path, sys.maxsize) as stream:
            if stream.seek(0, 2) == 0:
                return b""
            return stack.enter_context(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{path}: {reason}", hint="name the SQLite file of a store with --store") from error


def _layouts(data: mmap.mmap | bytes, log: mmap.mmap | bytes) -> list[tuple[int, int]]:
    """Return the sizes that pages may have, each with the bytes that are reserved at the end of a page.

    What the header and the log say comes first. Extensions of SQLite, such as for checksums, reserve bytes.
    """
    header = data[:21] if data[: len(_MAGIC)] == _MAGIC else b""
    stated, reserved = int.from_bytes(header[16:18], "big"), int.from_bytes(header[20:], "big")
    logged = int.from_bytes(log[8:12], "big") if log[:4] in _LOG_MAGIC else 0
    first = (65536 if stated == 1 else stated, reserved), (logged, 0)
    layouts = dict.fromkeys((*first, *((size, 0) for size in _PAGE_SIZES)))
    return [layout for layout in layouts if layout[0] in _PAGE_SIZES]


@dataclass(frozen=True)
class _File:
    """A file and its log, read with one size of a page and of what is reserved at its end."""

    data: mmap.mmap | bytes
    log: mmap.mmap | bytes
    size: int
    reserved: int

    def records(self, rows_of_data: Sequence[_Row], rows_of_log: Sequence[_Row]) -> dict[str, Record]:
        """Return the records whose rows begin at these places, by id."""
        records: dict[str, Record] = {}
        # Where the log has the last copy of each page.
        in_log: dict[int, int] = {}
        end = len(self.log) - _FRAME_HEADER - self.size + 1
        for start in range(_LOG_HEADER, end, _FRAME_HEADER + self.size):
            in_log[int.from_bytes(self.log[start : start + 4], "big")] = start + _FRAME_HEADER

        def page(number: int) -> bytes:
            return bytes(self.data[(number - 1) * self.size : number * self.size]) if number > 0 else b""

        def newest_page(number: int) -> bytes:
            start = in_log.get(number)
            return page(number) if start is None else bytes(self.log[start : start + self.size])

        for part, rows, views in (
            (self.data, rows_of_data, (page, newest_page)),
            (self.log, rows_of_log, (newest_page, page)),
        ):
            for row in rows:
                if row.id in records:
                    continue
                for view in dict.fromkeys(views) if in_log else views[:1]:
                    if record := self._record(part, row, view):
                        records[row.id] = record
                        break
        return records

    def _record(self, part: mmap.mmap | bytes, row: _Row, page: Pages) -> Record | None:
        """Reassemble a row. Returns None where its document is not a record with the row's id."""
        # How many bytes of the row are on its own page.
        usable = self.size - self.reserved
        local, least = row.length, (usable - 12) * 32 // 255 - 23
        if local > usable - 35:
            local = least + (row.length - least) % (usable - 4)
            local = local if local <= usable - 35 else least
        payload = bytearray(part[row.start : row.start + local])
        following = int.from_bytes(part[row.start + local : row.start + local + 4], "big")
        while len(payload) < row.length:
            content = page(following)
            if len(content) < self.size:
                return None
            payload += content[4 : 4 + min(usable - 4, row.length - len(payload))]
            following = int.from_bytes(content[:4], "big")
        try:
            record = read_record(payload[row.document :].decode("ascii"))
        except (UnicodeDecodeError, RecordError):
            return None
        return record if record.id == row.id else None


def _known(data: mmap.mmap | bytes, log: mmap.mmap | bytes) -> tuple[set[str], int]:
    """Return the ids in the index, and the greatest row number in it."""
    known: set[str] = set()
    greatest = 0
    for part in (data, log):
        for match in _ENTRY.finditer(part):
            known.add(match[2].decode())
            kind = match[1][0]
            number = (
                int.from_bytes(part[match.end() : match.end() + _INTEGERS[kind]], "big")
                if kind < 8
                else kind - 8
            )
            # Rows are numbered from 1 on, and none was ever deleted. A damaged number is likely much greater.
            if number <= (len(data) + len(log)) // len(match[0]):
                greatest = max(greatest, number)
    return known, greatest


@dataclass(frozen=True)
class _Row:
    """The position of a row. length: of all its bytes. document: where the last column begins in them."""

    start: int
    length: int
    document: int
    id: str


def _rows(part: mmap.mmap | bytes) -> Iterator[_Row]:
    """Yield the rows of the table in a part of the store."""
    for match in _ROW.finditer(part):
        if row := _row(part, match.start()):
            yield row


def _row(part: mmap.mmap | bytes, start: int) -> _Row | None:
    """Read the header of a row; None for bytes that only look like one."""
    end = start + part[start]
    position, sizes = start + 1, []
    while position < end:
        kind, position = _varint(part, position)
        if kind < 13 or kind % 2 == 0:
            return None
        sizes.append((kind - 13) // 2)
    identifier = bytes(part[end : end + 32])
    if position != end or len(sizes) != _columns() or not _ID.fullmatch(identifier):
        return None
    header = end - start
    length = header + sum(sizes)
    return _Row(start, length, length - sizes[-1], identifier.decode()) if length <= len(part) * 2 else None


def _varint(part: mmap.mmap | bytes, position: int) -> tuple[int, int]:
    value = 0
    for byte in part[position : position + 8]:
        position += 1
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            break
    return value, position
