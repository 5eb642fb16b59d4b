"""XLA: the flags in its variables, and where it looks for ptxas and libdevice.

XLA takes a value of `XLA_FLAGS` or `TF_XLA_FLAGS` that does not begin with a dash for the name of a file that
holds the flags, and ends the process when there is no such file or a flag is unknown
(xla/parse_flags_from_env.cc).

The directories of its tools come from `tsl::CandidateCudaRoots()` (tsl/platform/cuda_root_path.cc), which
differs from release to release: 2.15 names /usr/local/cuda-12.2, /usr/local/cuda and the wheel
nvidia-cuda-nvcc; 2.18 adds runfiles of Bazel and `tensorflow/cuda`; 2.21 adds /opt/cuda and the roots of
conda. /usr/local/cuda comes before the wheel in all of them. The search for ptxas depends on the function
that XLA has: up to 2.16 one that takes the first on PATH, from 2.17 on one that looks into
`--xla_gpu_cuda_data_dir` first.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import struct
import subprocess
from dataclasses import dataclass
from typing import Any

from ..version_numbers import leading_numbers
from .loader import loaded

#: Where XLA is, and the names of its flags, the smaller one first: 2.10 and later (two libraries, both), 2.9
#: and before.
_LIBRARIES = (
    "libtensorflow_framework.so.2",
    "libtensorflow_cc.so.2",
    os.path.join("python", "_pywrap_tensorflow_internal.so"),
)
#: A flag, its value perhaps in quotes.
_FLAG = re.compile(r"""([^\s=]+)(?:=("(?:\\.|[^"\\])*"|'[^']*'|\S*))?""")
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

    file: str | None
    missing: bool
    flags: tuple[tuple[str, str | None], ...]

    def value(self, name: str) -> str | None:
        """Return the last value given for `--name`, or None."""
        return next((value for flag, value in reversed(self.flags) if flag == f"--{name}"), None)


def parse(text: str) -> Flags:
    file = text if text and not text.lstrip().startswith("-") else None
    if file is not None:
        try:
            with open(file, encoding="utf-8", errors="replace") as opened:
                text = opened.read(_FILE_LIMIT)
        except OSError:
            return Flags(file, True, ())
    found = []
    for name, value in ((match[1], match[2]) for match in _FLAG.finditer(text)):
        quoted = value is not None and len(value) > 1 and value[0] in "'\"" and value[-1] == value[0]
        found.append((name, value[1:-1] if quoted else value))
    return Flags(file, False, tuple(found))


def unknown_flags(flags: Flags, prefix: str, directory: str | None) -> list[str]:
    """Return the flags that TensorFlow doesn't know: not `--PREFIX…`, or a name in none of its libraries.

    directory: of the package `tensorflow`; None where a name with the right prefix can't be looked up.
    """
    names = [name for name, _ in flags.flags]
    wrong = [name for name in names if not name.startswith(f"--{prefix}")]
    asked = [name for name in names if name not in wrong and len(name) >= _SHORTEST + 2]
    paths = [os.path.join(directory, library) for library in _LIBRARIES if directory]
    found = [path for path in paths if os.path.exists(path)]
    for path in found:
        asked = [name for name in asked if not _holds(path, name[2:].encode())]
    return wrong + (asked if found else [])


def _holds(path: str, name: bytes) -> bool:
    """Return whether the library's data holds the name, and not only as part of a longer one.

    Only a tenth of the 1 GB of `libtensorflow_cc.so.2` is data; the rest takes long to read from a slow disk.
    A file without sections is searched as a whole.
    """
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        data = [
            (offset, offset + size)
            for section, kind, properties, offset, size in _sections(content)
            if kind == _PROGBITS and properties & _ALLOCATED and not properties & _EXECUTABLE
            if section not in _GPU_CODE and offset + size <= len(content)
        ]
        for start, end in data or [(0, len(content))]:
            at = content.find(name, start, end)
            while at >= 0:
                after = content[at + len(name) : at + len(name) + 1]
                if not re.match(rb"\w", after):
                    return True
                at = content.find(name, at + 1, end)
    return False


def _sections(content: mmap.mmap) -> list[tuple[bytes, int, int, int, int]]:
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


#: By namespace, which changed with 2.11.
_ROOTS = ("_ZN3tsl18CandidateCudaRootsB5cxx11Ev", "_ZN10tensorflow18CandidateCudaRootsB5cxx11Ev")
#: `FindCudaExecutable(string_view, string_view)`, since 2.17.
_PREFERRED_FIRST = (
    "_ZN15stream_executor18FindCudaExecutableB5cxx11ESt17basic_string_viewIcSt11char_traitsIcEES3_"
)
#: The ptxas that 2.17 and later don't run (subprocess_compilation.cc): older ones, and one with a known bug.
MINIMUM, EXCLUDED = (11, 8, 0), ((12, 3, 103),)
#: XLA's default for `--xla_gpu_cuda_data_dir` (xla/debug_options_flags.cc).
DEFAULT_DIRECTORY = "./cuda_sdk_lib"
LIBDEVICE = os.path.join("nvvm", "libdevice", "libdevice.10.bc")
_VERSION_LIMIT_S = 20
_VERSION = re.compile(r"\bV(\d+)\.(\d+)\.(\d+)\b")


@dataclass(frozen=True)
class Search:
    """The way XLA searches for its tools.

    roots: directories, as XLA names them, without those of Bazel's runfiles. preferred_first: whether the
    preferred directory comes before PATH.
    """

    roots: tuple[str, ...]
    preferred_first: bool


class _Vector(ctypes.Structure):
    """A `std::vector<std::string>` of libstdc++: begin, end, end of storage."""

    _fields_ = [("begin", ctypes.c_void_p), ("end", ctypes.c_void_p), ("storage", ctypes.c_void_p)]


class _String(ctypes.Structure):
    """A `std::string` of libstdc++ (the C++11 ABI)."""

    _fields_ = [("data", ctypes.c_void_p), ("length", ctypes.c_size_t), ("buffer", ctypes.c_char * 16)]


def search(tensorflow_directory: str) -> Search | None:
    """Return how XLA searches, or None when this TensorFlow can't be asked.

    Only to be called in a process that has imported TensorFlow: its libraries are open then. The function
    returns a vector of strings, for which the caller names a place in a hidden first argument (System V
    x86-64 ABI). It is not freed: a few bytes, once.
    """
    opened = (loaded(os.path.join(tensorflow_directory, name)) for name in _LIBRARIES)
    libraries = [library for library in opened if library is not None]
    functions = (getattr(library, name) for library in libraries for name in _ROOTS if hasattr(library, name))
    function: Any = next(functions, None)
    if function is None:
        return None
    vector = _Vector()
    function.argtypes, function.restype = [ctypes.c_void_p], ctypes.c_void_p
    function(ctypes.byref(vector))
    count = ((vector.end or 0) - (vector.begin or 0)) // ctypes.sizeof(_String)
    entries = (_String * count).from_address(vector.begin) if count else ()
    roots = [os.fsdecode(ctypes.string_at(entry.data, entry.length)) for entry in entries]
    # XLA makes the runfiles' path from the program's command line, which means nothing here.
    kept = tuple(root for root in roots if root and ".runfiles" not in root)
    return Search(kept, any(hasattr(library, _PREFERRED_FIRST) for library in libraries))


def ptxas_candidates(search: Search, preferred: str, path: str) -> list[str]:
    """Return where XLA looks for ptxas, in order."""
    own = [os.path.join(preferred, "bin", "ptxas")]
    on_path = [os.path.join(directory or ".", "ptxas") for directory in path.split(os.pathsep)]
    roots = [os.path.join(root, "bin", "ptxas") for root in search.roots]
    return list(dict.fromkeys((own + on_path if search.preferred_first else on_path + own) + roots))


def libdevice_candidates(search: Search, preferred: str) -> list[str]:
    """Return where XLA looks for libdevice, in order; the current directory comes last."""
    roots = [preferred, *search.roots, "."]
    return list(dict.fromkeys([os.path.join(root, LIBDEVICE) for root in roots] + ["./libdevice.10.bc"]))


def ptxas_version(ptxas: str) -> str | None:
    """Return the version that a ptxas reports, such as `12.5.82`; None for one that doesn't run."""
    if not (os.path.isfile(ptxas) and os.access(ptxas, os.X_OK)):
        return None
    nothing, command = subprocess.DEVNULL, [ptxas, "--version"]
    try:
        # In this process's group, which is killed as one.
        said = subprocess.check_output(command, stdin=nothing, stderr=nothing, timeout=_VERSION_LIMIT_S)
    except (OSError, subprocess.SubprocessError):
        return None
    found = _VERSION.search(said.decode(errors="replace"))
    return ".".join(found.groups()) if found else None


def usable(search: Search, version: str) -> bool:
    number = leading_numbers(version)
    return not search.preferred_first or (number >= MINIMUM and number not in EXCLUDED)
