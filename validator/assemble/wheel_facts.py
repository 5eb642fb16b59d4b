"""The facts about a wheel's files that other layers need, so that it is not read again."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from .entries import Content, Entry
from .layer_plan import LARGE_FILE

#: Changes when the facts are read in another way.
RECIPE = "wheel facts 2"
#: The directories of NVIDIA's libraries in the image.
_LIBRARIES = re.compile(r"(opt/venv/lib/python3/site-packages/nvidia/[^/]+/lib)/([^/]+)")
#: The names that ldconfig looks at.
_SHARED = re.compile(r"(lib|ld-).*\.so")
#: Bytes of the beginning of a library that are kept: they often contain its strings.
_HEAD = 1 << 20
_LONGEST_NAME = 256
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_STRTAB, _DT_SONAME = 5, 14
_X86_64 = 62


@dataclass(frozen=True)
class LargeFile:
    """A file that has a layer of its own.

    path, mode: in the image. sha256: from RECORD. size: in the wheel, as it is compressed there, in bytes.
    """

    path: str
    mode: int
    sha256: str
    size: int


@dataclass(frozen=True)
class WheelFacts:
    """large: files of 100 MB and more. libraries: directory of NVIDIA's libraries -> names, as ldconfig finds
    them. Both are sorted.
    """

    large: tuple[LargeFile, ...]
    libraries: Mapping[str, tuple[str, ...]]

    def document(self) -> dict[str, object]:
        """Return the facts as JSON values. `parse` reads them again."""
        return {
            "large": [[file.path, file.mode, file.sha256, file.size] for file in self.large],
            "libraries": {directory: list(names) for directory, names in self.libraries.items()},
        }

    @classmethod
    def parse(cls, document: Mapping[str, object]) -> WheelFacts:
        large, libraries = document["large"], document["libraries"]
        assert isinstance(large, list) and isinstance(libraries, dict)
        return cls(
            tuple(LargeFile(*file) for file in large),
            {directory: tuple(names) for directory, names in libraries.items()},
        )


def read_facts(entries: Iterable[Entry]) -> WheelFacts:
    """Return the facts of an installed wheel, given its entries. Reads all of NVIDIA's libraries in it."""
    found: list[WheelFacts] = []
    for entry in watched(entries, found.append):
        if isinstance(entry.content, Watched):
            for _ in entry.content.chunks():
                pass
    return found[0]


def watched(entries: Iterable[Entry], done: Callable[[WheelFacts], object]) -> list[Entry]:
    """Return the entries of an installed wheel, which find out its facts while they are read.

    done: called with the facts as soon as all libraries were read once.
    """
    large: list[LargeFile] = []
    names: dict[str, set[str]] = {}
    found: list[Entry] = []
    waiting: set[str] = set()

    def finish() -> None:
        if not waiting:
            libraries = {directory: tuple(sorted(some)) for directory, some in sorted(names.items())}
            done(WheelFacts(tuple(sorted(large, key=lambda file: file.path)), libraries))

    def library(path: str, directory: str, name: str | None) -> None:
        if path in waiting:
            waiting.remove(path)
            if name is not None:
                names[directory].add(name)
            finish()

    for entry in entries:
        match = _LIBRARIES.fullmatch(entry.path)
        # Without a hash in RECORD, nothing says that it is the same file as that of another wheel.
        if entry.content and entry.content.size >= LARGE_FILE and entry.content.sha256:
            large.append(LargeFile(entry.path, entry.mode, entry.content.sha256, entry.content.stored_size))
        if match and entry.content:
            names.setdefault(match[1], set())
            if _SHARED.match(match[2]):
                waiting.add(entry.path)
                content = Watched(entry.content, match[2], partial(library, entry.path, match[1]))
                entry = replace(entry, content=content)
        found.append(entry)
    finish()
    return found


class Watched:
    """A library's content that finds the library's name while it is read for another purpose.

    The name is the one under which ldconfig lists the file: its soname, or its own name without one.
    """

    def __init__(self, content: Content, name: str, found: Callable[[str | None], object]) -> None:
        """name: of the file. found: called each time that the content was read, with None if it is not a
        64-bit x86 library.
        """
        self._content, self._name, self._found = content, name, found

    @property
    def size(self) -> int:
        return self._content.size

    @property
    def sha256(self) -> str | None:
        return self._content.sha256

    @property
    def stored_size(self) -> int:
        return self._content.stored_size

    def chunks(self) -> Iterator[bytes]:
        finding = _Finding(self._name)
        for chunk in self._content.chunks():
            finding.add(chunk)
            yield chunk
        finding.end()
        # Parts in an unusual order need another pass each.
        while not finding.is_done:
            finding.start_again()
            for chunk in self._content.chunks():
                finding.add(chunk)
            finding.end()
        self._found(finding.result)


#: Yields the offset and size of a part of a library, and receives its bytes. Returns the name.
_Steps = Generator[tuple[int, int], bytes, "str | None"]


def _steps(name: str) -> _Steps:
    head = yield 0, 64
    if head[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<H", head, 18)[0] != _X86_64:
        return None
    (table,) = struct.unpack_from("<Q", head, 32)
    size, count = struct.unpack_from("<HH", head, 54)
    headers = yield table, size * count
    segments = [struct.unpack_from("<IIQQQQ", headers, number * size) for number in range(count)]
    values: dict[int, int] = {}
    for kind, _, offset, _, _, length in segments:
        if kind == _PT_DYNAMIC:
            dynamic = yield offset, length - length % 16
            values = dict(struct.iter_unpack("<QQ", dynamic))
    if _DT_SONAME not in values or _DT_STRTAB not in values:
        return name
    strings = values[_DT_STRTAB]
    for kind, _, offset, address, _, length in segments:
        if kind == _PT_LOAD and address <= strings < address + length:
            text = yield offset + strings - address + values[_DT_SONAME], _LONGEST_NAME
            return text.split(b"\0", 1)[0].decode("utf-8", "replace") or name
    return name


class _Finding:
    """Follows `_steps` through a content that passes by. Keeps the beginning and the part that is wanted."""

    def __init__(self, name: str) -> None:
        self._steps = _steps(name)
        self._wanted: tuple[int, int] | None = next(self._steps)
        self.result: str | None = None
        self._head = b""
        self.start_again()

    @property
    def is_done(self) -> bool:
        return self._wanted is None

    def start_again(self) -> None:
        self._tail, self._offset = b"", 0

    def add(self, chunk: bytes) -> None:
        """Take the next part."""
        if len(self._head) < _HEAD and self._offset + len(self._tail) == len(self._head):
            self._head += chunk[: _HEAD - len(self._head)]
        end = self._offset + len(self._tail)
        if self._wanted is not None and self._offset <= self._wanted[0] < end:
            self._tail = self._tail[self._wanted[0] - self._offset :] + chunk
            self._offset = self._wanted[0]
        else:
            self._offset, self._tail = end, chunk
        while self._wanted is not None and self._has(*self._wanted):
            self._advance()

    def end(self) -> None:
        """Say that there are no more parts. A part that is wanted may be cut short by the end."""
        end = self._offset + len(self._tail)
        while self._wanted is not None and (self._offset <= self._wanted[0] or self._wanted[0] >= end):
            self._advance()

    def _has(self, offset: int, size: int) -> bool:
        end = offset + size
        return end <= len(self._head) or (self._offset <= offset and end <= self._offset + len(self._tail))

    def _advance(self) -> None:
        assert self._wanted is not None
        offset, size = self._wanted
        data = self._head[offset : offset + size]
        if len(data) < size and offset >= self._offset:
            data = self._tail[offset - self._offset :][:size]
        try:
            self._wanted = self._steps.send(data)
        except (StopIteration, struct.error) as end:
            self.result = end.value if isinstance(end, StopIteration) else None
            self._wanted = None
