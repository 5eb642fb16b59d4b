"""Asks the CUDA driver library, found as TensorFlow finds it: by `libcuda.so.1` on the loader's path.

Called in a child process (`isolate.call`): yields what is known so far, each time more of it.
Functions, attributes and codes: CUDA Driver API (cuda.h).
"""

import ctypes
import uuid
from typing import Any, Dict, Iterator, Optional

from ..cuda.shared_object import path_of

NAME = "libcuda.so.1"
_TEXT = 256
_MULTIPROCESSORS, _MAJOR, _MINOR = 16, 75, 76


def query() -> Iterator[Dict[str, Any]]:
    """Yields `{answered, error, path, cuda, code, count, gpus}`, growing.

    code: what `cuInit` returned (0: success, 100: no device, 34: a stub library); None before it returned.
    count: the devices that this process may use, after `CUDA_VISIBLE_DEVICES`.
    """
    found: Dict[str, Any] = {"answered": False, "error": None, "path": None, "code": None, "count": None}
    try:
        library = ctypes.CDLL(NAME)
    except OSError as error:
        yield {**found, "error": str(error)}
        return
    found["path"] = path_of(library)
    yield found
    number = ctypes.c_int()
    # Valid before cuInit, and answered even where cuInit fails.
    if library.cuDriverGetVersion(ctypes.byref(number)) == 0 and number.value:
        found["cuda"] = f"{number.value // 1000}.{number.value % 1000 // 10}"
    found["code"] = library.cuInit(0)
    if found["code"] != 0:
        found["error"] = f"cuInit: {_error_name(library, found['code'])} ({found['code']})"
        yield found
        return
    found["answered"] = True
    count = ctypes.c_int()
    library.cuDeviceGetCount(ctypes.byref(count))
    found["count"] = count.value
    yield found
    found["gpus"] = [_gpu(library, index) for index in range(count.value)]
    yield found


def _gpu(library: ctypes.CDLL, index: int) -> Dict[str, Any]:
    device = ctypes.c_int()
    library.cuDeviceGet(ctypes.byref(device), index)
    name = ctypes.create_string_buffer(_TEXT)
    library.cuDeviceGetName(name, _TEXT, device)
    memory = ctypes.c_size_t()
    library.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
    identity = ctypes.create_string_buffer(16)
    known = library.cuDeviceGetUuid(identity, device) == 0
    major, minor = (_attribute(library, device, which) for which in (_MAJOR, _MINOR))
    return {
        "name": name.value.decode(errors="replace") or None,
        "uuid": f"GPU-{uuid.UUID(bytes=identity.raw)}" if known else None,
        "compute_capability": f"{major}.{minor}" if major is not None else None,
        "memory_bytes": memory.value or None,
        "multiprocessors": _attribute(library, device, _MULTIPROCESSORS),
    }


def _attribute(library: ctypes.CDLL, device: ctypes.c_int, which: int) -> Optional[int]:
    value = ctypes.c_int()
    return value.value if library.cuDeviceGetAttribute(ctypes.byref(value), which, device) == 0 else None


def _error_name(library: ctypes.CDLL, code: int) -> str:
    name = ctypes.c_char_p()
    library.cuGetErrorName(code, ctypes.byref(name))
    return (name.value or b"unknown error").decode(errors="replace")
