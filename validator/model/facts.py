"""The machine and the Python environment, as the probe describes them.

docs/reference/report.md lists the fields with the descriptions that are here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from .codec import convert_what_fits


class Gpu(msgspec.Struct, frozen=True):
    """One GPU, from NVML or else from the CUDA driver."""

    name: Annotated[str | None, Meta(description="The model, as the driver names it.")] = None
    uuid: Annotated[str | None, Meta(description="Its identifier.")] = None
    compute_capability: Annotated[str | None, Meta(description="Such as `9.0`.")] = None
    memory_bytes: Annotated[int | None, Meta(description="Its memory.")] = None


class Cpu(msgspec.Struct, frozen=True):
    """The processor."""

    model: Annotated[str | None, Meta(description="As Linux names it.")] = None
    count: Annotated[int | None, Meta(description="How many the probe's process may use.")] = None


class DeviceNode(msgspec.Struct, frozen=True):
    """A device file of NVIDIA's driver or of WSL."""

    path: Annotated[str, Meta(description="Such as `/dev/nvidia0`.")] = ""
    device: Annotated[bool | None, Meta(description="Whether it is a character device.")] = None
    registered: Annotated[
        bool | None,
        Meta(
            description="Whether its major number is NVIDIA's in `/proc/devices`; null if it is not listed"
            " there."
        ),
    ] = None
    opens: Annotated[bool | None, Meta(description="Whether it opens for reading and writing.")] = None
    error: Annotated[str | None, Meta(description="Why it does not open.")] = None


class DriverLibrary(msgspec.Struct, frozen=True):
    """One of the driver's libraries, asked in a process of its own."""

    answered: Annotated[bool, Meta(description="Whether it loaded and answered.")] = False
    path: Annotated[str | None, Meta(description="The file that was loaded.")] = None
    error: Annotated[str | None, Meta(description="Why there is no answer.")] = None
    cuda: Annotated[
        str | None, Meta(description="The newest CUDA version that it supports. Missing if it did not say.")
    ] = None


class Nvml(DriverLibrary, frozen=True):
    """NVML."""

    driver: Annotated[str | None, Meta(description="The driver's release. Missing without an answer.")] = None


class CudaGpu(Gpu, frozen=True):
    """A GPU that this process may use, from the CUDA driver."""

    multiprocessors: Annotated[int | None, Meta(description="How many it has.")] = None


class CudaDriver(DriverLibrary, frozen=True):
    """The CUDA driver library."""

    code: Annotated[int | None, Meta(description="What `cuInit` returned.")] = None
    count: Annotated[int | None, Meta(description="Devices that this process may use.")] = None
    gpus: Annotated[
        tuple[CudaGpu, ...] | None,
        Meta(
            description="These devices: the fields of a GPU, and `multiprocessors`. Missing without an"
            " answer."
        ),
    ] = None


class DriverLibraries(msgspec.Struct, frozen=True):
    """The driver's libraries."""

    nvml: Annotated[Nvml, Meta(description="`libnvidia-ml.so.1`.")] = Nvml()
    cuda: Annotated[CudaDriver, Meta(description="`libcuda.so.1`.")] = CudaDriver()


class Host(msgspec.Struct, frozen=True):
    """The machine."""

    driver: Annotated[
        str | None, Meta(description="The driver's release, as NVML says it: `535.183.01`.")
    ] = None
    driver_cuda: Annotated[
        str | None,
        Meta(
            description="The newest CUDA version that the driver supports (`12.2`). If there is a cuda-compat"
            " library on the loader's path, that library's version."
        ),
    ] = None
    gpus: Annotated[
        tuple[Gpu, ...], Meta(description="The GPUs, from NVML, or otherwise from the CUDA driver.")
    ] = ()
    kernel_driver: Annotated[str | None, Meta(description="The release of the loaded kernel module.")] = None
    pci_gpus: Annotated[
        int | None,
        Meta(
            description="How many NVIDIA display or 3D controllers are on the PCI bus, with or without a"
            " driver; null if the bus can't be read."
        ),
    ] = None
    device_nodes: Annotated[tuple[DeviceNode, ...], Meta(description="The driver's device files.")] = ()
    driver_libraries: Annotated[DriverLibraries, Meta(description="The driver's libraries.")] = (
        DriverLibraries()
    )
    kernel: Annotated[str | None, Meta(description="The kernel's release.")] = None
    machine: Annotated[str | None, Meta(description="The processor's architecture.")] = None
    os: Annotated[str | None, Meta(description="The distribution.")] = None
    glibc: Annotated[str | None, Meta(description="The version of the C library.")] = None
    cpu: Annotated[Cpu | None, Meta(description="The processor.")] = None
    memory_bytes: Annotated[int | None, Meta(description="Physical memory.")] = None
    container: Annotated[
        str | None,
        Meta(description="`docker`, `podman`, `kubernetes`, `container` (another kind), or null."),
    ] = None
    wsl: Annotated[bool | None, Meta(description="Whether this is Windows Subsystem for Linux.")] = None

    @property
    def gpu_names(self) -> tuple[str, ...]:
        """The model of each GPU, in the probe's order."""
        return tuple(gpu.name or "unknown GPU" for gpu in self.gpus)


class Environment(msgspec.Struct, frozen=True):
    """The Python environment."""

    python: Annotated[str | None, Meta(description="The version of the interpreter.")] = None
    executable: Annotated[str | None, Meta(description="Its path.")] = None
    tensorflow: Annotated[
        str | None, Meta(description="The version of the installed distribution; null if there is none.")
    ] = None
    packages: Annotated[
        dict[str, str],
        Meta(
            description="The version of every distribution by normalized name. Two versions of one name are"
            " joined by a comma."
        ),
    ] = {}
    variables: Annotated[
        dict[str, str],
        Meta(
            description="Environment variables that change what TensorFlow, XLA, CUDA or the loader do,"
            " without any that look like credentials."
        ),
    ] = {}


def host_of(document: Mapping[str, Any]) -> Host:
    """Return the facts in a record or from an engine; a fact of an unexpected type is left out."""
    return convert_what_fits(document, Host)


def environment_of(document: Mapping[str, Any]) -> Environment:
    """Return the environment in a record's report; a value of an unexpected type is left out."""
    return convert_what_fits(document, Environment)
