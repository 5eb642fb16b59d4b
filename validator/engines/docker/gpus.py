"""Find out whether an engine offers GPUs, and request them for a container."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from docker.types import DeviceRequest

from ...errors import MissingError

_CDI = "nvidia.com/gpu="
_CDI_ALL = f"{_CDI}all"


def offers_gpus(info: Mapping[str, Any]) -> bool:
    """Return True if an engine can provide NVIDIA GPUs to containers, according to `docker info`."""
    return bool(device_requests(info))


def device_requests(info: Mapping[str, Any], uuids: Sequence[str] = ()) -> list[DeviceRequest]:
    """Return the device requests for these GPUs, or for all; empty if the engine offers none.

    The nvidia runtime is preferred, because only it checks NVIDIA_REQUIRE_CUDA. The alternative is CDI:
    engines since 28.2 list the CDI devices that they found. Raises MissingError if CDI has no devices that
    are named by UUID.
    """
    if "nvidia" in (info.get("Runtimes") or {}):
        chosen: dict[str, Any] = {"device_ids": list(uuids)} if uuids else {"count": -1}
        return [DeviceRequest(capabilities=[["gpu"]], **chosen)]
    devices = {str(device.get("ID")) for device in info.get("DiscoveredDevices") or []}
    if _CDI_ALL not in devices:
        return []
    asked = [f"{_CDI}{uuid}" for uuid in uuids] or [_CDI_ALL]
    if not devices.issuperset(asked):
        raise MissingError(
            "this machine has GPUs of several models, but its CDI devices are not named by UUID, so a"
            " container can't be given the GPUs of one model",
            hint="run `nvidia-ctk cdi generate --device-name-strategy=uuid --output=/etc/cdi/nvidia.yaml`",
        )
    return [DeviceRequest(driver="cdi", device_ids=asked)]
