"""Give the command lines to the real programs, and ask them how they understood each value."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from validator.assemble.image import OciLayout
from validator.delivery.start import Place, Start, User, docker_command, podman_command
from validator.engines.endpoint import reach
from validator.errors import MissingError

from ...assemble.synthetic import Image, Layer
from ...loop import tiers
from . import starts
from .starts import HOSTILE, start


@pytest.fixture(scope="module")
@tiers.docker
def image() -> Iterator[str]:
    """Yield the id of an empty image."""
    try:
        reached = reach()
    except MissingError as error:
        pytest.skip(str(error))
    if not reached.is_local:
        pytest.skip("the engine is remote, so it does not have the directories of this machine")
    reached.quick.close()
    name = f"validator-test-empty:{os.getpid()}"
    archive = subprocess.run(["tar", "-c", "--files-from=/dev/null"], capture_output=True, check=True).stdout
    made = subprocess.run(["docker", "import", "-", name], input=archive, capture_output=True, check=True)
    yield made.stdout.decode().strip()
    subprocess.run(["docker", "image", "rm", "--force", name], capture_output=True)


def created(made: Start) -> dict[str, Any]:
    """Create the container, without starting it, and return what the engine says about it."""
    program, _, _, *words = docker_command(made)
    done = subprocess.run([program, "create", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    container = done.stdout.strip()
    try:
        [found] = json.loads(subprocess.check_output([program, "inspect", container]))
        return dict(found)
    finally:
        subprocess.run([program, "rm", container], capture_output=True, check=True)


def test_docker_understands_every_value(image: str, tmp_path: Path) -> None:
    directory = tmp_path / "a 'b' \"c\" $d:e,f\ng"
    directory.mkdir()
    variables = {f"V{number}": text for number, text in enumerate(HOSTILE)}
    local = starts.with_image(reference=image, place=Place.ENGINE)
    made = start(
        "h100", "h100",
        image=local, directory=directory, environment=variables, command=tuple(HOSTILE), terminal="-it",
    )  # fmt: skip
    found = created(made)
    assert found["Config"]["Cmd"] == HOSTILE
    assert set(found["Config"]["Env"]) >= {f"{name}={text}" for name, text in variables.items()}
    assert found["Config"]["User"] == "1000:100"
    assert found["Config"]["WorkingDir"] == "/workspace"
    host = found["HostConfig"]
    assert [(mount["Source"], mount["Target"]) for mount in host["Mounts"]] == [
        (str(directory), "/workspace")
    ]
    assert host["ShmSize"] == 1 << 30
    assert host["Ulimits"] == [{"Name": "memlock", "Hard": -1, "Soft": -1}]
    assert host["DeviceRequests"][0]["Count"] == -1
    assert host["DeviceRequests"][0]["Capabilities"] == [["gpu"]]


@pytest.fixture
@tiers.service
def storage() -> Iterator[list[str]]:
    """Yield the options that give Podman a storage of its own. Its path may have at most 50 characters."""
    if shutil.which("podman") is None:
        pytest.skip("podman is not installed (Debian package podman)")
    if os.getuid():
        pytest.skip("Podman's storage in a directory of a test needs root")
    with tempfile.TemporaryDirectory(prefix="podman-", dir="/tmp") as directory:
        yield [f"--root={directory}/graph", f"--runroot={directory}/run", "--storage-driver=vfs"]


def test_podman_understands_every_value(storage: list[str], tmp_path: Path) -> None:
    archive = subprocess.run(["tar", "-c", "--files-from=/dev/null"], capture_output=True, check=True).stdout
    imported = ["podman", *storage, "import", "--quiet", "-"]
    image = subprocess.run(imported, input=archive, capture_output=True, check=True).stdout.decode().strip()
    directory = tmp_path / "a 'b' \"c\" $d:e,f"
    directory.mkdir()
    variables = {f"V{number}": text for number, text in enumerate(HOSTILE)}
    made = start(
        "h100", "h100",
        image=starts.with_image(reference=image), user=User(0, 0), directory=directory,
        environment=variables, command=tuple(HOSTILE),
    )  # fmt: skip
    # A machine without GPUs has no such device.
    program, _, _, *words = podman_command(made)
    at = words.index("--device")
    del words[at : at + 2]
    done = subprocess.run([program, *storage, "create", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    [found] = json.loads(subprocess.check_output([program, *storage, "inspect", done.stdout.strip()]))
    assert found["Config"]["Cmd"] == HOSTILE
    assert set(found["Config"]["Env"]) >= {f"{name}={text}" for name, text in variables.items()}
    assert [(mount["Source"], mount["Destination"]) for mount in found["Mounts"]] == [
        (str(directory), "/workspace")
    ]
    assert found["HostConfig"]["ShmSize"] == 1 << 30


def test_podman_starts_the_images_of_an_oci_layout(storage: list[str], tmp_path: Path) -> None:
    """Also a second one, although Podman 4.3 gives both copies the name of the directory."""
    directory = tmp_path / "images"
    tags = ("2.21.0-cuda12.5-cudnn9.3-py3.12_jupyter", "2.20.0-cpu-py3.12")
    for seed, tag in enumerate(tags):
        Image((Layer(seed, 100),), (("tag", tag),)).send(OciLayout(directory, tag))
    for tag in (*tags, tags[0]):
        made = start(
            image=starts.with_image(reference=f"{directory}:{tag}", place=Place.LAYOUT),
            host=None, devices=None, user=User(0, 0), command=("/none", "two words"),
        )  # fmt: skip
        program, _, _, *words = podman_command(made)
        done = subprocess.run([program, *storage, "create", *words], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        created = done.stdout.split()[-1]
        [found] = json.loads(subprocess.check_output([program, *storage, "inspect", created]))
        assert found["Config"]["Cmd"] == ["/none", "two words"]
        assert found["Config"]["Labels"]["tag"] == tag
