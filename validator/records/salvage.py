"""Find the records in a damaged SQLite file, without SQLite.

SQLite gives up a whole table when one of its pages is damaged. But the id of a record proves that it is
unchanged, so every row that can be reassembled and matches its id is good. A row is recognized by how it
begins, so neither the file's header nor the schema, an index or an inner page of the tree is needed.

The format is that of https://www.sqlite.org/fileformat2.html: 1.6 (pages, overflow), 2.1 (rows), 4 (the log).
"""

from __future__ import annotations

import contextlib
import mmap
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import InputError
from ..model.record import Record, RecordError, read_record
from ..system.files import open_file
from .store import RECORDS

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
_COLUMNS = len(RECORDS.columns)
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


def _layouts(data: mmap.mmap | bytes, log: mmap.mmap | bytes) -> Iterator[tuple[int, int]]:
    """Yield page sizes with the bytes that are reserved at the end of each page; the likely one first."""
    if data[: len(_MAGIC)] == _MAGIC:
        size = int.from_bytes(data[16:18], "big")
        size = 65536 if size == 1 else size
        if size in _PAGE_SIZES and data[20] < size // 2:
            yield size, data[20]
    if log[:4] in _LOG_MAGIC and (size := int.from_bytes(log[8:12], "big")) in _PAGE_SIZES:
        yield size, 0
    for size in _PAGE_SIZES:
        yield size, 0


@dataclass(frozen=True)
class _File:
    """A file and its log, read with one page size. reserved: bytes at the end of each page."""

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
        usable = self.size - self.reserved
        # How many bytes of the row are on its own page.
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
    if position != end or len(sizes) != _COLUMNS or not _ID.fullmatch(identifier):
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
