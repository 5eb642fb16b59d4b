"""Asks the XLA of this process's TensorFlow where it looks for ptxas and libdevice.

The directories come from `tsl::CandidateCudaRoots()` (tsl/platform/cuda_root_path.cc), which differs from
release to release: 2.15 names /usr/local/cuda-12.2, /usr/local/cuda and the wheel nvidia-cuda-nvcc; 2.18 adds
runfiles of Bazel and `tensorflow/cuda`; 2.21 adds /opt/cuda and the roots of conda. /usr/local/cuda comes
before the wheel in all of them. The search for ptxas depends on the function that XLA has: up to
2.16 one that takes the first on PATH, from 2.17 on one that looks into `--xla_gpu_cuda_data_dir` first.
"""

import ctypes
import os
import re
import subprocess
from dataclasses import dataclass
from typing import Any, List, Optional, Tuple

from ...version_numbers import leading_numbers
from .loader import loaded

#: Where XLA is: 2.10 and later (two libraries, both), 2.9 and before.
_LIBRARIES = (
    "libtensorflow_framework.so.2",
    "libtensorflow_cc.so.2",
    os.path.join("python", "_pywrap_tensorflow_internal.so"),
)
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

    roots: Tuple[str, ...]
    preferred_first: bool


class _Vector(ctypes.Structure):
    """A `std::vector<std::string>` of libstdc++: begin, end, end of storage."""

    _fields_ = [("begin", ctypes.c_void_p), ("end", ctypes.c_void_p), ("storage", ctypes.c_void_p)]


class _String(ctypes.Structure):
    """A `std::string` of libstdc++ (the C++11 ABI)."""

    _fields_ = [("data", ctypes.c_void_p), ("length", ctypes.c_size_t), ("buffer", ctypes.c_char * 16)]


def search(tensorflow_directory: str) -> Optional[Search]:
    """Return how XLA searches, or None when this TensorFlow can't be asked.

    Only to be called in a process that has imported TensorFlow: its libraries are open then.
    """
    libraries = [
        library
        for name in _LIBRARIES
        if (library := loaded(os.path.join(tensorflow_directory, name))) is not None
    ]
    function = next(
        (getattr(library, name) for library in libraries for name in _ROOTS if hasattr(library, name)), None
    )
    if function is None:
        return None
    preferred_first = any(hasattr(library, _PREFERRED_FIRST) for library in libraries)
    # XLA makes the runfiles' path from the program's command line, which means nothing here.
    roots = tuple(root for root in _strings(function) if root and ".runfiles" not in root)
    return Search(roots, preferred_first)


def _strings(function: Any) -> Tuple[str, ...]:
    """Call a function without arguments that returns a vector of strings.

    The caller names in a hidden first argument where the vector goes (System V x86-64 ABI). It is not freed:
    a few bytes, once.
    """
    vector = _Vector()
    function.argtypes, function.restype = [ctypes.c_void_p], ctypes.c_void_p
    function(ctypes.byref(vector))
    count = ((vector.end or 0) - (vector.begin or 0)) // ctypes.sizeof(_String)
    entries = (_String * count).from_address(vector.begin) if count else ()
    return tuple(os.fsdecode(ctypes.string_at(entry.data, entry.length)) for entry in entries)


def ptxas_candidates(search: Search, preferred: str, path: str) -> List[str]:
    """Return where XLA looks for ptxas, in order."""
    own = [os.path.join(preferred, "bin", "ptxas")]
    on_path = [os.path.join(directory or ".", "ptxas") for directory in path.split(os.pathsep)]
    roots = [os.path.join(root, "bin", "ptxas") for root in search.roots]
    ordered = own + on_path + roots if search.preferred_first else on_path + own + roots
    return list(dict.fromkeys(ordered))


def libdevice_candidates(search: Search, preferred: str) -> List[str]:
    """Return where XLA looks for libdevice, in order; the current directory comes last."""
    roots = [preferred, *search.roots, "."]
    return list(dict.fromkeys([os.path.join(root, LIBDEVICE) for root in roots] + ["./libdevice.10.bc"]))


def version(ptxas: str) -> Optional[str]:
    """Return the version that a ptxas reports, such as `12.5.82`; None for one that doesn't run."""
    if not (os.path.isfile(ptxas) and os.access(ptxas, os.X_OK)):
        return None
    try:
        # In this process's group, which is killed as one.
        done = subprocess.run(
            [ptxas, "--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_VERSION_LIMIT_S,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = _VERSION.search(done.stdout.decode(errors="replace"))
    return ".".join(found.groups()) if found and done.returncode == 0 else None


def usable(search: Search, version: str) -> bool:
    """Return whether XLA runs a ptxas of this version."""
    number = leading_numbers(version)
    return not search.preferred_first or (number >= MINIMUM and number not in EXCLUDED)
