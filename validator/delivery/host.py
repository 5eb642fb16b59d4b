"""The host that an image will run on: its driver and its GPUs, as asked for or as NVML reports them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pynvml

from ..compat import gpus
from ..compat.drivers import parse_release
from ..compat.errors import UnknownGpu
from ..errors import InputError, MissingError
from ..model.spec import HostClass, host_identifier
from ..versions import ComputeCapability, DriverRelease

_CAPABILITY = re.compile(r"\d{1,2}\.\d|sm_\d{2,3}", re.IGNORECASE)


@dataclass(frozen=True)
class Gpu:
    """A GPU. name: as reported by the driver or given by a user; None if only the capability is known."""

    capability: ComputeCapability
    name: str | None = None

    def __str__(self) -> str:
        return f"{self.name} ({self.capability})" if self.name else f"compute capability {self.capability}"


@dataclass(frozen=True)
class Host:
    """A driver with at least one GPU. driver: a release, or a branch that a user asks about."""

    driver: DriverRelease
    gpus: tuple[Gpu, ...]

    @property
    def capabilities(self) -> tuple[ComputeCapability, ...]:
        """The compute capabilities without repetition, in ascending order."""
        return tuple(sorted({gpu.capability for gpu in self.gpus}))

    @property
    def classes(self) -> tuple[HostClass, ...]:
        """The host class of each kind of GPU, for predictions."""
        return tuple(dict.fromkeys(_class(self.driver, gpu) for gpu in self.gpus))

    @property
    def identifiers(self) -> frozenset[str]:
        """The names under which its kinds of GPU are measured, such as `r580-h100`."""
        branch = DriverRelease(self.driver.branch)
        return frozenset(
            host_identifier(branch, gpu.name and gpus.model_of(gpu.name), gpu.capability) for gpu in self.gpus
        )

    def __str__(self) -> str:
        counted = Counter(map(str, self.gpus))
        cards = ", ".join(f"{count} of {name}" if count > 1 else name for name, count in counted.items())
        return f"driver {self.driver} with {cards}"


def parse_driver(text: str) -> DriverRelease:
    """Parse the value of `--driver`. Raises InputError."""
    try:
        return parse_release(text)
    except ValueError as error:
        raise InputError(f"--driver: {error}") from None


def parse_gpus(texts: Sequence[str]) -> tuple[Gpu, ...]:
    """Parse the values of `--gpu`: names or compute capabilities. Raises InputError for unknown ones."""
    return tuple(_parse_gpu(text.strip()) for text in texts)


def _parse_gpu(text: str) -> Gpu:
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


_ASK = "describe a host with --driver and --gpu, for example --driver 535.183.01 --gpu a100"


def this_host() -> Host:
    """Ask NVML for the driver and GPUs of this machine. Raises MissingError if none is found or answers."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise _without_driver(error) from error
    try:
        driver = DriverRelease.parse(pynvml.nvmlSystemGetDriverVersion())
        found = tuple(_gpu(index) for index in range(pynvml.nvmlDeviceGetCount()))
    except (pynvml.NVMLError, ValueError) as error:
        raise MissingError(
            f"the NVIDIA driver on this machine does not report its version or GPUs: {error}", hint=_ASK
        ) from error
    finally:
        pynvml.nvmlShutdown()
    if not found:
        raise MissingError(
            f"the NVIDIA driver {driver} is installed, but it sees no GPU",
            hint=f"run `nvidia-smi -L`, or {_ASK}",
        )
    return Host(driver, found)


def _gpu(index: int) -> Gpu:
    device = pynvml.nvmlDeviceGetHandleByIndex(index)
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(device)
    return Gpu(ComputeCapability(major, minor), pynvml.nvmlDeviceGetName(device))


def _without_driver(error: pynvml.NVMLError) -> MissingError:
    """Explain why NVML did not start. Return codes: NVML API reference, nvmlReturn_t."""
    if error.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
        return MissingError(
            "this machine has no NVIDIA driver: libnvidia-ml.so.1, which is part of it, was not found",
            hint=_ASK,
        )
    if error.value == pynvml.NVML_ERROR_DRIVER_NOT_LOADED:
        return MissingError(
            "the NVIDIA driver is installed, but its kernel module is not loaded",
            hint=f"run `sudo modprobe nvidia` or restart the machine, or {_ASK}",
        )
    if error.value == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
        return MissingError(
            "the NVIDIA driver was updated, but the kernel still runs the older module",
            hint=f"restart the machine, or {_ASK}",
        )
    return MissingError(f"the NVIDIA driver on this machine does not answer: {error}", hint=_ASK)
