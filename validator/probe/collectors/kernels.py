"""Decide how the device code in TensorFlow's wheel runs on a GPU: as machine code, from PTX, or not at all.

Machine code for X.Y runs on X.Z with Z >= Y; PTX on every later capability, compiled by the driver, which
must know its ISA version (CUDA C++ Programming Guide, binary and PTX compatibility). Both are for exactly
X.Y if the target has the suffix `a`, and for the later capabilities of its family if it has the suffix `f`
(PTX ISA, directive .target). The device code of each release's wheel was measured; for other releases the
build information gives a rough answer.
"""

import ctypes
import os
import re
import subprocess
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple

from ...version_numbers import leading_numbers
from ..tables import table
from .loader import loaded

NATIVE, JIT, NONE = "native", "jit", "none"
MEASURED, LISTED = "measured", "build_information"

Capability = Tuple[int, int]
#: A capability and the suffix of the target: `a`, `f` or nothing.
Target = Tuple[Capability, str]


@dataclass(frozen=True)
class Coverage:
    """The way the kernels of a wheel reach a GPU.

    kernels: `native` (all of TensorFlow's own by machine code), `jit` (some by PTX), `none` (some have no
        code).
    isa: the newest PTX ISA among those that must be compiled; None where none must, or it is not known.
    cuda: the CUDA version that a driver must support to compile it for certain.
    compiled, without, units: how many translation units the driver must compile, how many have no code for
        the GPU, and how many there are. None if the wheel was not measured. NCCL's code counts here, but not
        in `kernels`, because only several GPUs that work together need it.
    has_ptx: whether there is PTX that the GPU can run.
    source: `measured` or `build_information`.
    """

    kernels: str
    isa: Optional[str]
    cuda: Optional[str]
    compiled: Optional[int]
    without: Optional[int]
    units: Optional[int]
    has_ptx: bool
    source: str


@dataclass(frozen=True)
class _Group:
    """Translation units with the same device code. units, isa: None where not measured."""

    units: Optional[int]
    sass: Tuple[Target, ...]
    ptx: Dict[Target, Optional[str]]
    library: Optional[str] = None

    def native(self, gpu: Capability) -> bool:
        return any(
            _specific(one, gpu) if one[1] else one[0][0] == gpu[0] and one[0][1] <= gpu[1]
            for one in self.sass
        )

    def source(self, gpu: Capability) -> Optional[Target]:
        fitting = (one for one in self.ptx if (_specific(one, gpu) if one[1] else one[0] <= gpu))
        return max(fitting, default=None)

    def reaches(self, gpu: Capability) -> bool:
        return self.native(gpu) or self.source(gpu) is not None


def coverage(version: Optional[str], build: Optional[Dict[str, Any]], capability: str) -> Optional[Coverage]:
    """Return how the kernels of a TensorFlow release reach a GPU; None where neither table nor build say.

    build: its build information. capability: of the GPU, such as `9.0`.
    """
    groups, source = _measured(version), MEASURED
    if not groups:
        groups, source = _listed(build or {}), LISTED
    if not groups:
        return None
    gpu = _pair(capability)
    by_driver = [(group, at) for group in groups if not group.native(gpu) and (at := group.source(gpu))]
    without = [group for group in groups if not group.reaches(gpu)]
    complete = all(group.library for group in without)
    isas = [isa for group, at in by_driver if (isa := group.ptx[at]) is not None]
    newest = max(isas, key=_pair, default=None)
    bound = (
        table("kernels")["ptx"].get(newest, {}).get("cuda") if newest else (build or {}).get("cuda_version")
    )
    return Coverage(
        kernels=NONE if not complete else JIT if by_driver else NATIVE,
        isa=newest,
        cuda=bound if by_driver else None,
        compiled=_sum(group for group, _ in by_driver),
        without=_sum(without),
        units=_sum(groups),
        has_ptx=any(group.source(gpu) for group in groups),
        source=source,
    )


def _measured(version: Optional[str]) -> List[_Group]:
    rows = table("kernels")["tensorflow"].get(version, [])
    return [
        _Group(
            row["units"],
            tuple(_target(one) for one in row["sass"]),
            {_target(one): isa for one, isa in row["ptx"].items()},
            row.get("library"),
        )
        for row in rows
    ]


def _listed(build: Dict[str, Any]) -> List[_Group]:
    """Return the one group that the build information describes.

    `compute_90` there means machine code for 9.0 and PTX. Kernels that the compiler generates have only PTX,
    so the newest capability counts as compiled by the driver.
    """
    names = [str(entry) for entry in build.get("cuda_compute_capabilities") or []]
    sass = tuple(_digits(name[len("sm_") :]) for name in names if name.startswith("sm_"))
    ptx: Dict[Target, Optional[str]] = {
        _digits(name[len("compute_") :]): None for name in names if name.startswith("compute_")
    }
    return [_Group(None, sass, ptx)] if names else []


def cudnn_minimum(version: str) -> Optional[str]:
    """Return the oldest compute capability that a cuDNN release has kernels for; None where no table says."""
    asked = leading_numbers(version)
    for row in table("kernels")["cudnn"]:
        if leading_numbers(row["from"]) <= asked < leading_numbers(row["below"]):
            return str(row["minimum"])
    return None


def older(one: str, other: str) -> bool:
    """Return whether a version comes before another, by their first two numbers."""
    return _pair(one) < _pair(other)


def _sum(groups: Any) -> Optional[int]:
    counts = [group.units for group in groups]
    return None if None in counts else sum(counts)


def _pair(text: str) -> Tuple[int, int]:
    major, minor = leading_numbers(text)[:2]
    return major, minor


def _specific(target: Target, gpu: Capability) -> bool:
    """Return whether code for a target with a suffix is for a GPU."""
    capability, suffix = target
    families = ([_pair(one) for one in row] for row in table("kernels")["families"])
    related = suffix == "f" and any(capability in family and gpu in family for family in families)
    return capability <= gpu if related else capability == gpu


def _target(text: str) -> Target:
    """Read a target that is written as `9.0a`."""
    number = text.rstrip("af")
    return _pair(number), text[len(number) :]


def _digits(text: str) -> Target:
    """Read a target that is written as `90a`."""
    number = text.rstrip("af")
    return (int(number[:-1]), int(number[-1])), text[len(number) :]


# Asks the XLA of this process's TensorFlow where it looks for ptxas and libdevice.
#
# The directories come from `tsl::CandidateCudaRoots()` (tsl/platform/cuda_root_path.cc), which differs from
# release to release: 2.15 names /usr/local/cuda-12.2, /usr/local/cuda and the wheel nvidia-cuda-nvcc; 2.18
# adds runfiles of Bazel and `tensorflow/cuda`; 2.21 adds /opt/cuda and the roots of conda. /usr/local/cuda
# comes before the wheel in all of them. The search for ptxas depends on the function that XLA has: up to
# 2.16 one that takes the first on PATH, from 2.17 on one that looks into `--xla_gpu_cuda_data_dir` first.


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
