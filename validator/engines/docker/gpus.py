"""How an engine offers GPUs, and how a container asks for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from docker.types import DeviceRequest

_CDI_ALL = "nvidia.com/gpu=all"


def offers_gpus(info: Mapping[str, Any]) -> bool:
    """Whether an engine says, in `docker info`, that it can bring NVIDIA GPUs into containers."""
    return bool(device_requests(info))


def device_requests(info: Mapping[str, Any]) -> list[DeviceRequest]:
    """What a container asks for to get all GPUs; empty when the engine offers none.

    The nvidia runtime comes first: it alone checks NVIDIA_REQUIRE_CUDA. Engines from 28.2 on list the CDI
    devices they found, which is the other way to offer them.
    """
    if "nvidia" in (info.get("Runtimes") or {}):
        return [DeviceRequest(count=-1, capabilities=[["gpu"]])]
    devices = {str(device.get("ID")) for device in info.get("DiscoveredDevices") or []}
    if _CDI_ALL in devices:
        return [DeviceRequest(driver="cdi", device_ids=[_CDI_ALL])]
    return []
