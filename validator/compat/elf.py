"""Parse the parts of ELF that say what a shared library needs, searches and defines.

Only 64-bit little-endian files are read: every CUDA wheel for Linux has these. Field offsets are
those of the System V ABI's ELF-64 object file format.
"""

from __future__ import annotations

import functools
import mmap
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from ..errors import InputError
from ..versions import ComputeCapability
from .releases import FAMILY, SPECIFIC, Target

#: What can be parsed: a file mapped into memory, or its bytes.
Buffer = bytes | mmap.mmap

_MAGIC = b"\x7fELF"
_CLASS_64, _LITTLE_ENDIAN = 2, 1
_SHT_SYMTAB, _SHT_DYNAMIC, _SHT_NOBITS, _SHT_DYNSYM = 2, 6, 8, 11
_PT_LOAD = 1
_DT_NEEDED, _DT_SONAME, _DT_RPATH, _DT_RUNPATH = 1, 14, 15, 29
_SYMBOL_SIZE = 24


class InspectionError(InputError):
    """A file that is not what its name says, or is cut short or damaged."""

    def __init__(self, message: str) -> None:
        super().__init__(message, hint="download the wheel again and compare its SHA-256 with the index")


@dataclass(frozen=True)
class Section:
    """One section header. offset and size are in bytes in the file, 0 for what is not in it."""

    name: str
    type: int
    address: int
    offset: int
    size: int
    link: int


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

    name: the file's name in errors. needed: DT_NEEDED, in the order of the file. search_path: the entries of
    DT_RUNPATH, or of DT_RPATH where there is no DT_RUNPATH (the loader ignores DT_RPATH then), in order and
    without repetitions.
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
        """Return the sorted names with a prefix and a suffix; far faster than decoding a million symbols."""
        found = set()
        for _, position, end in self._names(prefix):
            stop = self.buffer.find(b"\0", position, end)
            name = self.buffer[position : stop if stop >= 0 else end]
            if name.endswith(suffix):
                found.add(name.decode("ascii", "replace"))
        return tuple(sorted(found))

    def symbol(self, name: str) -> Symbol | None:
        """Return the definition of a symbol, exported or (if the file is not stripped) local; else None."""
        for table, position, _ in self._names(name.encode() + b"\0"):
            found = self._defined(table, position - self._linked(table).offset, name)
            if found:
                return found
        return None

    def _names(self, text: bytes) -> Iterator[tuple[Section, int, int]]:
        """Yield where a text is in the names of symbols: the table, the offset, and where the names end."""
        for table in self.sections:
            if table.type in (_SHT_DYNSYM, _SHT_SYMTAB):
                strings = self._linked(table)
                end = strings.offset + strings.size
                position = self.buffer.find(text, strings.offset, end)
                while position >= 0:
                    yield table, position, end
                    position = self.buffer.find(text, position + 1, end)

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


# Device code inside a host library: which GPUs have machine code (SASS), which PTX, in which ISA version.
#
# A *fatbin* is what one translation unit's device code becomes: a header, then one image for each
# architecture. nvcc puts them into the section `.nv_fatbin`; generated kernels may be in any data section,
# so the whole file is searched for the header. NVIDIA does not document the layout; the fields used here
# agree with what cuobjdump prints, and sizes that do not fit the file are errors rather than guesses.

_FATBIN_MAGIC = struct.pack("<I", 0xBA55ED50)
_VERSION = 1
_HEADER = struct.Struct("<IHHQ")
# kind, version, header size, padded payload size, compressed size, (unknown), code version minor and major,
# architecture, name offset, name size, flags, (unknown), uncompressed size
_IMAGE = struct.Struct("<HHIQIIHHIIIQQQ")
_FLAG_LZ4, _FLAG_ZSTD = 0x2000, 0x8000
#: The suffix of the target, as `fatbinary` of CUDA 13.5 writes it. TensorFlow's generated kernels have none
#: of these flags, so the text of PTX is read as well.
_FLAG_SPECIFIC, _FLAG_FAMILY = 0x100000, 0x200000

#: Fatbins in this section have relocatable code, which is linked into another fatbin before it can run.
RELOCATABLE_SECTION = "__nv_relfatbin"

#: The names of all of NCCL's kernels contain this. They are collectives, which are needed only
#: where several GPUs work together.
_NCCL = b"nccl"
#: The names in the head of a cubin are enough to recognise a library.
_CUBIN_HEAD = 1 << 16

#: A PTX text longer than this is assumed to have a kernel, without reading it to the end.
_SHORT_PTX = 4096


#: The kinds of images that are read. Others (link-time IR) exist and are ignored.
_KIND_PTX, _KIND_ELF = 1, 2


@dataclass(frozen=True)
class Image:
    """The code of one unit for one architecture. ptx_isa: (major, minor); None for machine code."""

    kind: int
    target: Target
    ptx_isa: tuple[int, int] | None
    has_kernels: bool = True


@dataclass(frozen=True)
class Fatbin:
    """The images of one unit. offset: bytes in the file. nccl: machine code of NCCL, in wheels up to 2.20."""

    offset: int
    images: tuple[Image, ...]
    relocatable: bool = False
    nccl: bool = False

    @functools.cached_property
    def sass(self) -> tuple[Target, ...]:
        """The targets with machine code, ascending."""
        return tuple(sorted({image.target for image in self.images if image.kind == _KIND_ELF}))

    @functools.cached_property
    def ptx(self) -> tuple[tuple[Target, tuple[int, int]], ...]:
        """(target, PTX ISA version) of each PTX image, ascending."""
        return tuple(sorted({(image.target, image.ptx_isa) for image in self.images if image.ptx_isa}))

    @property
    def has_kernels(self) -> bool:
        """False for a translation unit without kernels. Many have only global variables, or nothing."""
        return all(image.has_kernels for image in self.images)


def fatbins(elf: ElfFile) -> Iterator[Fatbin]:
    """Return every fatbin of a library, in the order of the file. Raises InspectionError."""
    buffer = elf.buffer
    position = buffer.find(_FATBIN_MAGIC)
    while position >= 0:
        end = position + len(_FATBIN_MAGIC)
        if len(buffer) - position >= _HEADER.size:
            _, version, header_size, size = _HEADER.unpack_from(buffer, position)
            # The four bytes also occur by chance, for example in compressed code.
            if version == _VERSION and header_size == _HEADER.size:
                end = position + header_size + size
                if end > len(buffer):
                    raise InspectionError(
                        f"{elf.name}: cut short: the fatbin at byte {position} ends at {end} of {len(buffer)}"
                    )
                start = position + header_size
                images = tuple(_images(elf, start, end))
                sections = (one for one in elf.sections if one.name == RELOCATABLE_SECTION)
                relocatable = any(one.offset <= position < one.offset + one.size for one in sections)
                yield Fatbin(position, images, relocatable, _is_nccl(elf, start, images))
        position = buffer.find(_FATBIN_MAGIC, end)


def _images(elf: ElfFile, position: int, end: int) -> Iterator[Image]:
    while position < end:
        if end - position < _IMAGE.size:
            raise InspectionError(
                f"{elf.name}: damaged: {end - position} bytes left for an image at {position}"
            )
        fields = _IMAGE.unpack_from(elf.buffer, position)
        kind, _, header_size, payload_size, compressed_size, _, minor, major, architecture = fields[:9]
        flags, uncompressed_size = fields[11], fields[13]
        start = position + header_size
        if header_size < _IMAGE.size or start + payload_size > end:
            raise InspectionError(
                f"{elf.name}: damaged: the image at byte {position} claims to have {payload_size} bytes,"
                f" but {end - position} are left"
            )
        suffix = SPECIFIC if flags & _FLAG_SPECIFIC else FAMILY if flags & _FLAG_FAMILY else ""
        target = Target(ComputeCapability(*divmod(architecture, 10)), suffix)
        if kind == _KIND_PTX:
            payload = elf.buffer[start : start + (compressed_size or payload_size)]
            text = prefix(payload, flags, _SHORT_PTX, f"{elf.name}: the PTX at byte {position}")
            yield _ptx_image(target, (major, minor), text, uncompressed_size or payload_size)
        else:
            yield Image(kind, target, None)
        position = start + payload_size


def _is_nccl(elf: ElfFile, position: int, images: tuple[Image, ...]) -> bool:
    """Return True if a fatbin has only machine code, and its first image names kernels of NCCL."""
    if not images or any(image.kind != _KIND_ELF for image in images):
        return False
    fields = _IMAGE.unpack_from(elf.buffer, position)
    start, size, flags = position + fields[2], fields[4] or fields[3], fields[11]
    where = f"{elf.name}: the machine code at byte {position}"
    return _NCCL in (prefix(elf.buffer[start : start + size], flags, _CUBIN_HEAD, where) or b"")


def _ptx_image(target: Target, code_version: tuple[int, int], text: bytes | None, size: int) -> Image:
    if text is None:
        return Image(_KIND_PTX, target, code_version)
    match = re.search(rb"^\s*\.version\s+(\d+)\.(\d+)", text, re.MULTILINE)
    isa = (int(match[1]), int(match[2])) if match else code_version
    # The text decides: the compiler of the generated kernels writes .target sm_90a but not the flag.
    named = re.search(rb"^\s*\.target\s+(sm_\d{2,}[af]?)\b", text, re.MULTILINE)
    written = Target.parse(named[1].decode()) if named else target
    return Image(_KIND_PTX, written, isa, has_kernels=size > _SHORT_PTX or b".entry" in text)


def prefix(payload: bytes, flags: int, limit: int, where: str) -> bytes | None:
    """Return at least the first `limit` bytes of an image; None for zstd (CUDA 12.8), which is not read."""
    if flags & _FLAG_ZSTD:
        return None
    if not flags & _FLAG_LZ4:
        return payload[:limit]
    try:
        return lz4_prefix(payload, limit)
    except (IndexError, ValueError):
        raise InspectionError(f"{where} is not an LZ4 block, although its flags say so") from None


def lz4_prefix(block: bytes, limit: int) -> bytes:
    """Decompress an LZ4 block to its end, or until there are at least `limit` bytes.

    Raises IndexError or ValueError on a damaged block. Format: the LZ4 project's block format description.
    """
    out = bytearray()
    position = 0

    def extended(length: int) -> int:
        nonlocal position
        if length == 15:
            while True:
                more = block[position]
                position += 1
                length += more
                if more != 255:
                    break
        return length

    while position < len(block) and len(out) < limit:
        token = block[position]
        position += 1
        literals = extended(token >> 4)
        if position + literals > len(block):
            raise ValueError("literals run past the end of the block")
        out += block[position : position + literals]
        position += literals
        if position >= len(block):
            break
        distance = block[position] | block[position + 1] << 8
        position += 2
        length = extended(token & 15) + 4
        if not 0 < distance <= len(out):
            raise ValueError("a match starts before the text")
        start = len(out) - distance
        # A match may overlap what it produces: then the last `distance` bytes repeat.
        pattern = bytes(out[start : start + length])
        out += (pattern * (length // len(pattern) + 1))[:length]
    return bytes(out)
