"""Asks the driver's two libraries, CUDA and NVML, about the driver and its GPUs.

The CUDA library is found as TensorFlow finds it: by `libcuda.so.1` on the loader's path. Both queries run in
a child process (`child.forked`) and yield what is known so far, each time more of it. Functions, attributes
and codes are those of the CUDA Driver API (cuda.h) and of NVML (nvml.h).
"""

import ctypes
import uuid
from typing import Any, Dict, Iterator, List, Optional

from .loader import path_of

NAME = "libcuda.so.1"
_TEXT = 256
_MULTIPROCESSORS, _MAJOR, _MINOR = 16, 75, 76


def ask_cuda() -> Iterator[Dict[str, Any]]:
    """Yield `{answered, error, path, cuda, code, count, gpus}`, growing.

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
    found["gpus"] = [_cuda_gpu(library, index) for index in range(count.value)]
    yield found


def _cuda_gpu(library: ctypes.CDLL, index: int) -> Dict[str, Any]:
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


#: Under WSL the driver's libraries are where only the container toolkit and ld.so.conf look.
NVML_NAMES = ("libnvidia-ml.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1")
_NVML_TEXT = 96
#: NVML_DEVICE_MIG_ENABLE
_MIG_ENABLED = 1


class _Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


def ask_nvml() -> Iterator[Dict[str, Any]]:
    """Yield `{answered, error, path, driver, cuda, gpus}`, growing."""
    found: Dict[str, Any] = {"answered": False, "error": None, "path": None}
    library = open_nvml(found)
    yield found
    if library is None:
        return
    status = library.nvmlInit_v2()
    if status != 0:
        found["error"] = f"nvmlInit: {_message(library, status)} ({status})"
        yield found
        return
    found["answered"] = True
    found["driver"] = text(library.nvmlSystemGetDriverVersion)
    number = ctypes.c_int()
    if library.nvmlSystemGetCudaDriverVersion_v2(ctypes.byref(number)) == 0:
        found["cuda"] = f"{number.value // 1000}.{number.value % 1000 // 10}"
    yield found
    count = ctypes.c_uint()
    library.nvmlDeviceGetCount_v2(ctypes.byref(count))
    found["gpus"] = [
        gpu for gpu in (_nvml_gpu(library, index) for index in range(count.value)) if gpu is not None
    ]
    yield found


def open_nvml(found: Dict[str, Any]) -> Optional[ctypes.CDLL]:
    """Load NVML's library; put its path, or the error, into `found`."""
    for name in NVML_NAMES:
        try:
            library = ctypes.CDLL(name)
        except OSError as error:
            found["error"] = found["error"] or str(error)
            continue
        found.update(path=path_of(library), error=None)
        return library
    return None


def _nvml_gpu(library: ctypes.CDLL, index: int) -> Optional[Dict[str, Any]]:
    device = ctypes.c_void_p()
    if library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) != 0:
        return None
    major, minor, memory = ctypes.c_int(), ctypes.c_int(), _Memory()
    capability = library.nvmlDeviceGetCudaComputeCapability(device, ctypes.byref(major), ctypes.byref(minor))
    sized = library.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory))
    return {
        "name": text(library.nvmlDeviceGetName, device),
        "uuid": text(library.nvmlDeviceGetUUID, device),
        "compute_capability": f"{major.value}.{minor.value}" if capability == 0 else None,
        "memory_bytes": memory.total if sized == 0 else None,
        "mig": is_split(library, device),
    }


def is_split(library: ctypes.CDLL, device: ctypes.c_void_p) -> Optional[bool]:
    """Return whether the GPU is split into instances, of which CUDA shows a process only the first."""
    if not hasattr(library, "nvmlDeviceGetMigMode"):
        return None
    current, pending = ctypes.c_uint(), ctypes.c_uint()
    status = library.nvmlDeviceGetMigMode(device, ctypes.byref(current), ctypes.byref(pending))
    return current.value == _MIG_ENABLED if status == 0 else None


def text(function: Any, *arguments: Any) -> Optional[str]:
    """Return the text that a function of NVML writes into a buffer, or None."""
    buffer: Any = ctypes.create_string_buffer(_NVML_TEXT)
    return buffer.value.decode(errors="replace") if function(*arguments, buffer, _NVML_TEXT) == 0 else None


def _message(library: ctypes.CDLL, status: int) -> str:
    library.nvmlErrorString.restype = ctypes.c_char_p
    message: List[bytes] = [library.nvmlErrorString(status) or b""]
    return message[0].decode(errors="replace")


def free_memory(index: int = 0) -> Dict[str, int]:
    """Return `{free, total}` in bytes of a device, as CUDA numbers them for this process.

    The driver is asked in a context of its own, so that TensorFlow's is neither made nor changed. Such a
    context takes some memory too, the same each time. Raises OSError when the driver rejects a call.
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
