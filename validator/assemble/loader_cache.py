"""Read and write the cache of glibc's dynamic loader, `/etc/ld.so.cache`.

The format is glibc's own (`sysdeps/generic/dl-cache.h`, `elf/cache.c`), since 2.32 the only one that ldconfig
writes: a header, entries sorted by name in descending order, their strings, and an extension with the name of
the program that wrote it and the names of the `glibc-hwcaps` directories.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..errors import InputError

_MAGIC = b"glibc-ld.so.cache1.1"
_HEADER = struct.Struct("<20sIIB3xI12x")
_ENTRY = struct.Struct("<iIIIQ")
_EXTENSION = struct.Struct("<II")
_SECTION = struct.Struct("<IIII")
_EXTENSION_MAGIC = 0xEAA42174
_GENERATOR, _HWCAPS = 0, 1
#: The bits of the byte after the number of strings that say which byte order the file has: little-endian.
_ENDIANNESS, _LITTLE = 3, 2
#: An entry for a library of glibc 2 for x86-64: FLAG_ELF_LIBC6 | FLAG_X8664_LIB64.
LIBRARY_FLAGS = 0x0303
#: The bit of `hwcap` of an entry in a `glibc-hwcaps` directory. The lower half is the directory's index.
_IN_HWCAPS = 1 << 62
_INDEX = 0xFFFFFFFF


@dataclass(frozen=True)
class CacheEntry:
    """A library: its name and its path. flags: of its type. hwcap: as in the file.

    hwcaps: the name of its `glibc-hwcaps` directory, such as `x86-64-v3`, or None.
    """

    name: str
    path: str
    flags: int = LIBRARY_FLAGS
    osversion: int = 0
    hwcap: int = 0
    hwcaps: str | None = None

    @property
    def directory(self) -> str:
        return self.path.rpartition("/")[0]


@dataclass(frozen=True)
class LoaderCache:
    """The entries in the order of the file. generator: which program wrote it, or None."""

    entries: tuple[CacheEntry, ...] = ()
    generator: str | None = None

    def with_libraries(
        self, added: Iterable[CacheEntry], comes_before: Callable[[CacheEntry], bool]
    ) -> LoaderCache:
        """Return the cache with more entries, in the order in which ldconfig lists them.

        comes_before: returns True for an entry of this cache that stays before an added one with the same
        name, because ldconfig reads its directory earlier.
        """
        ranked = [(0 if comes_before(entry) else 2, entry) for entry in self.entries]
        ranked += [(1, entry) for entry in added]
        ranked.sort(key=lambda pair: pair[0])
        return LoaderCache(
            tuple(sorted((entry for _, entry in ranked), key=functools.cmp_to_key(_compare))), self.generator
        )


def parse(data: bytes) -> LoaderCache:
    """Return the content of a cache. Raises InputError if it is damaged."""
    # Until glibc 2.31, the same file begins with an older format. Offsets count from the newer one.
    start = data.find(_MAGIC)
    if start < 0:
        raise InputError("/etc/ld.so.cache of the base does not have glibc's format")
    data = data[start:]
    try:
        _, count, _, flags, extension = _HEADER.unpack_from(data)
        if flags & _ENDIANNESS not in (0, _LITTLE):
            raise InputError("/etc/ld.so.cache of the base is for big-endian machines")
        generator, directories = _parse_extension(data, extension)
        entries = tuple(
            _parse_entry(data, _HEADER.size + number * _ENTRY.size, directories) for number in range(count)
        )
    except (struct.error, ValueError, IndexError) as error:
        raise InputError(f"/etc/ld.so.cache of the base is damaged: {error}") from error
    return LoaderCache(entries, generator)


def render(cache: LoaderCache) -> bytes:
    """Return the file. `parse(render(cache)) == cache`."""
    directories = sorted({entry.hwcaps for entry in cache.entries if entry.hwcaps is not None})
    strings = bytearray()
    offsets: dict[str, int] = {}
    start = _HEADER.size + len(cache.entries) * _ENTRY.size

    def place(text: str) -> int:
        if text not in offsets:
            offsets[text] = start + len(strings)
            strings.extend(text.encode() + b"\0")
        return offsets[text]

    rows = bytearray()
    for entry in cache.entries:
        hwcap = entry.hwcap
        if entry.hwcaps is not None:
            hwcap = hwcap & ~_INDEX | directories.index(entry.hwcaps)
        rows += _ENTRY.pack(entry.flags, place(entry.name), place(entry.path), entry.osversion, hwcap)
    indexes = struct.pack(f"<{len(directories)}I", *(place(name) for name in directories))
    # The indexes have to be aligned, so they come before the text.
    sections = [(_HWCAPS, indexes)] if directories else []
    if cache.generator is not None:
        sections.append((_GENERATOR, cache.generator.encode()))
    strings += bytes(-(start + len(strings)) % 4)
    extension = _extension(start + len(strings), sections) if sections else b""
    head = _HEADER.pack(
        _MAGIC, len(cache.entries), len(strings), _LITTLE, start + len(strings) if sections else 0
    )
    return head + bytes(rows + strings) + extension


def _extension(offset: int, sections: list[tuple[int, bytes]]) -> bytes:
    """Return the extension that begins at an offset of the file."""
    offset += _EXTENSION.size + len(sections) * _SECTION.size
    table, content = _EXTENSION.pack(_EXTENSION_MAGIC, len(sections)), b""
    for tag, data in sections:
        table += _SECTION.pack(tag, 0, offset + len(content), len(data))
        content += data
    return table + content


def _parse_entry(data: bytes, offset: int, directories: tuple[str, ...]) -> CacheEntry:
    flags, name, path, osversion, hwcap = _ENTRY.unpack_from(data, offset)
    hwcaps = directories[hwcap & _INDEX] if hwcap & _IN_HWCAPS else None
    return CacheEntry(_text(data, name), _text(data, path), flags, osversion, hwcap, hwcaps)


def _parse_extension(data: bytes, offset: int) -> tuple[str | None, tuple[str, ...]]:
    """Return the generator and the names of the hwcaps directories."""
    if offset == 0:
        return None, ()
    magic, count = _EXTENSION.unpack_from(data, offset)
    if magic != _EXTENSION_MAGIC:
        return None, ()
    generator: str | None = None
    directories: tuple[str, ...] = ()
    for number in range(count):
        at = offset + _EXTENSION.size + number * _SECTION.size
        tag, _, start, size = _SECTION.unpack_from(data, at)
        if tag == _GENERATOR:
            generator = data[start : start + size].decode()
        elif tag == _HWCAPS:
            indexes = struct.unpack_from(f"<{size // 4}I", data, start)
            directories = tuple(_text(data, index) for index in indexes)
    return generator, directories


def _text(data: bytes, offset: int) -> str:
    return data[offset : data.index(b"\0", offset)].decode()


def _compare(one: CacheEntry, other: CacheEntry) -> int:
    """Compare as ldconfig sorts (`compare` in elf/cache.c)."""
    if result := compare_names(other.name, one.name):
        return result
    if one.flags != other.flags:
        return 1 if one.flags < other.flags else -1
    # The loader stops at the first entry that is not in a glibc-hwcaps directory.
    if (one.hwcaps is None) != (other.hwcaps is None):
        return 1 if one.hwcaps is None else -1
    if one.hwcaps is not None and other.hwcaps is not None and one.hwcaps != other.hwcaps:
        return -1 if one.hwcaps < other.hwcaps else 1
    if one.hwcap != other.hwcap and one.hwcaps is None:
        return 1 if one.hwcap < other.hwcap else -1
    return 0


def compare_names(one: str, other: str) -> int:
    """Compare the names of libraries with numbers by their value (`_dl_cache_libcmp`).

    Return a negative number if `one` comes first, a positive one if `other` does, and 0 if they are the same.
    """
    a, b = one.encode() + b"\0", other.encode() + b"\0"
    i = j = 0
    while a[i]:
        if _is_digit(a[i]):
            if not _is_digit(b[j]):
                return 1
            start, begin = i, j
            while _is_digit(a[i]):
                i += 1
            while _is_digit(b[j]):
                j += 1
            if difference := int(a[start:i]) - int(b[begin:j]):
                return difference
        elif _is_digit(b[j]):
            return -1
        elif a[i] != b[j]:
            return a[i] - b[j]
        else:
            i += 1
            j += 1
    return a[i] - b[j]


def _is_digit(byte: int) -> bool:
    return 0x30 <= byte <= 0x39
