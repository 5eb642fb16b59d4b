"""Test the lines of docker and podman: the flags that a host needs, and how they are parsed."""

from __future__ import annotations

import argparse
import csv
import shlex
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from validator.delivery.start import (
    Devices,
    Place,
    Start,
    User,
    devices_of,
    docker_command,
    podman_command,
    user_of,
    write_docker,
    write_podman,
)
from validator.errors import InputError, MissingError

from . import starts
from .starts import IMAGE, start

RUNTIME: dict[str, object] = {"Runtimes": {"runc": {}, "nvidia": {}}}
CDI: dict[str, object] = {
    "Runtimes": {"runc": {}},
    "DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=all"}],
}
ROOTLESS: dict[str, object] = {"SecurityOptions": ["name=seccomp,profile=builtin", "name=rootless"]}
WRITERS = {"docker": (write_docker, docker_command), "podman": (write_podman, podman_command)}


def parse(line: list[str]) -> argparse.Namespace:
    """Parse a line by the rules of both programs: flags up to the image, then the command."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("program")
    parser.add_argument("verb")
    for name in ("rm", "i", "it"):
        parser.add_argument(f"--{name}" if name == "rm" else f"-{name}", action="store_true")
    for name in ("gpus", "shm-size", "user", "workdir", "userns", "tls-verify"):
        parser.add_argument(f"--{name}")
    for name in ("device", "mount", "env", "publish", "ulimit", "security-opt"):
        parser.add_argument(f"--{name}", action="append", default=[])
    at = next(number for number, word in enumerate(line) if word == IMAGE.reference)
    found = parser.parse_args(line[:at])
    found.command = line[at + 1 :]
    return found


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
    "info", [{}, {"Runtimes": {"runc": {}, "CDISpecDirs": ["/etc/cdi"]}}, CDI | {"DiscoveredDevices": None}]
)
def test_an_engine_without_gpus_is_an_error(info: dict[str, object]) -> None:
    with pytest.raises(MissingError, match="offers no GPUs") as caught:
        devices_of(info)
    assert "nvidia-ctk" in str(caught.value.hint) and "--devices" in str(caught.value.hint)


def test_one_gpu_needs_few_flags() -> None:
    assert docker_command(start(command=("python", "train.py"))) == [
        "docker", "run", "--rm", "--gpus", "all", "--shm-size", "1g", IMAGE.reference, "python", "train.py",
    ]  # fmt: skip
    assert podman_command(start(command=("python",))) == [
        "podman", "run", "--rm", "--device", "nvidia.com/gpu=all", "--security-opt", "label=disable",
        "--shm-size", "1g", IMAGE.reference, "python",
    ]  # fmt: skip


def test_an_image_without_cuda_needs_no_gpu_flags() -> None:
    for command in (docker_command, podman_command):
        assert command(start(host=None, devices=None))[2:] == ["--rm", IMAGE.reference]


def test_several_gpus_need_pinned_memory_that_only_root_can_give() -> None:
    assert parse(docker_command(start("h100", "h100", terminal="-it"))).ulimit == ["memlock=-1"]
    assert parse(podman_command(start("h100", "h100", user=User(0, 0)))).ulimit == ["memlock=-1"]
    assert parse(docker_command(start("h100", "h100", user=User(1000, 100, rootless=True)))).ulimit == []
    assert parse(podman_command(start("h100", "h100"))).ulimit == []


def test_cdi_devices() -> None:
    found = parse(docker_command(start(devices=Devices.CDI)))
    assert (found.device, found.gpus) == (["nvidia.com/gpu=all"], None)


@pytest.mark.parametrize(("info", "user"), [({}, "1000:100"), (ROOTLESS, "0:0")])
def test_files_in_a_mounted_directory_belong_to_the_user(info: dict[str, object], user: str) -> None:
    made = start(directory=Path("/home/me"), user=user_of(info, 1000, 100))
    found = parse(docker_command(made))
    assert found.mount == ["type=bind,source=/home/me,target=/workspace"]
    assert (found.workdir, found.user) == ("/workspace", user)
    # Otherwise the home directory of a user whom the image does not know is /, where nothing can be written.
    assert "HOME=/tmp" in found.env
    assert "CUDA_CACHE_PATH=/workspace/.cache/cuda" in found.env
    assert "KERAS_HOME=/workspace/.cache/keras" in found.env


@pytest.mark.parametrize(("uid", "userns"), [(1000, "keep-id"), (0, None)])
def test_podman_keeps_the_number_of_a_user_who_is_not_root(uid: int, userns: str | None) -> None:
    found = parse(podman_command(start(directory=Path("/home/me"), user=User(uid, 100))))
    assert (found.userns, found.user) == (userns, f"{uid}:100")


def test_a_port_is_published_on_this_machine_only() -> None:
    jupyter = start(image=starts.with_image(port=8888))
    assert parse(docker_command(jupyter)).publish == ["127.0.0.1:8888:8888"]
    other = start(image=starts.with_image(port=8888), command=("python",))
    assert parse(docker_command(other)).publish == []


def test_podman_connects_without_tls_only_to_a_registry_that_has_none() -> None:
    assert parse(podman_command(start(image=starts.with_image(plain_http=True)))).tls_verify == "false"
    assert parse(podman_command(start())).tls_verify is None


@pytest.mark.parametrize(
    ("directory", "older"), [("/srv/images-1/tf", True), ("/srv/My images", False), ("/srv/a--b__c", True)]
)
def test_podman_copies_an_image_of_an_oci_layout(directory: str, older: bool) -> None:
    image = starts.with_image(place=Place.LAYOUT, reference=f"{directory}:1")
    made = start(image=image, command=("python",))
    assert podman_command(made)[-2:] == [f"oci:{directory}:1", "python"]
    assert "# oci: Podman copies the image from this directory" in write_podman(made)
    assert ("Podman 4.3 takes the directory as the name" not in write_podman(made)) == older


def test_a_variable_of_the_user_replaces_ours() -> None:
    found = parse(docker_command(start(directory=Path("/d"), environment={"HOME": "/mine"})))
    assert [text for text in found.env if text.startswith("HOME=")] == ["HOME=/mine"]


@pytest.mark.parametrize("program", WRITERS)
def test_the_comments_give_the_reason_for_each_flag(program: str) -> None:
    write, command = WRITERS[program]
    made = start(
        "h100", "h100", directory=Path("/d"), user=User(0, 0), environment={"A": "b c"}, terminal="-it"
    )
    *notes, line = write(made).splitlines()
    assert shlex.split(line) == command(made)
    told = " ".join(note.removeprefix("# ") for note in notes)
    assert all(note.startswith("# ") for note in notes)
    for flag in ("--rm: ", "-it: ", "--shm-size 1g: ", "--ulimit memlock=-1: ", "--env 'A=b c': you set"):
        assert flag in told
    assert IMAGE.name in told and IMAGE.standing[0] in told and "NOT CERTIFIED" not in told


@pytest.mark.parametrize("program", WRITERS)
@given(starts.directories, starts.commands, starts.variables)
def test_a_shell_and_the_program_parse_the_line_as_intended(
    program: str, directory: Path, command: tuple[str, ...], variables: dict[str, str]
) -> None:
    made = start(directory=directory, command=command, environment=variables)
    words = shlex.split(WRITERS[program][0](made), comments=True)
    assert words == WRITERS[program][1](made)
    found = parse(words)
    assert tuple(found.command) == command
    assert dict(text.split("=", 1) for text in found.env).items() >= variables.items()
    assert list(csv.reader(StringIO(found.mount[0], newline=""), strict=True)) == [
        ["type=bind", f"source={directory}", "target=/workspace"]
    ]


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"directory": Path("/a\x1b[31m")}, "current directory contains the character U\\+001B"),
        ({"directory": Path("/a\r")}, "U\\+000D"),
        (
            {"image": starts.with_image(place=Place.LAYOUT, reference="/a\x1b:1")},
            "the path of the OCI layout contains the character U\\+001B",
        ),
        ({"command": ("a\u202eb",)}, "the command contains the character U\\+202E"),
        ({"environment": {"A": "\0"}}, "the value of A contains the character U\\+0000"),
        ({"environment": {"A": "\udcff"}}, "U\\+DCFF"),
        ({"environment": {"A B": "x"}}, "'A B' is not the name"),
        ({"environment": {"": "x"}}, "'' is not the name"),
    ],
)
def test_what_a_file_cannot_show_is_rejected(changes: dict[str, Any], what: str) -> None:
    with pytest.raises(InputError, match=what):
        start(**changes)


def test_nothing_in_a_standing_leaves_the_comment() -> None:
    evil = starts.with_image(name="x\nrm -rf /\n\x1b[2J\u2028touch y", standing=("a\r\nid\n",))
    made: Start = start(image=evil)
    assert [line for line in write_docker(made).splitlines() if not line.startswith("# ")] == [
        shlex.join(docker_command(made))
    ]
