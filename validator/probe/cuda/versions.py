"""Asks an open CUDA library for its version. Functions and encodings: each library's public header."""

import ctypes
from typing import Any, Callable, Dict, Optional

#: `libraryPropertyType` (library_types.h): major, minor, patch level.
_PROPERTIES = (0, 1, 2)


def decode(number: int, base: int) -> str:
    """A version packed as `base * major + 100 * minor + patch`."""
    return f"{number // base}.{number % base // 100}.{number % 100}"


def cudnn_version(number: int) -> str:
    """`cudnnGetVersion`: 8907 is 8.9.7, 90300 is 9.3.0; the factor changed with 9.0 (cudnn_version.h)."""
    return decode(number, 10000 if number >= 90000 else 1000)


def nccl_version(number: int) -> str:
    """`ncclGetVersion`: 2807 is 2.8.7, 22707 is 2.27.7; the factor changed with 2.9 (nccl.h)."""
    return decode(number, 10000 if number >= 10000 else 1000)


def _properties(function: str) -> Callable[[ctypes.CDLL], Optional[str]]:
    def ask(library: ctypes.CDLL) -> Optional[str]:
        values = [ctypes.c_int() for _ in _PROPERTIES]
        statuses = [getattr(library, function)(which, ctypes.byref(values[which])) for which in _PROPERTIES]
        return None if any(statuses) else ".".join(str(value.value) for value in values)

    return ask


def _cudart(library: ctypes.CDLL) -> Optional[str]:
    number = ctypes.c_int()
    if library.cudaRuntimeGetVersion(ctypes.byref(number)) != 0:
        return None
    return f"{number.value // 1000}.{number.value % 1000 // 10}"


def _cudnn(library: ctypes.CDLL) -> Optional[str]:
    library.cudnnGetVersion.restype = ctypes.c_size_t
    return cudnn_version(library.cudnnGetVersion())


def _nccl(library: ctypes.CDLL) -> Optional[str]:
    number = ctypes.c_int()
    return nccl_version(number.value) if library.ncclGetVersion(ctypes.byref(number)) == 0 else None


#: By the name between `lib` and `.so`.
_ASK: Dict[str, Callable[[ctypes.CDLL], Optional[str]]] = {
    "cudart": _cudart,
    "cublas": _properties("cublasGetProperty"),
    "cublasLt": _properties("cublasLtGetProperty"),
    "cufft": _properties("cufftGetProperty"),
    "curand": _properties("curandGetProperty"),
    "cusolver": _properties("cusolverGetProperty"),
    "cusparse": _properties("cusparseGetProperty"),
    "cudnn": _cudnn,
    "nccl": _nccl,
}


def ask(name: str, library: Any) -> Optional[str]:
    """The version that the library itself answers, or None for one that can't be asked."""
    function = _ASK.get(name)
    return function(library) if function else None
