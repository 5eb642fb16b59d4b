"""Read the driver and the GPUs of this machine outside of what is measured, to compare with the report.

NVML is asked in a child process (`ask_nvml.py`): a broken driver library may crash or hang the process that
loads it. The child gets none of the caller's variables, so that no variable can put another library in front
of the driver's. What NVML says has to be what the kernel lists in /proc/driver/nvidia, which no library can
change.

Under WSL the kernel has no such list: Windows has the driver's kernel module, and its library is mounted by
WSL. There NVML counts only together with the device that WSL's kernel makes, /dev/dxg.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import msgspec

from ..model import codec
from ..model.codec import DocumentError
from ..model.measurement import GpuIdentity, Outside, Unread
from ..system import processes

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


def read_host() -> Outside | Unread:
    """Return the driver and all GPUs of this machine, or why they can't be read. This may take seconds."""
    done = processes.run([sys.executable, _SCRIPT], env={}, cwd=Path("/"), timeout_s=_LIMIT_S)
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
    gpus = tuple(
        sorted(
            (GpuIdentity(gpu.uuid, gpu.name, gpu.compute_capability) for gpu in answer.gpus),
            key=lambda gpu: gpu.uuid,
        )
    )
    if answer.version is None:
        return Outside(answer.driver, None, gpus) if answer.wsl else Unread.KERNEL_SILENT
    module = _KERNEL_DRIVER.search(answer.version)
    if module is None or module[1] != answer.driver:
        return Unread.KERNEL_DIFFERS
    listed = {_address(bus): text for bus, text in answer.information.items()}
    if not all(_is_listed(gpu, listed.get(_address(gpu.bus))) for gpu in answer.gpus):
        return Unread.KERNEL_DIFFERS
    return Outside(answer.driver, module[1], gpus)


def _is_listed(gpu: NvmlGpu, information: str | None) -> bool:
    if information is None:
        return False
    pairs = (line.partition(":") for line in information.splitlines())
    fields = {name.strip(): value.strip() for name, _, value in pairs}
    # The driver prints question marks for the UUID of a GPU that it has not woken yet.
    uuid = fields.get("GPU UUID", "")
    return fields.get("Model") == gpu.name and (uuid == gpu.uuid or set(uuid) <= set("GPU-?"))


def _address(bus: str) -> str:
    """Return a PCI address with four digits for the domain, as the kernel writes it; NVML writes eight."""
    domain, _, rest = bus.lower().partition(":")
    return f"{domain[-4:]}:{rest}"
