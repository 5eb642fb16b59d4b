"""Test the file for Docker Compose: what it requests, how Compose reads it, and what it starts."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given

from validator.delivery.formats import write_compose
from validator.delivery.start import Devices, Place, User

from . import starts
from .starts import HOSTILE, start


def read(text: str) -> dict[str, Any]:
    """Parse a file as YAML, and undo the escapes of Compose; a variable that it would replace is an error."""

    def plain(value: Any) -> Any:
        if isinstance(value, str):
            assert not re.search(r"(?<!\$)(?:\$\$)*\$(?!\$)", value), value
            return value.replace("$$", "$")
        if isinstance(value, list):
            return [plain(item) for item in value]
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        return value

    document = plain(yaml.safe_load(text))
    [(_, service)] = document["services"].items()
    return dict(service)


def test_the_gpus_are_requested_as_the_engine_offers_them() -> None:
    def devices(**changes: Any) -> Any:
        return read(write_compose(start(**changes)))["deploy"]["resources"]["reservations"]["devices"]

    assert devices() == [{"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}]
    assert devices(devices=Devices.CDI)[0]["device_ids"] == ["nvidia.com/gpu=all"]
    assert "deploy" not in read(write_compose(start(host=None, devices=None)))


def test_several_gpus_need_pinned_memory_unless_the_engine_is_rootless() -> None:
    assert read(write_compose(start("h100", "h100")))["ulimits"] == {"memlock": -1}
    assert "ulimits" not in read(write_compose(start("h100")))
    assert "ulimits" not in read(write_compose(start("h100", "h100", user=User(1000, 100, rootless=True))))


def test_files_in_a_mounted_directory_belong_to_the_user() -> None:
    found = read(write_compose(start(directory=Path("/home/me"))))
    assert (found["user"], found["working_dir"]) == ("1000:100", "/workspace")
    assert found["environment"]["CUDA_CACHE_PATH"] == "/workspace/.cache/cuda"
    assert (
        read(write_compose(start(directory=Path("/d"), user=User(1000, 100, rootless=True))))["user"] == "0:0"
    )


def test_a_local_image_is_never_pulled() -> None:
    assert read(write_compose(start(image=starts.with_image(place=Place.ENGINE))))["pull_policy"] == "never"
    assert "pull_policy" not in read(write_compose(start()))


def test_the_image_s_own_command_gets_a_terminal_and_its_port() -> None:
    jupyter = starts.with_image(port=8888)
    found = read(write_compose(start(image=jupyter)))
    assert (found["tty"], found["stdin_open"], found["ports"]) == (True, True, ["127.0.0.1:8888:8888"])
    found = read(write_compose(start(image=jupyter, command=("python",))))
    assert not found.keys() & {"tty", "stdin_open", "ports"}


@given(starts.directories, starts.commands, starts.variables)
def test_every_value_survives(directory: Path, command: tuple[str, ...], variables: dict[str, str]) -> None:
    found = read(write_compose(start(directory=directory, command=command, environment=variables)))
    assert found["volumes"] == [{"type": "bind", "source": str(directory), "target": "/workspace"}]
    assert found.get("command", []) == list(command)
    assert found["environment"].items() >= variables.items()


@pytest.mark.engine
def test_compose_reads_the_file_as_intended(tmp_path: Path) -> None:
    program = ["docker", "compose"]
    if subprocess.run([*program, "version"], capture_output=True).returncode:
        pytest.skip("Docker Compose is not installed")
    directory = Path("/tmp", "a 'b' \"c\" $d:e,f#g\n{h}")
    made = start(
        "h100", "h100",
        directory=directory,
        command=tuple(HOSTILE),
        environment={f"V{number}": text for number, text in enumerate(HOSTILE)},
    )  # fmt: skip
    file = tmp_path / "compose.yaml"
    file.write_text(write_compose(made), encoding="utf-8")
    done = subprocess.run(
        [*program, "-f", str(file), "config", "--format", "json"],
        capture_output=True, text=True, env={**os.environ, "HOME": "/changed", "d": "changed"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    # The answer is a file for Compose again, with its escapes.
    found = read(done.stdout)
    assert found["command"] == HOSTILE
    assert found["volumes"][0]["source"] == str(directory)
    assert found["environment"].items() >= dict(made.environment).items()
    assert found["image"] == made.image.reference
    assert found["shm_size"] == str(1 << 30)
    [device] = json.loads(done.stdout)["services"]["tensorflow"]["deploy"]["resources"]["reservations"][
        "devices"
    ]
    assert device == {"capabilities": ["gpu"], "count": -1, "driver": "nvidia"}
