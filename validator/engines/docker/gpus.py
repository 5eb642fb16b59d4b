"""Find out if an engine offers GPUs, and request them for a container."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from docker.types import DeviceRequest

_CDI_ALL = "nvidia.com/gpu=all"


def offers_gpus(info: Mapping[str, Any]) -> bool:
    """Return True if an engine can provide NVIDIA GPUs to containers, according to `docker info`."""
    return bool(device_requests(info))


def device_requests(info: Mapping[str, Any]) -> list[DeviceRequest]:
    """Return the device requests for all GPUs; empty if the engine offers none.

    The nvidia runtime is preferred, because only it checks NVIDIA_REQUIRE_CUDA. The alternative is CDI:
    engines since 28.2 list the CDI devices that they found.
    """
    if "nvidia" in (info.get("Runtimes") or {}):
        return [DeviceRequest(count=-1, capabilities=[["gpu"]])]
    devices = {str(device.get("ID")) for device in info.get("DiscoveredDevices") or []}
    if _CDI_ALL in devices:
        return [DeviceRequest(driver="cdi", device_ids=[_CDI_ALL])]
    return []
