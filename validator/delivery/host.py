"""The host that an image is to run on: its driver and its GPUs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pynvml

from ..compat import gpus
from ..compat.unknown import UnknownGpu
from ..errors import InputError, MissingError
from ..model.spec import HostClass, host_identifier
from ..versions import ComputeCapability, DriverRelease

_CAPABILITY = re.compile(r"\d{1,2}\.\d|sm_\d{2,3}", re.IGNORECASE)


@dataclass(frozen=True)
class Gpu:
    """A GPU. name: as the driver or a person calls it; None where only the capability is known."""

    capability: ComputeCapability
    name: str | None = None

    def __str__(self) -> str:
        return f"{self.name} ({self.capability})" if self.name else f"compute capability {self.capability}"


@dataclass(frozen=True)
class Host:
    """driver: a release, or a branch that somebody asks about. gpus: at least one."""

    driver: DriverRelease
    gpus: tuple[Gpu, ...]

    @property
    def capabilities(self) -> tuple[ComputeCapability, ...]:
        """Each once, the least first."""
        return tuple(sorted({gpu.capability for gpu in self.gpus}))

    @property
    def classes(self) -> tuple[HostClass, ...]:
        """The host class of every kind of GPU here, as predictions take it."""
        return tuple(dict.fromkeys(_class(self.driver, gpu) for gpu in self.gpus))

    def __str__(self) -> str:
        counted = Counter(map(str, self.gpus))
        cards = ", ".join(f"{count} of {name}" if count > 1 else name for name, count in counted.items())
        return f"driver {self.driver} with {cards}"


def asked_driver(text: str) -> DriverRelease:
    """Of `--driver`. Raises InputError."""
    try:
        return DriverRelease.parse(text)
    except ValueError as error:
        raise InputError(f"--driver: {error}") from None


def asked_gpus(texts: Sequence[str]) -> tuple[Gpu, ...]:
    """Of `--gpu`: names, or compute capabilities. Raises InputError for what is not known."""
    return tuple(_asked_gpu(text.strip()) for text in texts)


def _asked_gpu(text: str) -> Gpu:
    if _CAPABILITY.fullmatch(text):
        return Gpu(ComputeCapability.parse(text))
    known = gpus.gpu(text)
    return Gpu(known.compute_capability, known.name)


def _class(driver: DriverRelease, gpu: Gpu) -> HostClass:
    model = _slug(gpu.name)
    return HostClass(host_identifier(driver, model, gpu.capability), driver, gpu.capability, model)


def _slug(name: str | None) -> str | None:
    if name is None:
        return None
    try:
        return gpus.gpu(name).slug
    except UnknownGpu:
        return None


# What NVML, the driver's management library, says of this machine.

_ASK = "ask about a host with --driver and --gpu, such as --driver 535.183.01 --gpu a100"


def this_host() -> Host:
    """The driver and the GPUs of this machine. Raises MissingError where there are none, or none answer."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise _without_driver(error) from error
    try:
        driver = DriverRelease.parse(pynvml.nvmlSystemGetDriverVersion())
        found = tuple(_gpu(index) for index in range(pynvml.nvmlDeviceGetCount()))
    except (pynvml.NVMLError, ValueError) as error:
        raise MissingError(f"the NVIDIA driver here does not say what it has: {error}", hint=_ASK) from error
    finally:
        pynvml.nvmlShutdown()
    if not found:
        raise MissingError(
            f"the NVIDIA driver {driver} is here, but it has no GPU", hint=f"`nvidia-smi -L`; or {_ASK}"
        )
    return Host(driver, found)


def _gpu(index: int) -> Gpu:
    device = pynvml.nvmlDeviceGetHandleByIndex(index)
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(device)
    return Gpu(ComputeCapability(major, minor), pynvml.nvmlDeviceGetName(device))


def _without_driver(error: pynvml.NVMLError) -> MissingError:
    """Return codes: NVML API reference, nvmlReturn_t."""
    if error.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
        return MissingError("no NVIDIA driver here: it would bring libnvidia-ml.so.1", hint=_ASK)
    if error.value == pynvml.NVML_ERROR_DRIVER_NOT_LOADED:
        return MissingError(
            "the NVIDIA driver is installed here, but its kernel module is not loaded",
            hint=f"`sudo modprobe nvidia`, or restart the machine; or {_ASK}",
        )
    if error.value == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
        return MissingError(
            "the NVIDIA driver was updated, and its kernel module is still the older one",
            hint=f"restart the machine; or {_ASK}",
        )
    return MissingError(f"the NVIDIA driver here does not answer: {error}", hint=_ASK)
