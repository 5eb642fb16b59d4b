"""Reads `XLA_FLAGS` and `TF_XLA_FLAGS` as XLA does, and looks up which flags TensorFlow's libraries know.

XLA takes a value that does not begin with a dash for the name of a file that holds the flags, and ends the
process when there is no such file or a flag is unknown (xla/parse_flags_from_env.cc).
"""

import mmap
import os
import re
import struct
from dataclasses import dataclass
from typing import Iterator, List, Optional, Tuple

#: A flag, its value perhaps in quotes.
_FLAG = re.compile(r"""([^\s=]+)(?:=("(?:\\.|[^"\\])*"|'[^']*'|\S*))?""")
#: The libraries with the names of XLA's flags, the smaller one first: for 2.10 and later, and for 2.9 and
#: before.
_LIBRARIES = (
    "libtensorflow_framework.so.2",
    "libtensorflow_cc.so.2",
    os.path.join("python", "_pywrap_tensorflow_internal.so"),
)
#: A shorter name may be built from constants in the code, where a search can't find it.
_SHORTEST = 8
#: A section of a 64-bit little-endian ELF file: name, type, flags, offset and size in the file (elf(5)).
_SECTION = struct.Struct("<IIQ8xQQ24x")
_PROGBITS, _ALLOCATED, _EXECUTABLE = 1, 2, 4
#: Sections with code for GPUs, which is up to a third of a library and holds no names of flags.
_GPU_CODE = (b".nv_fatbin", b"__nv_relfatbin")
#: The most bytes to read from a file that a variable names.
_FILE_LIMIT = 65536


@dataclass(frozen=True)
class Flags:
    """The flags in a variable's value.

    file: the file that the value names, or None; missing: whether it can't be read.
    flags: name, as written with its dashes, and value; None for a flag without one.
    """

    file: Optional[str]
    missing: bool
    flags: Tuple[Tuple[str, Optional[str]], ...]

    def value(self, name: str) -> Optional[str]:
        """Return the last value given for `--name`, or None."""
        return next((value for flag, value in reversed(self.flags) if flag == f"--{name}"), None)


def parse(text: str) -> Flags:
    """Read the flags in a variable's value."""
    if not text or text.lstrip().startswith("-"):
        return Flags(None, False, _flags(text))
    try:
        with open(text, encoding="utf-8", errors="replace") as file:
            return Flags(text, False, _flags(file.read(_FILE_LIMIT)))
    except OSError:
        return Flags(text, True, ())


def _flags(text: str) -> Tuple[Tuple[str, Optional[str]], ...]:
    return tuple((name, _unquoted(value)) for name, value in _found(text))


def _found(text: str) -> List[Tuple[str, Optional[str]]]:
    return [(match[1], match[2]) for match in _FLAG.finditer(text)]


def _unquoted(value: Optional[str]) -> Optional[str]:
    quoted = value is not None and len(value) > 1 and value[0] in "'\"" and value[-1] == value[0]
    return value[1:-1] if value is not None and quoted else value


def unknown_flags(flags: Flags, prefix: str, directory: Optional[str]) -> List[str]:
    """Return the flags that TensorFlow doesn't know: not `--PREFIX…`, or a name that none of its libraries
    holds.

    directory: of the package `tensorflow`; None where a name with the right prefix can't be looked up.
    """
    names = [name for name, _ in flags.flags]
    wrong = [name for name in names if not name.startswith(f"--{prefix}")]
    asked = [name for name in names if name not in wrong and len(name) >= _SHORTEST + 2]
    return wrong + (_not_held(asked, directory) if directory and asked else [])


def _not_held(names: List[str], directory: str) -> List[str]:
    missing, searched = names, False
    for library in _LIBRARIES:
        path = os.path.join(directory, library)
        if missing and os.path.exists(path):
            searched = True
            missing = [name for name in missing if not _holds(path, name[2:].encode())]
    return missing if searched else []


def _holds(path: str, name: bytes) -> bool:
    """Return whether the library's data holds the name, and not only as part of a longer one."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        for start, end in _data(content):
            at = content.find(name, start, end)
            while at >= 0:
                after = content[at + len(name) : at + len(name) + 1]
                if not re.match(rb"\w", after):
                    return True
                at = content.find(name, at + 1, end)
    return False


def _data(content: mmap.mmap) -> Iterator[Tuple[int, int]]:
    """Yield the start and end of each section with data, or of the whole file if that finds none.

    Only a tenth of the 1 GB of `libtensorflow_cc.so.2` is data; the rest takes long to read from a slow disk.
    """
    found = [
        (offset, offset + size)
        for name, kind, properties, offset, size in _sections(content)
        if kind == _PROGBITS and properties & _ALLOCATED and not properties & _EXECUTABLE
        if name not in _GPU_CODE and offset + size <= len(content)
    ]
    yield from found or [(0, len(content))]


def _sections(content: mmap.mmap) -> List[Tuple[bytes, int, int, int, int]]:
    if content[:6] != b"\x7fELF\x02\x01":
        return []
    try:
        (table,) = struct.unpack_from("<Q", content, 40)
        count, names = struct.unpack_from("<HH", content, 60)
        found = [_SECTION.unpack_from(content, table + number * _SECTION.size) for number in range(count)]
        strings = found[names][3]
        return [
            (content[strings + name : content.find(b"\0", strings + name)], *rest) for name, *rest in found
        ]
    except (struct.error, IndexError, OverflowError):
        return []
