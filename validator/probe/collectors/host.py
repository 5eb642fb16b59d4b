"""The machine: kernel, operating system, processor, container, NVIDIA driver and GPUs.

No host name, no user name, no path in a home directory: a report is meant to be shown to others.
"""

import os
import platform
import re
import stat
from pathlib import Path
from typing import Any, Dict, List, Optional

from ..child import Answer, forked
from . import driver

#: Seconds for each driver library to answer. Without the persistence daemon a driver takes several seconds to
#: wake a GPU; a broken one may never answer.
DRIVER_LIMIT_S = 30
_GPU = ("name", "uuid", "compute_capability", "memory_bytes")


def host_facts() -> Dict[str, Any]:
    """Return the report's `host`. Child processes ask the driver's libraries, which may crash or hang."""
    management = _answered(forked(driver.ask_nvml, limit_s=DRIVER_LIMIT_S))
    cuda = _answered(forked(driver.ask_cuda, limit_s=DRIVER_LIMIT_S))
    gpus = management.pop("gpus", None) or cuda.get("gpus") or []
    return {
        "driver": management.get("driver"),
        "driver_cuda": cuda.get("cuda") or management.get("cuda"),
        "gpus": [{key: gpu.get(key) for key in _GPU} for gpu in gpus],
        "kernel": platform.release(),
        "machine": platform.machine(),
        "os": _os_name(),
        "glibc": _glibc(),
        "container": container(),
        "wsl": "microsoft" in platform.release().lower() or os.path.exists("/dev/dxg"),
        "cpu": {"model": _cpu_model(), "count": len(os.sched_getaffinity(0))},
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel_driver": kernel_driver(),
        "pci_gpus": pci_gpus(),
        "device_nodes": device_nodes(),
        "driver_libraries": {"nvml": management, "cuda": cuda},
    }


def _answered(answer: Answer) -> Dict[str, Any]:
    """Return the last of a query's answers, which holds the most, with the failure of its child."""
    found: Dict[str, Any] = dict(answer.values[-1]) if answer.values else {"answered": False, "error": None}
    if answer.failure is not None:
        found.update(answered=False, error=str(answer.failure))
    return found


def kernel_driver() -> Optional[str]:
    """Return the release of the loaded kernel module, such as `535.183.01`, or None."""
    match = re.search(r"Module(?: for \S+)?\s+(\d{3,4}(?:\.\d+)+)", _read("/proc/driver/nvidia/version"))
    return match[1] if match else None


def pci_gpus(directory: str = "/sys/bus/pci/devices") -> Optional[int]:
    """Return how many NVIDIA display or 3D controllers the PCI bus shows, with or without a driver.

    None where the bus can't be read. A virtual machine or sandbox may use a GPU that its bus hides.
    """
    if not os.path.isdir(directory):
        return None
    devices = list(Path(directory).iterdir())
    return sum(
        _read(str(device / "vendor")).strip() == "0x10de" and _read(str(device / "class")).startswith("0x03")
        for device in devices
    )


def device_nodes() -> List[Dict[str, Any]]:
    """Return the device files of NVIDIA's driver and of WSL: whether each is a device, and opens.

    registered: whether the kernel lists the node's major number as NVIDIA's; None where it does not list it.
    """
    paths = sorted(
        str(path) for path in Path("/dev").glob("nvidia*") if re.fullmatch(r"nvidia(\d+|ctl|-uvm)", path.name)
    )
    return [_node(path) for path in [*paths, *(["/dev/dxg"] if os.path.exists("/dev/dxg") else [])]]


def _node(path: str) -> Dict[str, Any]:
    found: Dict[str, Any] = {"path": path, "device": False, "registered": None, "opens": False, "error": None}
    try:
        status = os.stat(path)
        found["device"] = stat.S_ISCHR(status.st_mode)
        if found["device"]:
            found["registered"] = _registered(os.major(status.st_rdev))
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
        found["opens"] = True
    except OSError as error:
        found["error"] = error.strerror
    return found


def _registered(major: int) -> Optional[bool]:
    """Return whether the kernel lists the major number as NVIDIA's; None where it doesn't list it at all.

    The kernel of a sandbox may pass a device through without listing it. Major 10 is for miscellaneous
    devices, among them /dev/dxg.
    """
    listed = re.findall(r"^\s*(\d+) (\S+)$", _read("/proc/devices").partition("Block")[0], re.MULTILINE)
    names = [name for number, name in listed if int(number) == major]
    return any(name.startswith("nvidia") or major == 10 for name in names) if names else None


def container() -> Optional[str]:
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


def _os_name() -> Optional[str]:
    match = re.search(r'^PRETTY_NAME="?(.*?)"?$', _read("/etc/os-release"), re.MULTILINE)
    return match[1] if match else None


def _glibc() -> Optional[str]:
    library, release = platform.libc_ver()
    return release if library == "glibc" else None


def _cpu_model() -> Optional[str]:
    match = re.search(r"^model name\s*:\s*(.+)$", _read("/proc/cpuinfo"), re.MULTILINE)
    return match[1] if match else None


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""
