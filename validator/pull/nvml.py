"""What NVML, the driver's management library, says of this machine."""

from __future__ import annotations

import pynvml

from ..errors import MissingError
from ..model.versions import ComputeCapability, DriverRelease
from .host import Gpu, Host

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
