"""Read the facts of one TensorFlow wheel."""

from __future__ import annotations

import ast
import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..._vendor.packaging.requirements import Requirement
from ..targets import Target
from . import runtime
from .elf import ElfFile, InspectionError
from .fatbin import Fatbin, fatbins
from .wheel import WheelFile

_BUILD_INFO = "tensorflow/python/platform/build_info.py"

#: Where NVIDIA's wheels put the library of a soname: site-packages/nvidia/<folder>/lib.
_PIP_FOLDERS = {
    "libcublas": "cublas",
    "libcublasLt": "cublas",
    "libcudart": "cuda_runtime",
    "libcudnn": "cudnn",
    "libcufft": "cufft",
    "libcupti": "cuda_cupti",
    "libcurand": "curand",
    "libcusolver": "cusolver",
    "libcusparse": "cusparse",
    "libnccl": "nccl",
    "libnvrtc": "cuda_nvrtc",
    "libnvshmem_host": "nvshmem",
}

#: The libraries that `DsoLoader::TryDlopenCUDALibraries()` opens. If one is missing, TensorFlow registers no
#: GPU ("Cannot dlopen some GPU libraries. ... Skipping registering GPU devices"). They are the same in 2.12
#: to 2.22, except for cuRAND, which was dropped in 2.14.
_REQUIRED = frozenset(
    (
        "libcublas",
        "libcublasLt",
        "libcudart",
        "libcudnn",
        "libcufft",
        "libcurand",
        "libcusolver",
        "libcusparse",
    )
)


@dataclass(frozen=True)
class Kernels:
    """Translation units (fatbins) whose device code covers the same GPUs.

    sass: targets with machine code.
    ptx: target -> PTX ISA version of its text.
    fatbins: their number.
    nccl: True if they are NCCL's, which is linked into TensorFlow up to 2.20.
    """

    sass: tuple[Target, ...]
    ptx: tuple[tuple[Target, str], ...]
    fatbins: int
    nccl: bool = False


@dataclass(frozen=True)
class PipLibraries:
    """The folders where TensorFlow finds the CUDA libraries installed by pip, without LD_LIBRARY_PATH.

    opener: the library that calls dlopen; only its search path counts.
    folders: `nvidia/<folder>/lib` on that search path.
    missing_required: sonames whose folder is not on it, and without which no GPU is registered.
    missing_optional: sonames whose folder is not on it, opened on demand (profiler, collectives).
    """

    opener: str
    folders: tuple[str, ...]
    missing_required: tuple[str, ...]
    missing_optional: tuple[str, ...]


@dataclass(frozen=True)
class TensorFlowBuild:
    """The facts read from one TensorFlow wheel.

    build_info: the dictionary that `tf.sysconfig.get_build_info()` returns.
    cudnn_headers: the cuDNN version compiled against, or None if it can't be read.
    and_cuda: requirements of the extra `and-cuda`, sorted; empty if there is no such extra.
    requires: the requirements on numpy and keras, by name.
    opens: sonames of NVIDIA's libraries that are opened at run time, sorted.
    kernels: most frequent first.
    relocatable: fatbins of code that is linked into others (NCCL, if it is built in).
    """

    version: str
    wheel: str
    size: int
    sha256: str
    requires_python: str
    requires: Mapping[str, tuple[str, ...]]
    and_cuda: tuple[str, ...]
    build_info: Mapping[str, Any]
    cudnn_headers: str | None
    opens: tuple[str, ...]
    pip_libraries: PipLibraries | None
    kernels: tuple[Kernels, ...]
    relocatable: int


def inspect_tensorflow(path: Path, *, scratch: Path | None = None) -> TensorFlowBuild:
    """Read a TensorFlow wheel. Raises InspectionError if the file is not one, or is damaged."""
    with WheelFile(path) as wheel:
        metadata = wheel.metadata()
        build_info = read_build_info(wheel.read(_BUILD_INFO).decode("utf-8"), f"{path}: {_BUILD_INFO}")
        found: list[Fatbin] = []
        opens: set[str] = set()
        headers: set[str] = set()
        openers: dict[str, tuple[str, ...]] = {}
        for member, library in wheel.libraries(scratch):
            found += fatbins(library)
            opens |= set(runtime.opened_sonames(library))
            headers |= {version for version in [runtime.compiled_cudnn(library)] if version}
            if runtime.calls_dlopen(library):
                openers[member] = pip_folders(library, member)
        requirements = [Requirement(text) for text in metadata.get_all("Requires-Dist", [])]
        return TensorFlowBuild(
            version=str(metadata["Version"]),
            wheel=path.name,
            size=wheel.size,
            sha256=wheel.sha256(),
            requires_python=str(metadata["Requires-Python"]),
            requires={name: _plain(requirements, name) for name in ("keras", "keras-nightly", "numpy")},
            and_cuda=_extra(requirements, "and-cuda"),
            build_info=build_info,
            cudnn_headers=headers.pop() if len(headers) == 1 else None,
            opens=tuple(sorted(opens)),
            pip_libraries=_pip_libraries(openers, opens),
            kernels=count_kernels(found),
            relocatable=sum(fatbin.relocatable for fatbin in found),
        )


def read_build_info(source: str, where: str) -> dict[str, Any]:
    """Return the literal dictionary in build_info.py, which is parsed but not run. Raises InspectionError."""
    try:
        tree = ast.parse(source)
        for node in tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                return dict(ast.literal_eval(node.value.args[0]))
    except (SyntaxError, ValueError, IndexError, TypeError) as error:
        raise InspectionError(f"{where}: can't be read: {error}") from None
    raise InspectionError(f"{where}: does not assign build_info")


def pip_folders(library: ElfFile, member: str) -> tuple[str, ...]:
    """Return the folders `nvidia/<folder>/lib` of site-packages that a library searches, sorted.

    member: the library's path in the wheel, which is also its path in site-packages.
    """
    folder = posixpath.dirname(member)
    reached = {
        posixpath.normpath(re.sub(r"^\$(ORIGIN|\{ORIGIN\})", folder, entry)) for entry in library.search_path
    }
    matches = (re.fullmatch(r"nvidia/([^/]+)/lib", place) for place in reached)
    return tuple(sorted(match[1] for match in matches if match))


def count_kernels(found: Iterable[Fatbin]) -> tuple[Kernels, ...]:
    """Group fatbins by the GPUs that they cover, most frequent first.

    Fatbins without kernels are not counted, nor is relocatable code, which is also in a linked fatbin.
    """
    groups = Counter(
        (fatbin.sass, tuple((target, f"{isa[0]}.{isa[1]}") for target, isa in fatbin.ptx), fatbin.nccl)
        for fatbin in found
        if fatbin.has_kernels and not fatbin.relocatable
    )
    ordered = sorted(groups.items(), key=lambda group: (-group[1], group[0]))
    return tuple(Kernels(sass, ptx, count, nccl) for (sass, ptx, nccl), count in ordered)


def _pip_libraries(openers: Mapping[str, tuple[str, ...]], opens: Iterable[str]) -> PipLibraries | None:
    if not openers:
        return None
    # 2.12 has the loader in both of its large libraries; neither searches pip's folders.
    member = max(openers, key=lambda name: (name.endswith("libtensorflow_framework.so.2"), name))
    missing = [
        soname
        for soname in sorted(opens)
        if _stem(soname) in _PIP_FOLDERS and _PIP_FOLDERS[_stem(soname)] not in openers[member]
    ]
    return PipLibraries(
        opener=posixpath.basename(member),
        folders=openers[member],
        missing_required=tuple(soname for soname in missing if _stem(soname) in _REQUIRED),
        missing_optional=tuple(soname for soname in missing if _stem(soname) not in _REQUIRED),
    )


def _stem(soname: str) -> str:
    return soname.partition(".so")[0]


def _plain(requirements: Iterable[Requirement], name: str) -> tuple[str, ...]:
    """Return the specifiers (with their markers) for a distribution that are required without any extra."""
    return tuple(
        f"{requirement.specifier}; {requirement.marker}" if requirement.marker else str(requirement.specifier)
        for requirement in requirements
        if requirement.name == name and "extra" not in str(requirement.marker)
    )


def _extra(requirements: Iterable[Requirement], extra: str) -> tuple[str, ...]:
    return tuple(
        sorted(
            f"{requirement.name}{requirement.specifier}"
            for requirement in requirements
            if requirement.marker is not None and f'extra == "{extra}"' in str(requirement.marker)
        )
    )
