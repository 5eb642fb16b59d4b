"""How much of the GPU's memory is free, asked of the CUDA driver itself, beside TensorFlow's allocator.

Functions: CUDA Driver API, "Context Management" and "Memory Management".
"""

import ctypes
from typing import Dict

from ..facts.libcuda import NAME


def free_memory(index: int = 0) -> Dict[str, int]:
    """`{free, total}` in bytes, of a device as CUDA numbers them for this process.

    In a context of its own, so that TensorFlow's is neither made nor changed. Such a context takes some
    memory too, the same each time. Raises OSError when the driver refuses.
    """
    library = ctypes.CDLL(NAME)
    device, context = ctypes.c_int(), ctypes.c_void_p()
    _ask(library, "cuInit", 0)
    _ask(library, "cuDeviceGet", ctypes.byref(device), index)
    _ask(library, "cuCtxCreate_v2", ctypes.byref(context), 0, device)
    try:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        _ask(library, "cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    finally:
        _ask(library, "cuCtxDestroy_v2", context)
    return {"free": free.value, "total": total.value}


def _ask(library: ctypes.CDLL, name: str, *arguments: object) -> None:
    code = getattr(library, name)(*arguments)
    if code != 0:
        raise OSError(f"{name} returned {code}")
