"""The host that an image is wanted for: this one, as NVML tells, or one that is described."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ..compat.gpus import gpu as known_gpu
from ..errors import InputError, MissingError
from ..model.certificate import GpuFacts
from ..model.versions import ComputeCapability, DriverRelease

_ASK = "for another host, say --driver 580 --gpu h100"


@dataclass(frozen=True)
class Host:
    """driver: its release, or a branch alone where no more is known. gpus: at least one."""

    driver: DriverRelease
    gpus: tuple[GpuFacts, ...]

    @property
    def capabilities(self) -> tuple[ComputeCapability, ...]:
        """Of its GPUs, each kind once, the oldest first."""
        return tuple(sorted({gpu.capability for gpu in self.gpus}))

    def __str__(self) -> str:
        names = list(dict.fromkeys(f"{gpu.name} ({gpu.compute_capability})" for gpu in self.gpus))
        count = f"{len(self.gpus)} GPUs: " if len(self.gpus) > 1 else ""
        return f"driver {self.driver}, {count}{', '.join(names)}"


def described_host(driver: str, gpus: Sequence[str]) -> Host:
    """The host of a driver (`535`, `535.183.01`) and GPUs, by model (`a100`) or compute capability (`8.0`).

    Raises InputError for what is not known.
    """
    try:
        release = DriverRelease.parse(driver)
    except ValueError as error:
        raise InputError(f"--driver: {error}") from None
    return Host(release, tuple(_described(text) for text in gpus))


def this_host() -> Host:
    """What NVML says of this machine. Raises MissingError where it says nothing, or of no GPU."""
    import pynvml

    with _nvml(pynvml):
        driver = _text(pynvml.nvmlSystemGetDriverVersion())
        found = tuple(_gpu(pynvml, number) for number in range(pynvml.nvmlDeviceGetCount()))
    if not found:
        raise MissingError("the NVIDIA driver shows no GPU", hint=f"`nvidia-smi -L` lists them; {_ASK}")
    try:
        return Host(DriverRelease.parse(driver), found)
    except ValueError as error:
        raise MissingError(f"the driver's release can't be read: {error}", hint=_ASK) from None


@contextmanager
def _nvml(pynvml: Any) -> Iterator[None]:
    """NVML started and ended; its errors as ours."""
    try:
        pynvml.nvmlInit()
        try:
            yield
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError_LibraryNotFound as error:
        raise MissingError("there is no NVIDIA driver here (libnvidia-ml.so.1)", hint=_ASK) from error
    except pynvml.NVMLError as error:
        raise MissingError(
            f"the NVIDIA driver does not answer: {error}",
            hint=f"`python -m validator doctor` says why; {_ASK}",
        ) from error


def _gpu(pynvml: Any, number: int) -> GpuFacts:
    handle = pynvml.nvmlDeviceGetHandleByIndex(number)
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    return GpuFacts(_text(pynvml.nvmlDeviceGetName(handle)), f"{major}.{minor}")


def _text(value: str | bytes) -> str:
    # Older releases of the library give bytes.
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _described(text: str) -> GpuFacts:
    try:
        capability = ComputeCapability.parse(text)
    except ValueError:
        known = known_gpu(text)
        return GpuFacts(known.name, str(known.compute_capability))
    return GpuFacts(f"GPU of compute capability {capability}", str(capability))
