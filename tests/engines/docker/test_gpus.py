"""The GPUs that a container gets, and what the engine's host can say about them."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from validator.engines.containers import device_requests, offers_gpus
from validator.engines.docker import DockerEngine
from validator.errors import MissingError
from validator.model.record import Outside, Unread

RUNTIME: dict[str, Any] = {"Runtimes": {"runc": {}, "nvidia": {}}}
CDI_BY_UUID = {
    "DiscoveredDevices": [{"ID": f"nvidia.com/gpu={name}"} for name in ("all", "0", "GPU-a", "GPU-b")]
}
CDI_BY_INDEX = {"DiscoveredDevices": [{"ID": f"nvidia.com/gpu={name}"} for name in ("all", "0", "1")]}


@pytest.mark.parametrize(
    ("info", "uuids", "expected"),
    [
        ({}, (), []),
        ({}, ("GPU-a",), []),
        (RUNTIME, (), [{"Count": -1, "DeviceIDs": []}]),
        (RUNTIME, ("GPU-a", "GPU-b"), [{"Count": 0, "DeviceIDs": ["GPU-a", "GPU-b"]}]),
        (CDI_BY_INDEX, (), [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=all"]}]),
        (CDI_BY_UUID, ("GPU-b",), [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=GPU-b"]}]),
    ],
)
def test_a_container_gets_all_gpus_or_those_that_are_named(
    info: Mapping[str, Any], uuids: tuple[str, ...], expected: list[dict[str, Any]]
) -> None:
    found = device_requests(info, uuids)
    assert [
        {key: request[key] for key in want} for request, want in zip(found, expected, strict=True)
    ] == expected
    assert offers_gpus(info) is bool(expected)


def test_cdi_devices_without_uuids_can_not_be_told_apart() -> None:
    with pytest.raises(MissingError, match="not named by UUID") as caught:
        device_requests(CDI_BY_INDEX, ("GPU-a",))
    assert caught.value.hint and "--device-name-strategy=uuid" in caught.value.hint


SEEN = Outside("580.65.06", "580.65.06", ())
HERE = {**RUNTIME, "KernelVersion": platform.release(), "OperatingSystem": "Debian GNU/Linux 12"}


@pytest.mark.parametrize(
    ("info", "local", "expected"),
    [
        (HERE, True, SEEN),
        ({**HERE, "Runtimes": {"runc": {}}}, True, Unread.NO_GPU_OFFERED),
        (HERE, False, Unread.OTHER_MACHINE),
        # A socket that is forwarded from another machine.
        ({**HERE, "KernelVersion": "5.15.0-other"}, True, Unread.OTHER_MACHINE),
        ({**HERE, "KernelVersion": None}, True, Unread.OTHER_MACHINE),
        ({**HERE, "OperatingSystem": "Docker Desktop"}, True, Unread.VIRTUAL_MACHINE),
    ],
)
def test_the_host_is_read_only_where_the_engine_runs(
    info: Mapping[str, Any], local: bool, expected: Outside | Unread
) -> None:
    engine = DockerEngine.__new__(DockerEngine)
    engine._endpoint = SimpleNamespace(info=info, is_local=local)  # type: ignore[assignment]
    engine._read_host = lambda: SEEN
    assert engine.outside() == expected
