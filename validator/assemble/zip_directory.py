"""Read the directory of a ZIP archive strictly: an archive that two readers could understand differently is
an error.

Source: PKWARE's APPNOTE.TXT, 4.3 (structure), 4.4 (fields) and 4.5.3 (ZIP64).
"""

from __future__ import annotations

import stat
import struct
from collections.abc import Callable
from typing import NamedTuple

STORED, DEFLATED, BZIP2, LZMA = 0, 8, 12, 14

_END = struct.Struct("<4s4H2LH")
_END64_LOCATOR = struct.Struct("<4sLQL")
_END64 = struct.Struct("<4sQ2H2L4Q")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_SATURATED_16, _SATURATED_32 = 0xFFFF, 0xFFFFFFFF
_ZIP64_EXTRA = 0x0001
#: Encryption, compression options, a data descriptor after the data, a name in UTF-8, an end mark of LZMA.
_ENCRYPTED, _OPTIONS, _DESCRIPTOR, _UTF8, _END_MARK = 1 << 0, 0b110, 1 << 3, 1 << 11, 0b10
_LARGEST_DIRECTORY = 64 << 20
#: Bytes that are read at once to find local headers.
_AHEAD = 32 << 10

#: Returns the bytes of the archive from an offset on, all that were asked for.
ReadAt = Callable[[int, int], bytes]


class ZipError(Exception):
    """The archive is broken, ambiguous or uses something that no wheel needs. The text says what."""


class Item(NamedTuple):
    """One file or directory of the archive, as its directory describes it.

    name: with `/`; a directory's ends with one. mode: permissions and type as on Unix, 0 if unknown.
    offset: of the local header. start: the offset of the compressed data.
    """

    name: str
    raw_name: bytes
    method: int
    flags: int
    crc32: int
    compressed_size: int
    size: int
    mode: int
    offset: int
    start: int = 0

    @property
    def is_directory(self) -> bool:
        return self.name.endswith("/")

    @property
    def has_end_mark(self) -> bool:
        """True if an LZMA stream says where it ends."""
        return bool(self.flags & _END_MARK)


def read_directory(read_at: ReadAt, size: int) -> tuple[Item, ...]:
    """Return the files and directories of an archive of `size` bytes, in the order of its directory.

    Local headers agree with it, nothing overlaps and nothing comes before the first one.
    Raises ZipError.
    """
    start, end, count = _find(read_at, size)
    headers = _parse(read_at(start, end - start), count)
    read_local = _read_ahead(read_at, start)
    items: dict[int, Item] = {}
    taken = 0
    for number in sorted(range(len(headers)), key=lambda number: headers[number].offset):
        header = headers[number]
        if header.offset < taken:
            raise ZipError(f"{header.name} overlaps another file of the archive")
        if taken == 0 and header.offset:
            raise ZipError("there are bytes before the first file of the archive")
        items[number] = item = _located(read_local, header, start)
        taken = item.start + item.compressed_size
    return tuple(items[number] for number in range(len(headers)))


def _read_ahead(read_at: ReadAt, limit: int) -> ReadAt:
    """Return a function that reads ahead up to `limit`: local headers often lie close together."""
    begin, block = 0, b""

    def read(position: int, size: int) -> bytes:
        nonlocal begin, block
        if not begin <= position <= position + size <= begin + len(block):
            begin = position
            block = read_at(position, max(size, min(_AHEAD, limit - position)))
        return block[position - begin : position - begin + size]

    return read


def _find(read_at: ReadAt, size: int) -> tuple[int, int, int]:
    """Return where the central directory starts and ends, and how many entries it has."""
    if size < _END.size:
        raise ZipError("it is not a ZIP archive")
    position = size - _END.size
    signature, disk, first_disk, here, count, length, start, comment = _END.unpack(
        read_at(position, _END.size)
    )
    if signature != b"PK\5\6" or comment:
        raise ZipError("it is not a ZIP archive, or there are bytes after its directory")
    end = position
    locator = b""
    if position >= _END64_LOCATOR.size:
        locator = read_at(position - _END64_LOCATOR.size, _END64_LOCATOR.size)
    if locator.startswith(b"PK\6\7"):
        _, _, end, disks = _END64_LOCATOR.unpack(locator)
        if disks != 1 or end + _END64.size != position - _END64_LOCATOR.size:
            raise ZipError("its ZIP64 record is not where it must be")
        record = _END64.unpack(read_at(end, _END64.size))
        signature, rest, _, _, disk64, first64, *large = record
        if signature != b"PK\6\6" or rest != _END64.size - 12 or disk64 or first64:
            raise ZipError("its ZIP64 record is broken")
        small = (here, count, length, start)
        limits = (_SATURATED_16, _SATURATED_16, _SATURATED_32, _SATURATED_32)
        if any(few not in (limit, many) for few, limit, many in zip(small, limits, large, strict=True)):
            raise ZipError("its two end records disagree")
        here, count, length, start = large
    if disk or first_disk or here != count:
        raise ZipError("it has several parts")
    if start + length != end:
        raise ZipError("its directory is not where its end record says")
    if length > _LARGEST_DIRECTORY:
        raise ZipError(f"its directory has {length} bytes, more than {_LARGEST_DIRECTORY}")
    return start, end, count


def _parse(directory: bytes, count: int) -> list[Item]:
    headers = []
    position = 0
    for _ in range(count):
        if position + _CENTRAL.size > len(directory):
            raise ZipError("its directory is too short")
        fields = _CENTRAL.unpack_from(directory, position)
        signature, _, _, flags, method, _, _, crc32, compressed, size = fields[:10]
        name_length, extra_length, comment_length, disk, _, attributes, offset = fields[10:]
        if signature != b"PK\1\2":
            raise ZipError("its directory is broken")
        position += _CENTRAL.size
        raw_name = directory[position : position + name_length]
        extra = directory[position + name_length : position + name_length + extra_length]
        position += name_length + extra_length + comment_length
        if position > len(directory) or disk:
            raise ZipError("its directory is broken")
        name = _name(raw_name, flags)
        if _SATURATED_32 in (size, compressed, offset):
            wide = [value == _SATURATED_32 for value in (size, compressed, offset)]
            values = iter(_zip64(extra, sum(wide), name))
            size, compressed, offset = (
                next(values) if is_wide else value
                for is_wide, value in zip(wide, (size, compressed, offset), strict=True)
            )
        if flags & _ENCRYPTED:
            raise ZipError(f"{name} is encrypted")
        if flags & ~(_OPTIONS | _DESCRIPTOR | _UTF8):
            raise ZipError(f"{name} uses features of ZIP that wheels don't have (flags {flags:#x})")
        if method not in (STORED, DEFLATED, BZIP2, LZMA):
            raise ZipError(f"{name} is compressed by method {method}, which wheels don't use")
        if method == STORED and size != compressed:
            raise ZipError(f"{name} is not compressed, but has two different sizes")
        mode = attributes >> 16
        kind, is_directory = stat.S_IFMT(mode), name.endswith("/")
        if kind == stat.S_IFLNK:
            raise ZipError(f"{name} is a symbolic link")
        if kind not in (0, stat.S_IFDIR if is_directory else stat.S_IFREG):
            raise ZipError(f"{name} is neither a regular file nor a directory, or its name does not match")
        if is_directory and size:
            raise ZipError(f"the directory {name} has content")
        headers.append(Item(name, raw_name, method, flags, crc32, compressed, size, mode, offset))
    if position != len(directory):
        raise ZipError("its directory has bytes that belong to no file")
    return headers


def _name(raw: bytes, flags: int) -> str:
    try:
        return raw.decode("utf-8" if flags & _UTF8 else "ascii")
    except UnicodeDecodeError:
        encoding = "UTF-8" if flags & _UTF8 else "ASCII, and isn't marked as UTF-8"
        raise ZipError(f"the name {raw!r} is not {encoding}") from None


def _zip64(extra: bytes, count: int, name: str) -> tuple[int, ...]:
    """Return the first `count` numbers of the ZIP64 field."""
    position = 0
    while position + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, position)
        position += 4
        if kind == _ZIP64_EXTRA and 8 * count <= length <= len(extra) - position:
            return struct.unpack_from(f"<{count}Q", extra, position)
        position += length
    raise ZipError(f"the sizes of {name} are missing")


def _located(read_at: ReadAt, header: Item, limit: int) -> Item:
    """Return the item with the offset of its data, after comparing the local header."""
    length = _LOCAL.size + len(header.raw_name)
    if header.offset + length > limit:
        raise ZipError(f"{header.name} lies outside the archive")
    local = read_at(header.offset, length)
    signature, _, flags, method, _, _, crc32, compressed, size, name_length, extra_length = (
        _LOCAL.unpack_from(local)
    )
    if signature != b"PK\3\4":
        raise ZipError(f"{header.name} is not where the directory says")
    if name_length != len(header.raw_name) or local[_LOCAL.size :] != header.raw_name:
        raise ZipError(f"{header.name} has another name in its local header")
    if method != header.method or (flags ^ header.flags) & (_ENCRYPTED | _DESCRIPTOR):
        raise ZipError(f"{header.name} is stored in another way than the directory says")
    if _SATURATED_32 in (compressed, size):
        extra = read_at(header.offset + length, extra_length)
        size, compressed = _zip64(extra, 2, header.name)
    found, promised = (crc32, compressed, size), (header.crc32, header.compressed_size, header.size)
    # With a data descriptor, the writer did not know them yet.
    if found != promised and not (flags & _DESCRIPTOR and not any(found)):
        raise ZipError(f"{header.name} has other sizes or another CRC in its local header")
    start = header.offset + length + extra_length
    if start + header.compressed_size > limit:
        raise ZipError(f"{header.name} does not end before the directory")
    return header._replace(start=start)
