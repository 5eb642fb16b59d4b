"""The tar archive of a layer: POSIX ustar, with extended headers only where a field is too small.

Source: POSIX.1-2017, pax, "ustar Interchange Format" and "pax Extended Header".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

from .entries import Entry

BLOCK = 512
#: Two empty blocks end an archive.
END = bytes(2 * BLOCK)

_NAME, _PREFIX = 100, 155
_LARGEST_SIZE = 8**11 - 1
_LARGEST_ID = 8**7 - 1
_FILE, _LINK, _DIRECTORY, _EXTENDED = b"0", b"2", b"5", b"x"
_TIME = b"%011o" % 0


def header(entry: Entry) -> bytes:
    """Return the blocks that come before the content of an entry."""
    # The root of the image is "./", as tar itself writes it.
    path = entry.path.encode() or b"."
    link = b"" if entry.link is None else entry.link.encode()
    size = 0 if entry.content is None else entry.content.size
    kind = _FILE
    if entry.link is not None:
        kind = _LINK
    elif entry.content is None:
        kind = _DIRECTORY
        path += b"/"
    extended = {}
    prefix, name = _split(path)
    if name is None:
        extended["path"] = path
        prefix, name = b"", path[:_NAME]
    if len(link) > _NAME or not link.isascii():
        extended["linkpath"] = link
    for field, number in (("uid", entry.uid), ("gid", entry.gid)):
        if number > _LARGEST_ID:
            extended[field] = b"%d" % number
    if size > _LARGEST_SIZE:
        extended["size"] = b"%d" % size
    before = b""
    if extended:
        records = b"".join(_record(field.encode(), extended[field]) for field in sorted(extended))
        before = _ustar(b"PaxHeaders", b"", 0o644, 0, 0, len(records), _EXTENDED, b"")
        before += records + padding(len(records))
    return before + _ustar(
        name,
        prefix,
        entry.mode,
        0 if "uid" in extended else entry.uid,
        0 if "gid" in extended else entry.gid,
        0 if "size" in extended else size,
        kind,
        link[:_NAME],
    )


def padding(size: int) -> bytes:
    """Return the zeros after a content of `size` bytes."""
    return bytes(-size % BLOCK)


def in_order(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Return the entries. Raises ValueError where one is not sorted or lacks its parent directory.

    The root of the image, whose path is empty, may be missing.
    """
    last: str | None = None
    directories = {""}
    for entry in entries:
        if last is not None and entry.path <= last:
            raise ValueError(f"{entry.path} comes after {last}")
        last = entry.path
        if entry.path.rpartition("/")[0] not in directories:
            raise ValueError(f"{entry.path} comes without its parent directory")
        if entry.content is None and entry.link is None:
            directories.add(entry.path)
        yield entry


def _split(path: bytes) -> tuple[bytes, bytes | None]:
    """Return prefix and name of a path as ustar has them; no name if they don't fit."""
    if not path.isascii():
        return b"", None
    if len(path) <= _NAME:
        return b"", path
    # The slash between them is in neither; the name is not empty, and of a directory not only its slash.
    at = path.find(b"/", len(path) - _NAME - 1)
    if at <= 0 or at > _PREFIX or at >= len(path) - 1:
        return b"", None
    return path[:at], path[at + 1 :]


def _record(field: bytes, value: bytes) -> bytes:
    """Return a record of an extended header, which starts with its own length in decimal."""
    rest = b" " + field + b"=" + value + b"\n"
    length = len(rest) + 1
    while length != len(rest) + len(b"%d" % length):
        length = len(rest) + len(b"%d" % length)
    return b"%d" % length + rest


def _ustar(
    name: bytes, prefix: bytes, mode: int, uid: int, gid: int, size: int, kind: bytes, link: bytes
) -> bytes:
    owner, rest, constant = _common(mode, uid, gid, kind, link)
    digits = b"%011o" % size
    checksum = constant + sum(name) + sum(digits) + sum(prefix)
    return b"%b%b%b\0%b\0%06o\0 %b%b" % (
        name.ljust(_NAME, b"\0"),
        owner,
        digits,
        _TIME,
        checksum,
        rest,
        prefix.ljust(_PREFIX + 12, b"\0"),
    )


@lru_cache(maxsize=256)
def _common(mode: int, uid: int, gid: int, kind: bytes, link: bytes) -> tuple[bytes, bytes, int]:
    """Return the fields before the size, those between checksum and prefix, and their part of the checksum.

    They are the same for nearly all entries of a layer.
    """
    owner = b"%07o\0%07o\0%07o\0" % (mode, uid, gid)
    rest = kind + link.ljust(_NAME, b"\0") + b"ustar\x0000" + bytes(64) + b"0000000\0" * 2
    return owner, rest, sum(owner) + sum(_TIME) + sum(rest) + 8 * ord(" ")
