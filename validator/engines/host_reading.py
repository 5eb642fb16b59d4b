"""Read the driver and the GPUs of this machine outside of what is measured, to compare with the report.

NVML is asked in a child process (`ask_nvml.py`): a broken driver library may crash or hang the process that
loads it. The child gets none of the caller's variables, so that no variable can put another library in front
of the driver's. What NVML says has to be what the kernel lists in /proc/driver/nvidia, which no library can
change.

Under WSL the kernel has no such list: Windows has the driver's kernel module, and its library is mounted by
WSL. There NVML counts only together with the device that WSL's kernel makes, /dev/dxg.
"""

from __future__ import annotations

import platform
import re
import sys
from dataclasses import replace
from pathlib import Path

import msgspec

from ..errors import InputError
from ..model import codec
from ..model.codec import DocumentError
from ..model.prediction import AARCH64, JETSON, LINUX, MACOS, OPEN, PROPRIETARY, WINDOWS, WSL2, X86_64, Host
from ..model.record import GpuIdentity, Outside, Unread
from ..system import processes
from ..system.files import text_or_nothing

_SCRIPT = Path(__file__).with_name("ask_nvml.py")
#: Without the persistence daemon a driver takes several seconds to wake each GPU.
_LIMIT_S = 60.0
#: `NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build …`
_KERNEL_DRIVER = re.compile(r"Module(?: for \S+)?\s+(\d{3,4}(?:\.\d+)+)")


class NvmlGpu(msgspec.Struct, frozen=True):
    """One GPU, from NVML. bus: its PCI address, `00000000:3B:00.0`."""

    uuid: str
    name: str
    compute_capability: str
    bus: str


class Answer(msgspec.Struct, frozen=True):
    """The child's answer. driver: None if NVML did not answer.

    version: the content of /proc/driver/nvidia/version. information: that of `gpus/ADDRESS/information`
    there, by address (`0000:3b:00.0`). wsl: this is WSL's kernel, with its GPU device.
    """

    driver: str | None = None
    gpus: tuple[NvmlGpu, ...] = ()
    version: str | None = None
    information: dict[str, str] = {}
    wsl: bool = False


def read_host(limit_s: float = _LIMIT_S) -> Outside | Unread:
    """Return the driver and all GPUs of this machine, or why they can't be read. This may take seconds."""
    done = processes.run([sys.executable, _SCRIPT], env={}, cwd=Path("/"), timeout_s=limit_s, grace_s=0)
    if not done.ok:
        return Unread.NVML_SILENT
    try:
        return reading_of(codec.convert(codec.parse(done.stdout), Answer))
    except DocumentError:
        return Unread.NVML_SILENT


def reading_of(answer: Answer) -> Outside | Unread:
    """Return the driver and the GPUs that NVML and the kernel agree on, or why they can't be read."""
    if answer.driver is None:
        return Unread.NVML_SILENT
    by_uuid = sorted(answer.gpus, key=lambda gpu: gpu.uuid)
    gpus = tuple(GpuIdentity(gpu.uuid, gpu.name, gpu.compute_capability) for gpu in by_uuid)
    if answer.version is None:
        return Outside(answer.driver, None, gpus) if answer.wsl else Unread.KERNEL_SILENT
    module = _KERNEL_DRIVER.search(answer.version)
    if module is None or module[1] != answer.driver:
        return Unread.KERNEL_DIFFERS
    listed = {_address(bus): text for bus, text in answer.information.items()}
    for gpu in answer.gpus:
        pairs = (line.partition(":") for line in listed.get(_address(gpu.bus), "").splitlines())
        fields = {name.strip(): value.strip() for name, _, value in pairs}
        # The driver prints question marks for the UUID of a GPU that it has not woken yet.
        uuid = fields.get("GPU UUID", "")
        if fields.get("Model") != gpu.name or not (uuid == gpu.uuid or set(uuid) <= set("GPU-?")):
            return Unread.KERNEL_DIFFERS
    return Outside(answer.driver, module[1], gpus)


def _address(bus: str) -> str:
    """Return a PCI address with four digits for the domain, as the kernel writes it; NVML writes eight."""
    domain, _, rest = bus.lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def kernel_reading(root: Path = Path("/")) -> Outside | None:
    """Return the driver and the GPUs that the kernel lists, without waking any; None without a driver.

    The kernel does not list compute capabilities, which are empty here. In a container, it lists also the
    GPUs that the container was not given. root: the directory with /proc.
    """
    module = _KERNEL_DRIVER.search(text_or_nothing(root / "proc/driver/nvidia/version"))
    if module is None:
        return None
    listed = sorted((root / "proc/driver/nvidia/gpus").glob("*/information"))
    names = (re.search(r"^Model:\s*(.+?)\s*$", text_or_nothing(path), re.MULTILINE) for path in listed)
    gpus = tuple(GpuIdentity("", name[1], "") for name in names if name)
    return Outside(module[1], module[1], gpus)


_SYSTEMS = {"Linux": LINUX, "Windows": WINDOWS, "Darwin": MACOS}
_MACHINES = {"x86_64": X86_64, "AMD64": X86_64, "aarch64": AARCH64, "arm64": AARCH64}


def read_this_host(
    *, one_kind: bool = True, root: Path = Path("/"), outside: Outside | Unread | None = None
) -> Host:
    """Return the facts that this machine shows. All others are unknown.

    one_kind: True to raise InputError if the machine has GPUs of several kinds; if False, the GPU is unknown
    then. root: the directory with its /proc and /etc. outside: the driver and GPUs, if they have been read.
    """
    seen = outside or read_host()
    is_wsl = "microsoft" in text_or_nothing(root / "proc/version").lower()
    # A file of Jetson Linux (L4T), which other systems on aarch64 don't have.
    is_jetson = (root / "etc/nv_tegra_release").exists()
    version, modules = text_or_nothing(root / "proc/driver/nvidia/version"), None
    if version:
        modules = OPEN if "Open Kernel Module" in version else PROPRIETARY
    host = Host(
        system=WSL2 if is_wsl else _SYSTEMS.get(platform.system()),
        machine=JETSON if is_jetson else _MACHINES.get(platform.machine()),
        kernel_modules=modules,
    )
    if isinstance(seen, Unread):
        return host
    kinds = {(gpu.name, gpu.compute_capability) for gpu in seen.gpus}
    if len(kinds) > 1 and one_kind:
        names = ", ".join(sorted(name for name, _ in kinds))
        raise InputError(f"this machine has GPUs of several kinds: {names}", hint="choose one with --gpu")
    name, capability = next(iter(kinds)) if len(kinds) == 1 else (None, None)
    return replace(host, driver=seen.driver, gpu=name, capability=capability or None)
