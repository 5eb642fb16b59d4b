"""Parse the parts of ELF that say what a shared library needs, searches and defines.

Only 64-bit little-endian files are read: every CUDA wheel for Linux has these. Field offsets are
those of the System V ABI's ELF-64 object file format.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from ...errors import InputError

#: What can be parsed: a file mapped into memory, or its bytes.
Buffer = bytes | mmap.mmap

_MAGIC = b"\x7fELF"
_CLASS_64, _LITTLE_ENDIAN = 2, 1
_SHT_SYMTAB, _SHT_DYNAMIC, _SHT_NOBITS, _SHT_DYNSYM = 2, 6, 8, 11
_PT_LOAD = 1
_DT_NEEDED, _DT_SONAME, _DT_RPATH, _DT_RUNPATH = 1, 14, 15, 29
_SYMBOL_SIZE = 24


@dataclass(frozen=True)
class Section:
    """One section header. offset and size are in bytes in the file, 0 for what is not in it."""

    name: str
    type: int
    address: int
    offset: int
    size: int
    link: int

    def holds(self, offset: int) -> bool:
        """Return True if a file offset is inside the section."""
        return self.offset <= offset < self.offset + self.size


@dataclass(frozen=True)
class Symbol:
    """A defined symbol. address is virtual; size is in bytes."""

    name: str
    address: int
    size: int


def is_elf(buffer: Buffer) -> bool:
    """Return True if the buffer starts like an ELF file."""
    return buffer[:4] == _MAGIC


class ElfFile:
    """A shared library. Raises InspectionError if the file contradicts itself.

    name: the file's name in errors.
    needed: DT_NEEDED, in the order of the file.
    search_path: the entries of DT_RUNPATH, or of DT_RPATH where there is no DT_RUNPATH (the loader
        ignores DT_RPATH then), in order and without repetitions.
    """

    def __init__(self, buffer: Buffer, name: str) -> None:
        self.buffer = buffer
        self.name = name
        if not is_elf(buffer):
            raise InspectionError(f"{name}: not an ELF file")
        if len(buffer) < 64 or buffer[4] != _CLASS_64 or buffer[5] != _LITTLE_ENDIAN:
            raise InspectionError(f"{name}: not a 64-bit little-endian ELF file, or cut short")
        self._segments = tuple(self._read_segments())
        self.sections = tuple(self._read_sections())
        self.needed, self.soname, self.search_path = self._read_dynamic()

    def _unpack(self, layout: str, offset: int, what: str) -> tuple[int, ...]:
        if offset + struct.calcsize(layout) > len(self.buffer):
            raise InspectionError(f"{self.name}: cut short: {what} at byte {offset} of {len(self.buffer)}")
        return struct.unpack_from(layout, self.buffer, offset)

    def _read_segments(self) -> Iterator[tuple[int, int, int]]:
        (table,) = self._unpack("<Q", 32, "the program header table's offset")
        entry_size, count = self._unpack("<HH", 54, "the program header table's size")
        for number in range(count):
            kind, _, offset, address, _, size = self._unpack(
                "<IIQQQQ", table + number * entry_size, "a program header"
            )
            if kind == _PT_LOAD:
                yield address, offset, size

    def _read_sections(self) -> Iterator[Section]:
        (table,) = self._unpack("<Q", 40, "the section header table's offset")
        entry_size, count, names_index = self._unpack("<HHH", 58, "the section header table's size")
        headers = [
            self._unpack("<IIQQQQIIQQ", table + number * entry_size, "a section header")
            for number in range(count)
        ]
        if headers and names_index >= len(headers):
            raise InspectionError(
                f"{self.name}: damaged: section names are in section {names_index} of {count}"
            )
        for name, kind, _, address, offset, size, link, *_ in headers:
            if kind == _SHT_NOBITS:
                offset = size = 0
            if offset + size > len(self.buffer):
                raise InspectionError(
                    f"{self.name}: cut short: a section ends at byte {offset + size} of {len(self.buffer)}"
                )
            text = self._string(headers[names_index][4] + name)
            yield Section(text, kind, address, offset, size, link)

    def _string(self, offset: int) -> str:
        end = self.buffer.find(b"\0", offset) if offset < len(self.buffer) else -1
        if end < 0:
            raise InspectionError(f"{self.name}: damaged: the string at byte {offset} has no end")
        return self.buffer[offset:end].decode("utf-8", "replace")

    def _read_dynamic(self) -> tuple[tuple[str, ...], str | None, tuple[str, ...]]:
        found: dict[int, list[str]] = {_DT_NEEDED: [], _DT_SONAME: [], _DT_RPATH: [], _DT_RUNPATH: []}
        for section in self.sections:
            if section.type != _SHT_DYNAMIC:
                continue
            strings = self._linked(section)
            for offset in range(section.offset, section.offset + section.size - 15, 16):
                tag, value = self._unpack("<QQ", offset, "the dynamic section")
                if tag in found:
                    found[tag].append(self._string(strings.offset + value))
        path = (found[_DT_RUNPATH] or found[_DT_RPATH] or [""])[0]
        entries = dict.fromkeys(entry for entry in path.split(":") if entry)
        return tuple(found[_DT_NEEDED]), next(iter(found[_DT_SONAME]), None), tuple(entries)

    def _linked(self, section: Section) -> Section:
        if section.link >= len(self.sections):
            raise InspectionError(f"{self.name}: damaged: {section.name} links to section {section.link}")
        return self.sections[section.link]

    def section_at(self, offset: int) -> str | None:
        """Return the name of the section with a file offset."""
        return next((section.name for section in self.sections if section.holds(offset)), None)

    def offset_of(self, address: int) -> int:
        """Return the file offset of a virtual address. Raises InspectionError if nothing is loaded there."""
        for start, offset, size in self._segments:
            if start <= address < start + size:
                return offset + address - start
        raise InspectionError(f"{self.name}: damaged: nothing is loaded at address {address:#x}")

    def content(self, symbol: Symbol) -> bytes:
        """Return the bytes of a symbol: a function's code or an object's value."""
        offset = self.offset_of(symbol.address)
        if offset + symbol.size > len(self.buffer):
            raise InspectionError(
                f"{self.name}: cut short: {symbol.name} at byte {offset} of {len(self.buffer)}"
            )
        return self.buffer[offset : offset + symbol.size]

    def names_with(self, prefix: bytes, suffix: bytes) -> tuple[str, ...]:
        """Return the names in the symbol string tables with a prefix and a suffix, sorted.

        Looking for text in the string table is far faster than decoding a million symbols.
        """
        found = set()
        for table in self._symbol_tables():
            strings = self._linked(table)
            end = strings.offset + strings.size
            position = self.buffer.find(prefix, strings.offset, end)
            while position >= 0:
                stop = self.buffer.find(b"\0", position, end)
                name = self.buffer[position : stop if stop >= 0 else end]
                if name.endswith(suffix):
                    found.add(name.decode("ascii", "replace"))
                position = self.buffer.find(prefix, position + 1, end)
        return tuple(sorted(found))

    def symbol(self, name: str) -> Symbol | None:
        """Return the definition of a symbol, exported or (if the file is not stripped) local; else None."""
        wanted = name.encode()
        for table in self._symbol_tables():
            strings = self._linked(table)
            end = strings.offset + strings.size
            position = self.buffer.find(wanted + b"\0", strings.offset, end)
            while position >= 0:
                found = self._defined(table, position - strings.offset, name)
                if found:
                    return found
                position = self.buffer.find(wanted + b"\0", position + 1, end)
        return None

    def _symbol_tables(self) -> Iterator[Section]:
        return (section for section in self.sections if section.type in (_SHT_DYNSYM, _SHT_SYMTAB))

    def _defined(self, table: Section, name_offset: int, name: str) -> Symbol | None:
        key, end = struct.pack("<I", name_offset), table.offset + table.size
        position = self.buffer.find(key, table.offset, end)
        while position >= 0:
            if (position - table.offset) % _SYMBOL_SIZE == 0:
                _, _, section, address, size = self._unpack("<IHHQQ", position, "a symbol")
                if section != 0:
                    return Symbol(name, address, size)
            position = self.buffer.find(key, position + 1, end)
        return None


# The error of this package.


class InspectionError(InputError):
    """A file that is not what its name says, or is cut short or damaged."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(
            message, hint=hint or "download the wheel again and compare its SHA-256 with the index"
        )
