"""Test the docker run line: the flags that a host needs, and how a shell and docker parse it."""

from __future__ import annotations

import csv
import shlex
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validator.delivery.run import Devices, Mount, command_line, devices_of, flags
from validator.errors import MissingError

from .values import host

RUNTIME: dict[str, object] = {"Runtimes": {"runc": {}, "nvidia": {}}}
CDI: dict[str, object] = {
    "Runtimes": {"runc": {}},
    "DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=all"}],
}
IMAGE = "localhost:5000/team/tf@sha256:" + "0" * 64


def words(*gpus: str, terminal: str = "", mount: Mount | None = None) -> list[str]:
    found = flags(host("580", *gpus), Devices.GPUS, terminal=terminal, mount=mount)
    assert all(flag.why for flag in found)
    return command_line(found, IMAGE, ["python", "train.py"])


@pytest.mark.parametrize(
    ("info", "devices"),
    [
        (RUNTIME, Devices.GPUS),
        (CDI, Devices.CDI),
        (RUNTIME | {"DiscoveredDevices": CDI["DiscoveredDevices"]}, Devices.GPUS),
    ],
)
def test_gpus_are_requested_as_the_engine_offers_them(info: dict[str, object], devices: Devices) -> None:
    assert devices_of(info) is devices


@pytest.mark.parametrize(
    "info", [{}, {"Runtimes": {"runc": {}}, "CDISpecDirs": ["/etc/cdi"]}, CDI | {"DiscoveredDevices": None}]
)
def test_an_engine_without_gpus_is_an_error(info: dict[str, object]) -> None:
    with pytest.raises(MissingError, match="offers no GPUs") as caught:
        devices_of(info)
    assert "nvidia-ctk" in str(caught.value.hint) and "--devices" in str(caught.value.hint)


def test_one_gpu_needs_few_flags() -> None:
    assert words("h100") == ["docker", "run", "--rm", "--gpus", "all", IMAGE, "python", "train.py"]


def test_several_gpus_need_shared_memory() -> None:
    several = words("h100", "h100", terminal="-it")
    assert several == [
        "docker", "run", "--rm", "-it", "--gpus", "all", "--shm-size", "1g", "--ulimit", "memlock=-1", IMAGE,
        "python", "train.py",
    ]  # fmt: skip


def test_cdi_devices() -> None:
    found = flags(host(), Devices.CDI, terminal="", mount=None)
    assert command_line(found, IMAGE, [])[3:5] == ["--device", "nvidia.com/gpu=all"]


@pytest.mark.parametrize(
    ("info", "user"),
    [({}, "1000:100"), ({"SecurityOptions": ["name=seccomp,profile=builtin", "name=rootless"]}, "0:0")],
)
def test_files_in_a_mounted_directory_belong_to_the_user(info: dict[str, object], user: str) -> None:
    line = words("h100", mount=Mount.of(Path("/home/me"), info, 1000, 100))
    assert line[line.index("--mount") + 1] == "type=bind,source=/home/me,target=/workspace"
    assert line[line.index("--workdir") + 1] == "/workspace"
    assert line[line.index("--user") + 1] == user
    # Otherwise the home directory of a user whom the image does not know is /, where nothing can be written.
    assert line[line.index("--env") + 1] == "HOME=/tmp"


def test_a_port_is_published_on_this_machine_only() -> None:
    found = flags(host(), Devices.GPUS, terminal="", mount=None, port=8888)
    line = command_line(found, IMAGE, [])
    assert line[line.index("--publish") + 1] == "127.0.0.1:8888:8888"


paths = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0\r"), min_size=1).map(
    lambda name: Path("/", name.replace("/", "_"))
)


@given(paths, st.lists(st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"))))
def test_a_shell_and_docker_parse_the_line_as_intended(directory: Path, command: list[str]) -> None:
    found = flags(host(), Devices.GPUS, terminal="", mount=Mount(directory, "1:1"))
    line = command_line(found, IMAGE, command)
    assert shlex.split(shlex.join(line)) == line
    assert line[len(line) - len(command) :] == command
    value = line[line.index("--mount") + 1]
    assert list(csv.reader(StringIO(value, newline=""), strict=True)) == [
        ["type=bind", f"source={directory}", "target=/workspace"]
    ]
