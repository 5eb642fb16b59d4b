"""The machine and the Python environment, as the probe describes them (docs/reference/report.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from .codec import convert_what_fits


class Gpu(msgspec.Struct, frozen=True):
    """One GPU, from NVML or else from the CUDA driver. compute_capability: `9.0`."""

    name: str | None = None
    uuid: str | None = None
    compute_capability: str | None = None
    memory_bytes: int | None = None


class Cpu(msgspec.Struct, frozen=True):
    """The processor. count: how many the probe's process may use."""

    model: str | None = None
    count: int | None = None


class DeviceNode(msgspec.Struct, frozen=True):
    """A device file.

    device: it is a character device. registered: its major number is NVIDIA's in `/proc/devices`; None where
    that isn't listed. opens: for reading and writing.
    """

    path: str = ""
    device: bool | None = None
    registered: bool | None = None
    opens: bool | None = None
    error: str | None = None


class DriverLibrary(msgspec.Struct, frozen=True):
    """One of the driver's libraries, asked in a process of its own. path: where it was loaded from."""

    answered: bool = False
    path: str | None = None
    error: str | None = None


class DriverLibraries(msgspec.Struct, frozen=True):
    """`libnvidia-ml.so.1` and `libcuda.so.1`."""

    nvml: DriverLibrary = DriverLibrary()
    cuda: DriverLibrary = DriverLibrary()


class Host(msgspec.Struct, frozen=True):
    """The machine.

    driver: the driver's release as NVML says, `535.183.01`. driver_cuda: the newest CUDA that it supports.
    kernel_driver: the release of the loaded kernel module. container: `docker`, `podman`, `kubernetes`,
    `container`, or None.
    """

    driver: str | None = None
    driver_cuda: str | None = None
    gpus: tuple[Gpu, ...] = ()
    kernel_driver: str | None = None
    device_nodes: tuple[DeviceNode, ...] = ()
    driver_libraries: DriverLibraries = DriverLibraries()
    kernel: str | None = None
    machine: str | None = None
    os: str | None = None
    glibc: str | None = None
    cpu: Cpu | None = None
    memory_bytes: int | None = None
    container: str | None = None
    wsl: bool | None = None

    @property
    def gpu_names(self) -> tuple[str, ...]:
        """The model of each GPU, in the probe's order."""
        return tuple(gpu.name or "unknown GPU" for gpu in self.gpus)


class Environment(msgspec.Struct, frozen=True):
    """The Python environment. packages: version by normalized name. variables: those that matter here."""

    python: str | None = None
    executable: str | None = None
    tensorflow: str | None = None
    packages: dict[str, str] = {}
    variables: dict[str, str] = {}


def host_of(document: Mapping[str, Any]) -> Host:
    """Return the facts in a record or from an engine; a fact of an unexpected type is left out."""
    return convert_what_fits(document, Host)


def environment_of(document: Mapping[str, Any]) -> Environment:
    """Return the environment in a record's report; a value of an unexpected type is left out."""
    return convert_what_fits(document, Environment)
