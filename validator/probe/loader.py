"""The CUDA libraries that TensorFlow opens, and the device code in its wheel, without importing TensorFlow.

Every CUDA library is opened by one object of the wheel, `libtensorflow_framework.so.2`, through
`tsl::internal::DsoLoader` (tsl/platform/default/dso_loader.cc), which forms the names from the versions it
was compiled with. So that object is loaded and those functions are called: names, search path (the RUNPATH
of that object, `LD_LIBRARY_PATH`, ld.so.cache) and dlopen's errors are exactly those of a training run, and
nothing has to be guessed from the file. Its log lines show what it tried.

The device code runs on a GPU as machine code, from PTX, or not at all. Machine code for X.Y runs on X.Z with
Z >= Y; PTX on every later capability, compiled by the driver, which must know its ISA version (CUDA C++
Programming Guide, binary and PTX compatibility). Both are for exactly X.Y if the target has the suffix `a`,
and for the later capabilities of its family if it has the suffix `f` (PTX ISA, directive .target). The device
code of each release's wheel was measured; for other releases the build information gives a rough answer.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..version_numbers import leading_numbers
from . import table
from .child import Answer, forked

FRAMEWORK = "libtensorflow_framework.so.2"
#: Makes the loader log every attempt. Read at its first log line, so it must be set before it is loaded.
ENVIRONMENT = {"TF_CPP_VMODULE": "dso_loader=1", "TF_CPP_MIN_LOG_LEVEL": "0", "TF_CPP_MAX_VLOG_LEVEL": "0"}
LIMIT_S = 60

_OPENED = re.compile(r"Successfully opened dynamic library (\S+)")
_FAILED = re.compile(r"Could not load dynamic library '([^']+)'; dlerror: (.*?)(?:; LD_LIBRARY_PATH: .*)?$")
#: Opened together before the first GPU is registered; one that is missing hides every GPU.
_GATE = "TryDlopenCUDALibraries"
#: Opened at their first use by collectives, the profiler or GPU management.
_LATER = ("GetNcclDsoHandle", "GetCuptiDsoHandle", "GetNvmlDsoHandle")
GATE_PHASE, LATER_PHASE = "gate", "later"
#: Room for what the functions return by hidden pointer: absl::Status (8 bytes), absl::StatusOr<void*> (16).
_RETURNED_BYTES = 256


@functools.lru_cache(maxsize=None)
def open_libraries(tensorflow_directory: str) -> Answer:
    """Open the libraries that this TensorFlow opens, in a child process; only once for all checks.

    The answer's values are one `{phase, attempts: {soname: error or None}}` for each phase that
    finished (`gate`, `later`), then one `{soname, path, version}` for each library that opened.
    """
    return forked(_open_libraries, tensorflow_directory, limit_s=LIMIT_S, environment=ENVIRONMENT)


def _open_libraries(directory: str) -> Iterator[dict[str, Any]]:
    framework = ctypes.CDLL(os.path.join(directory, FRAMEWORK))
    opened: list[str] = []
    for phase, functions in ((GATE_PHASE, (_GATE,)), (LATER_PHASE, _LATER)):
        before = os.fstat(2).st_size
        for function in functions:
            _call_loader(framework, function, must_exist=phase == GATE_PHASE)
        attempts = parse_attempts(os.pread(2, os.fstat(2).st_size - before, before).decode(errors="replace"))
        yield {"phase": phase, "attempts": attempts}
        opened += [soname for soname, error in attempts.items() if error is None and soname not in opened]
    for soname in opened:
        yield describe(soname)


def parse_attempts(log: str) -> dict[str, Any]:
    """Read the loader's log lines: dlopen's error by soname, None for a library that opened."""
    attempts: dict[str, Any] = {}
    for line in log.splitlines():
        for soname in _OPENED.findall(line):
            attempts[soname] = None
        for soname, error in _FAILED.findall(line):
            attempts.setdefault(soname, error)
    return attempts


def describe(soname: str) -> dict[str, Any]:
    """Return the path of an open library and the version that it reports."""
    library = loaded(soname)
    seen = {"path": path_of(library), "version": version_of(soname, library)} if library else {}
    return {"soname": soname, "path": None, "version": None, **seen}


def short_name(soname: str) -> str:
    """Return `cublasLt` for `libcublasLt.so.12`."""
    return soname[len("lib") :].partition(".so")[0]


def neighbours(tensorflow_directory: str, soname: str) -> list[str]:
    wheels = Path(tensorflow_directory).parent / "nvidia"
    return sorted(str(path) for path in wheels.glob(f"*/lib/lib{short_name(soname)}.so*"))


def _call_loader(framework: ctypes.CDLL, function: str, must_exist: bool) -> None:
    """Call `tsl::internal::DsoLoader::function()`, mangled as the Itanium C++ ABI says.

    Its return value is not trivially copyable, so it goes to memory that the caller names in a hidden first
    argument (System V x86-64 ABI). Nothing is read from it: its layout differs between releases.
    """
    symbol = f"_ZN3tsl8internal9DsoLoader{len(function)}{function}Ev"
    if not must_exist and not hasattr(framework, symbol):
        return
    loader = getattr(framework, symbol)
    loader.argtypes, loader.restype = [ctypes.c_void_p], ctypes.c_void_p
    loader(ctypes.create_string_buffer(_RETURNED_BYTES))


def open_cudnn(tensorflow_directory: str) -> Answer:
    """Open cuDNN as TensorFlow does, then each of its sub-libraries, in a child process.

    The answer's values: one `{soname, path, version}` for cuDNN itself, then `{sub_library, error}` for each
    next to it, then `{check, status}` for each of cuDNN's own version checks (0: agrees).
    """
    return forked(_open_cudnn, tensorflow_directory, limit_s=LIMIT_S, environment=ENVIRONMENT)


#: Exported by cuDNN 8 and 9; each compares a sub-library's version with the main library's.
_PARTS = (
    "Graph", "Ops", "Cnn", "Adv",
    "OpsInfer", "OpsTrain", "CnnInfer", "CnnTrain", "AdvInfer", "AdvTrain",
)  # fmt: skip
_VERSION_CHECKS = tuple(f"cudnn{part}VersionCheck" for part in _PARTS)


def _open_cudnn(directory: str) -> Iterator[dict[str, Any]]:
    framework = ctypes.CDLL(os.path.join(directory, FRAMEWORK))
    # With all the others, as TensorFlow opens it: parts of cuDNN rely on libraries that are open already, and
    # cuDNN 8.7 opened by itself ends the process.
    _call_loader(framework, _GATE, must_exist=True)
    attempts = parse_attempts(os.pread(2, os.fstat(2).st_size, 0).decode(errors="replace"))
    soname = next((soname for soname in attempts if soname.startswith("libcudnn.")), None)
    if soname is None:
        return
    if attempts[soname] is not None:
        yield {"soname": soname, "path": None, "version": None, "error": attempts[soname]}
        return
    found = describe(soname)
    yield found
    # The sub-libraries in cuDNN's directory, where it looks for them itself.
    for part in sorted(Path(found["path"]).parent.glob(f"libcudnn_*.so.{soname.rpartition('.')[2]}")):
        why: str | None = None
        try:
            ctypes.CDLL(str(part))
        except OSError as error:
            why = str(error)
        yield {"sub_library": part.name, "error": why}
    library = loaded(soname)
    for check in (check for check in _VERSION_CHECKS if hasattr(library, check)):
        yield {"check": check, "status": getattr(library, check)()}


# Versions that open CUDA libraries report. Functions and encodings are from each library's public header.


def decoded(number: int) -> str:
    """Decode the number of a version of cuDNN or NCCL, both of which have changed the factor.

    `cudnnGetVersion` changed it in 9.0: 8907 is 8.9.7, 90300 is 9.3.0 (cudnn_version.h). `ncclGetVersion`
    changed it in 2.9: 2807 is 2.8.7, 22707 is 2.27.7 (nccl.h).
    """
    base = 10000 if number >= 10000 else 1000
    return f"{number // base}.{number % base // 100}.{number % 100}"


def version_of(soname: str, library: Any) -> str | None:
    """Return the version that an open library itself reports, or None for one that can't be asked."""
    name, number = short_name(soname), ctypes.c_int()
    if name == "cudnn":
        library.cudnnGetVersion.restype = ctypes.c_size_t
        return decoded(library.cudnnGetVersion())
    if name == "nccl":
        return decoded(number.value) if library.ncclGetVersion(ctypes.byref(number)) == 0 else None
    if name == "cudart":
        status = library.cudaRuntimeGetVersion(ctypes.byref(number))
        return f"{number.value // 1000}.{number.value % 1000 // 10}" if status == 0 else None
    if name not in ("cublas", "cublasLt", "cufft", "curand", "cusolver", "cusparse"):
        return None
    # `libraryPropertyType` (library_types.h): major, minor, patch level.
    function, numbers = getattr(library, f"{name}GetProperty"), [ctypes.c_int() for _ in range(3)]
    statuses = [function(which, ctypes.byref(value)) for which, value in enumerate(numbers)]
    return None if any(statuses) else ".".join(str(value.value) for value in numbers)


_RTLD_NOLOAD = 0x4
_RTLD_DI_LINKMAP = 2


class _LinkMap(ctypes.Structure):
    """The public head of glibc's `struct link_map` (link.h)."""

    _fields_ = [("address", ctypes.c_void_p), ("name", ctypes.c_char_p)]


def loaded(name: str) -> ctypes.CDLL | None:
    """Return the library of that soname if this process has it open, else None."""
    try:
        return ctypes.CDLL(name, mode=_RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return None


def path_of(library: ctypes.CDLL) -> str | None:
    """Return the real path of the file that a library was loaded from (dlinfo(3), RTLD_DI_LINKMAP)."""
    link_map, handle = ctypes.POINTER(_LinkMap)(), ctypes.c_void_p(library._handle)
    status = ctypes.CDLL(None).dlinfo(handle, _RTLD_DI_LINKMAP, ctypes.byref(link_map))
    if status != 0 or not link_map.contents.name:
        return None
    return os.path.realpath(os.fsdecode(link_map.contents.name))


NATIVE, JIT, NONE = "native", "jit", "none"
MEASURED, LISTED = "measured", "build_information"

Capability = tuple[int, int]
#: A capability and the suffix of the target: `a`, `f` or nothing.
Target = tuple[Capability, str]


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
    isa: str | None
    cuda: str | None
    compiled: int | None
    without: int | None
    units: int | None
    has_ptx: bool
    source: str


@dataclass(frozen=True)
class _Group:
    """Translation units with the same device code. units, isa: None where not measured."""

    units: int | None
    sass: tuple[Target, ...]
    ptx: dict[Target, str | None]
    library: str | None = None

    def native(self, gpu: Capability) -> bool:
        return any(_fits(target, gpu) and (target[1] or target[0][0] == gpu[0]) for target in self.sass)

    def source(self, gpu: Capability) -> Target | None:
        return max((target for target in self.ptx if _fits(target, gpu)), default=None)


def coverage(version: str | None, build: dict[str, Any] | None, capability: str) -> Coverage | None:
    """Return how the kernels of a TensorFlow release reach a GPU; None where neither table nor build say.

    build: its build information. capability: of the GPU, such as `9.0`.
    """
    rows, groups = table("kernels")["tensorflow"].get(version, []), []
    for row in rows:
        sass, ptx = tuple(map(_target, row["sass"])), {_target(name): isa for name, isa in row["ptx"].items()}
        groups.append(_Group(row["units"], sass, ptx, row.get("library")))
    names = [str(entry) for entry in (build or {}).get("cuda_compute_capabilities") or []]
    if not groups and names:
        # `compute_90` means machine code for 9.0 and PTX. Kernels that the compiler generates have only PTX,
        # so the newest capability counts as compiled by the driver.
        sass = tuple(_target(name[len("sm_") :]) for name in names if name.startswith("sm_"))
        listed = (_target(name[len("compute_") :]) for name in names if name.startswith("compute_"))
        groups = [_Group(None, sass, dict.fromkeys(listed))]
    if not groups:
        return None
    gpu = _pair(capability)
    by_driver = [(group, at) for group in groups if not group.native(gpu) and (at := group.source(gpu))]
    without = [group for group in groups if not group.native(gpu) and group.source(gpu) is None]
    complete = all(group.library for group in without)
    isas = [isa for group, at in by_driver if (isa := group.ptx[at]) is not None]
    newest, bound = max(isas, key=_pair, default=None), (build or {}).get("cuda_version")
    if newest:
        bound = table("kernels")["ptx"].get(newest, {}).get("cuda")

    def total(counted: list[_Group]) -> int | None:
        counts = [group.units for group in counted]
        return None if None in counts else sum(filter(None, counts))

    return Coverage(
        kernels=NONE if not complete else JIT if by_driver else NATIVE,
        isa=newest,
        cuda=bound if by_driver else None,
        compiled=total([group for group, _ in by_driver]),
        without=total(without),
        units=total(groups),
        has_ptx=any(group.source(gpu) for group in groups),
        source=MEASURED if rows else LISTED,
    )


def cudnn_minimum(version: str) -> str | None:
    """Return the oldest compute capability that a cuDNN release has kernels for; None where no table says."""
    asked = leading_numbers(version)
    for row in table("kernels")["cudnn"]:
        if leading_numbers(row["from"]) <= asked < leading_numbers(row["below"]):
            return str(row["minimum"])
    return None


def older(one: str, other: str) -> bool:
    return _pair(one) < _pair(other)


def _pair(text: str) -> tuple[int, int]:
    major, minor = leading_numbers(text)[:2]
    return major, minor


def _fits(target: Target, gpu: Capability) -> bool:
    """Return whether the target's capability and suffix allow the GPU; machine code also needs its major."""
    capability, suffix = target
    families = ([_pair(member) for member in row] for row in table("kernels")["families"])
    related = suffix == "f" and any(capability in family and gpu in family for family in families)
    return capability <= gpu if related or not suffix else capability == gpu


def _target(text: str) -> Target:
    """Read a target that is written as `9.0a` or `90a`."""
    match = re.fullmatch(r"(\d+)\.?(\d)([af]*)", text)
    if match is None:
        raise ValueError(f"{text} is not a compute capability")
    return (int(match[1]), int(match[2])), match[3]
