"""The machine: kernel, operating system, processor, container, NVIDIA driver and GPUs.

No host name, no user name, no path in a home directory: a report is meant to be shown to others.

The driver's two libraries, CUDA and NVML, are asked in child processes (`child.forked`), because they may
crash or hang; both queries yield what is known so far, each time more of it. The CUDA library is found as
TensorFlow finds it: by `libcuda.so.1` on the loader's path. Functions, attributes and codes are those of the
CUDA Driver API (cuda.h) and of NVML (nvml.h).
"""

from __future__ import annotations

import ctypes
import glob
import os
import platform
import re
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .child import forked
from .loader import path_of

#: Seconds for each driver library to answer. Without the persistence daemon a driver takes several seconds to
#: wake a GPU; a broken one may never answer.
DRIVER_LIMIT_S = 30
#: Under WSL the driver's libraries are where only the container toolkit and ld.so.conf look.
CUDA_NAME, NVML_NAMES = "libcuda.so.1", ("libnvidia-ml.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1")
#: Bytes for a text of CUDA and of NVML.
_TEXT, _NVML_TEXT = 256, 96
#: CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, _COMPUTE_CAPABILITY_MAJOR and _MINOR.
_MULTIPROCESSORS, _MAJOR, _MINOR = 16, 75, 76
#: NVML_DEVICE_MIG_ENABLE
_MIG_ENABLED = 1


def host_facts(limit_s: float = DRIVER_LIMIT_S) -> dict[str, Any]:
    """Return the report's `host`. limit_s: for each driver library to answer, if that is less than usual."""
    management, cuda = _asked(ask_nvml, limit_s), _asked(ask_cuda, limit_s)
    gpus = management.pop("gpus", None) or cuda.get("gpus") or []
    fields = ("name", "uuid", "compute_capability", "memory_bytes")
    library, release = platform.libc_ver()
    # The device files of NVIDIA's driver and of WSL.
    listed = map(os.path.basename, glob.glob("/dev/*"))
    names = sorted(name for name in listed if re.fullmatch(r"nvidia(\d+|ctl|-uvm)|dxg", name))
    names.sort(key=lambda name: name == "dxg")
    return {
        "driver": management.get("driver"),
        "driver_cuda": cuda.get("cuda") or management.get("cuda"),
        "gpus": [{key: gpu.get(key) for key in fields} for gpu in gpus],
        "kernel": platform.release(),
        "machine": platform.machine(),
        "os": _found(r'^PRETTY_NAME="?(.*?)"?$', "/etc/os-release"),
        "glibc": release if library == "glibc" else None,
        "container": container(),
        "wsl": "microsoft" in platform.release().lower() or os.path.exists("/dev/dxg"),
        "cpu": {
            "model": _found(r"^model name\s*:\s*(.+)$", "/proc/cpuinfo"),
            "count": len(os.sched_getaffinity(0)),
        },
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel_driver": kernel_driver(),
        "pci_gpus": pci_gpus(),
        "device_nodes": [device_node(f"/dev/{name}") for name in names],
        "driver_libraries": {"nvml": management, "cuda": cuda},
    }


def kernel_driver() -> str | None:
    """Return the release of the loaded kernel module, such as `535.183.01`, or None."""
    return _found(r"Module(?: for \S+)?\s+(\d{3,4}(?:\.\d+)+)", "/proc/driver/nvidia/version")


def pci_gpus(directory: str = "/sys/bus/pci/devices") -> int | None:
    """Return how many NVIDIA display or 3D controllers the PCI bus shows, with or without a driver.

    None where the bus can't be read. A virtual machine or sandbox may use a GPU that its bus hides.
    """
    if not os.path.isdir(directory):
        return None
    return sum(
        _read(str(device / "vendor")).strip() == "0x10de" and _read(str(device / "class")).startswith("0x03")
        for device in Path(directory).iterdir()
    )


def device_node(path: str) -> dict[str, Any]:
    """Return whether a device file is a device, whether its number is `registered`, and whether it opens."""
    found: dict[str, Any] = {"path": path, "device": False, "registered": None, "opens": False, "error": None}
    try:
        status = os.stat(path)
        found["device"] = stat.S_ISCHR(status.st_mode)
        if found["device"]:
            found["registered"] = registered(os.major(status.st_rdev))
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
        found["opens"] = True
    except OSError as error:
        found["error"] = error.strerror
    return found


def registered(major: int) -> bool | None:
    """Return whether the kernel lists the major number as NVIDIA's; None where it doesn't list it at all.

    The kernel of a sandbox may pass a device through without listing it. Major 10 is for miscellaneous
    devices, among them /dev/dxg.
    """
    listed = re.findall(r"^\s*(\d+) (\S+)$", _read("/proc/devices").partition("Block")[0], re.MULTILINE)
    names = [name for number, name in listed if int(number) == major]
    return any(name.startswith("nvidia") or major == 10 for name in names) if names else None


def container() -> str | None:
    """Return `docker`, `podman`, `kubernetes`, `container` where there are only traces of one, or None."""
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return "kubernetes"
    if os.path.exists("/.dockerenv"):
        return "docker"
    if os.path.exists("/run/.containerenv"):
        return "podman"
    # systemd-nspawn, LXC and podman set it, in lower case.
    traces = os.environ.get("container", "") + _read("/proc/1/cgroup")  # noqa: SIM112
    return "container" if re.search(r"docker|containerd|kubepods|lxc|podman|nspawn|oci", traces) else None


def _found(pattern: str, path: str) -> str | None:
    match = re.search(pattern, _read(path), re.MULTILINE)
    return match[1] if match else None


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def _asked(query: Any, limit_s: float) -> dict[str, Any]:
    """Return the last of a query's answers, which holds the most, with the failure of its child."""
    answer = forked(query, limit_s=min(limit_s, DRIVER_LIMIT_S))
    found: dict[str, Any] = dict(answer.values[-1]) if answer.values else {"answered": False, "error": None}
    if answer.failure is not None:
        found.update(answered=False, error=str(answer.failure))
    return found


def ask_cuda() -> Iterator[dict[str, Any]]:
    """Yield `{answered, error, path, cuda, code, count, gpus}`, growing.

    code: what `cuInit` returned (0: success, 100: no device, 34: a stub library); None before it returned.
    count: the devices that this process may use, after `CUDA_VISIBLE_DEVICES`.
    """
    found: dict[str, Any] = {"answered": False, "error": None, "path": None, "code": None, "count": None}
    try:
        library = ctypes.CDLL(CUDA_NAME)
    except OSError as error:
        yield {**found, "error": str(error)}
        return
    found["path"] = path_of(library)
    yield found
    number, count, name = ctypes.c_int(), ctypes.c_int(), ctypes.c_char_p()
    # Valid before cuInit, and answered even where cuInit fails.
    if library.cuDriverGetVersion(ctypes.byref(number)) == 0 and number.value:
        found["cuda"] = _cuda_version(number.value)
    found["code"] = library.cuInit(0)
    if found["code"] != 0:
        library.cuGetErrorName(found["code"], ctypes.byref(name))
        named = (name.value or b"unknown error").decode(errors="replace")
        found["error"] = f"cuInit: {named} ({found['code']})"
        yield found
        return
    found["answered"] = True
    library.cuDeviceGetCount(ctypes.byref(count))
    found["count"] = count.value
    yield found
    found["gpus"] = [_cuda_gpu(library, index) for index in range(count.value)]
    yield found


def _cuda_version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def _cuda_gpu(library: ctypes.CDLL, index: int) -> dict[str, Any]:
    device, memory = ctypes.c_int(), ctypes.c_size_t()
    library.cuDeviceGet(ctypes.byref(device), index)
    name, identity = ctypes.create_string_buffer(_TEXT), ctypes.create_string_buffer(16)
    library.cuDeviceGetName(name, _TEXT, device)
    library.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
    known = library.cuDeviceGetUuid(identity, device) == 0

    def attribute(which: int) -> int | None:
        value = ctypes.c_int()
        status = library.cuDeviceGetAttribute(ctypes.byref(value), which, device)
        return value.value if status == 0 else None

    major, minor = attribute(_MAJOR), attribute(_MINOR)
    return {
        "name": name.value.decode(errors="replace") or None,
        "uuid": f"GPU-{uuid.UUID(bytes=identity.raw)}" if known else None,
        "compute_capability": f"{major}.{minor}" if major is not None else None,
        "memory_bytes": memory.value or None,
        "multiprocessors": attribute(_MULTIPROCESSORS),
    }


class _Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


def ask_nvml() -> Iterator[dict[str, Any]]:
    """Yield `{answered, error, path, driver, cuda, gpus}`, growing."""
    found: dict[str, Any] = {"answered": False, "error": None, "path": None}
    library = open_nvml(found)
    yield found
    if library is None:
        return
    status = library.nvmlInit_v2()
    if status != 0:
        library.nvmlErrorString.restype = ctypes.c_char_p
        message: bytes = library.nvmlErrorString(status) or b""
        found["error"] = f"nvmlInit: {message.decode(errors='replace')} ({status})"
        yield found
        return
    found["answered"] = True
    found["driver"] = text(library.nvmlSystemGetDriverVersion)
    number, count = ctypes.c_int(), ctypes.c_uint()
    if library.nvmlSystemGetCudaDriverVersion_v2(ctypes.byref(number)) == 0:
        found["cuda"] = _cuda_version(number.value)
    yield found
    library.nvmlDeviceGetCount_v2(ctypes.byref(count))
    gpus = (_nvml_gpu(library, index) for index in range(count.value))
    found["gpus"] = [gpu for gpu in gpus if gpu is not None]
    yield found


def open_nvml(found: dict[str, Any]) -> ctypes.CDLL | None:
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


def _nvml_gpu(library: ctypes.CDLL, index: int) -> dict[str, Any] | None:
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


def is_split(library: ctypes.CDLL, device: ctypes.c_void_p) -> bool | None:
    """Return whether the GPU is split into instances, of which CUDA shows a process only the first."""
    if not hasattr(library, "nvmlDeviceGetMigMode"):
        return None
    current, pending = ctypes.c_uint(), ctypes.c_uint()
    status = library.nvmlDeviceGetMigMode(device, ctypes.byref(current), ctypes.byref(pending))
    return current.value == _MIG_ENABLED if status == 0 else None


def text(function: Any, *arguments: Any) -> str | None:
    """Return the text that a function of NVML writes into a buffer, or None."""
    buffer: Any = ctypes.create_string_buffer(_NVML_TEXT)
    return buffer.value.decode(errors="replace") if function(*arguments, buffer, _NVML_TEXT) == 0 else None


def free_memory() -> dict[str, int]:
    """Return `{free, total}` in bytes of the first device. Raises OSError when the driver rejects a call.

    The driver is asked in a context of its own, so that TensorFlow's is neither made nor changed. Such a
    context takes some memory too, the same each time.
    """
    library = ctypes.CDLL(CUDA_NAME)

    def ask(name: str, *arguments: object) -> None:
        code = getattr(library, name)(*arguments)
        if code != 0:
            raise OSError(f"{name} returned {code}")

    device, context = ctypes.c_int(), ctypes.c_void_p()
    ask("cuInit", 0)
    ask("cuDeviceGet", ctypes.byref(device), 0)
    ask("cuCtxCreate_v2", ctypes.byref(context), 0, device)
    try:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        ask("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    finally:
        ask("cuCtxDestroy_v2", context)
    return {"free": free.value, "total": total.value}
