"""Asks the NVIDIA management library (NVML) for the driver and its GPUs.

Called in a child process (`isolate.call`): yields what is known so far, each time more of it.
Functions and return codes: NVML API reference.
"""

import ctypes
from typing import Any, Dict, Iterator, List, Optional

from ..cuda.shared_object import path_of

#: Under WSL the driver's libraries lie where only the container toolkit and ld.so.conf look.
NAMES = ("libnvidia-ml.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1")
_TEXT = 96
#: NVML_DEVICE_MIG_ENABLE
_MIG_ENABLED = 1


class _Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


def query() -> Iterator[Dict[str, Any]]:
    """Yields `{answered, error, path, driver, cuda, gpus}`, growing."""
    found: Dict[str, Any] = {"answered": False, "error": None, "path": None}
    library = _open(found)
    yield found
    if library is None:
        return
    status = library.nvmlInit_v2()
    if status != 0:
        found["error"] = f"nvmlInit: {_message(library, status)} ({status})"
        yield found
        return
    found["answered"] = True
    found["driver"] = _text(library.nvmlSystemGetDriverVersion)
    number = ctypes.c_int()
    if library.nvmlSystemGetCudaDriverVersion_v2(ctypes.byref(number)) == 0:
        found["cuda"] = f"{number.value // 1000}.{number.value % 1000 // 10}"
    yield found
    count = ctypes.c_uint()
    library.nvmlDeviceGetCount_v2(ctypes.byref(count))
    found["gpus"] = [gpu for gpu in (_gpu(library, index) for index in range(count.value)) if gpu is not None]
    yield found


def _open(found: Dict[str, Any]) -> Optional[ctypes.CDLL]:
    for name in NAMES:
        try:
            library = ctypes.CDLL(name)
        except OSError as error:
            found["error"] = found["error"] or str(error)
            continue
        found.update(path=path_of(library), error=None)
        return library
    return None


def _gpu(library: ctypes.CDLL, index: int) -> Optional[Dict[str, Any]]:
    device = ctypes.c_void_p()
    if library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) != 0:
        return None
    major, minor, memory = ctypes.c_int(), ctypes.c_int(), _Memory()
    capability = library.nvmlDeviceGetCudaComputeCapability(device, ctypes.byref(major), ctypes.byref(minor))
    sized = library.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory))
    return {
        "name": _text(library.nvmlDeviceGetName, device),
        "uuid": _text(library.nvmlDeviceGetUUID, device),
        "compute_capability": f"{major.value}.{minor.value}" if capability == 0 else None,
        "memory_bytes": memory.total if sized == 0 else None,
        "mig": _mig(library, device),
    }


def _mig(library: ctypes.CDLL, device: ctypes.c_void_p) -> Optional[bool]:
    """Whether the GPU is cut into instances, of which CUDA shows one process only the first."""
    if not hasattr(library, "nvmlDeviceGetMigMode"):
        return None
    current, pending = ctypes.c_uint(), ctypes.c_uint()
    status = library.nvmlDeviceGetMigMode(device, ctypes.byref(current), ctypes.byref(pending))
    return current.value == _MIG_ENABLED if status == 0 else None


def _text(function: Any, *arguments: Any) -> Optional[str]:
    buffer: Any = ctypes.create_string_buffer(_TEXT)
    return buffer.value.decode(errors="replace") if function(*arguments, buffer, _TEXT) == 0 else None


def _message(library: ctypes.CDLL, status: int) -> str:
    library.nvmlErrorString.restype = ctypes.c_char_p
    message: List[bytes] = [library.nvmlErrorString(status) or b""]
    return message[0].decode(errors="replace")
