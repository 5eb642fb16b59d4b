"""Read the facts about this machine that predictions need: its system, driver and GPU."""

from __future__ import annotations

import platform
from dataclasses import replace
from pathlib import Path

from ..errors import InputError
from ..model.measurement import Outside, Unread
from ..model.situation import (
    AARCH64,
    JETSON,
    LINUX,
    MACOS,
    OPEN,
    PROPRIETARY,
    WINDOWS,
    WSL2,
    X86_64,
    Host,
)
from .host_reading import read_host

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
    version = _text(root / "proc/driver/nvidia/version")
    host = Host(system=_system(root), machine=_machine(root), kernel_modules=_modules(version))
    if isinstance(seen, Unread):
        return host
    kinds = {(gpu.name, gpu.compute_capability) for gpu in seen.gpus}
    if len(kinds) > 1 and one_kind:
        names = ", ".join(sorted(name for name, _ in kinds))
        raise InputError(f"this machine has GPUs of several kinds: {names}", hint="choose one with --gpu")
    name, capability = next(iter(kinds)) if len(kinds) == 1 else (None, None)
    return replace(host, driver=seen.driver, gpu=name, capability=capability)


def _system(root: Path) -> str | None:
    if "microsoft" in _text(root / "proc/version").lower():
        return WSL2
    return _SYSTEMS.get(platform.system())


def _machine(root: Path) -> str | None:
    # A file of Jetson Linux (L4T), which other systems on aarch64 don't have.
    if (root / "etc/nv_tegra_release").exists():
        return JETSON
    return _MACHINES.get(platform.machine())


def _modules(version: str) -> str | None:
    """Return the kind of the kernel modules by the first line of /proc/driver/nvidia/version."""
    if not version:
        return None
    return OPEN if "Open Kernel Module" in version else PROPRIETARY


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
