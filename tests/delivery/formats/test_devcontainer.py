"""Test the devcontainer.json: that it is one, and that the image's own user gets the user's number."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given

from validator.assemble.configuration import USER_NAME
from validator.delivery.formats import write_devcontainer
from validator.delivery.start import Devices, Place, User
from validator.errors import InputError

from . import starts
from .starts import start

#: The types of the properties that are written, by https://containers.dev/implementors/json_reference.
TYPES: dict[str, type | tuple[type, ...]] = {
    "name": str, "image": str, "remoteUser": str, "containerUser": str, "updateRemoteUserUID": bool,
    "hostRequirements": dict, "runArgs": list, "containerEnv": dict, "postStartCommand": (str, list, dict),
    "forwardPorts": list, "customizations": dict,
}  # fmt: skip
#: A text or a comment.
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)


def read(text: str) -> dict[str, Any]:
    """Parse JSON with comments. A key that is written twice is an error."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len({key for key, _ in pairs}) == len(pairs)
        return dict(pairs)

    plain = TOKEN.sub(lambda match: match[0] if match[0].startswith('"') else "", text)
    document = json.loads(plain, object_pairs_hook=once)
    for name, value in document.items():
        assert isinstance(value, TYPES[name]), name
    assert all(isinstance(word, str) for word in document.get("runArgs", []))
    assert all(isinstance(value, str) for value in document["containerEnv"].values())
    return dict(document)


def test_the_image_s_user_gets_the_number_of_the_user() -> None:
    found = read(write_devcontainer(start()))
    assert found["image"] == starts.IMAGE.reference
    # The tool only changes a user that it knows by name, and that may not be root.
    assert (found["remoteUser"], found["containerUser"]) == (USER_NAME, USER_NAME)
    assert found["updateRemoteUserUID"] is True
    foreign = read(write_devcontainer(start(image=starts.with_image(checks_host=False))))
    assert not foreign.keys() & {"remoteUser", "containerUser", "postStartCommand"}


def test_an_image_of_the_local_engine_is_named_by_its_tag() -> None:
    """The tool derives an image from it, and BuildKit looks for an id in a registry."""
    image = starts.with_image(place=Place.ENGINE, reference="sha256:1", name="me/tf", tag="me/tf:latest")
    assert read(write_devcontainer(start(image=image)))["image"] == "me/tf:latest"
    untagged = starts.with_image(place=Place.ENGINE, reference="sha256:1", name="1a2b")
    with pytest.raises(InputError, match="1a2b has no tag in the local Docker Engine") as caught:
        write_devcontainer(start(image=untagged))
    assert "docker tag 1a2b NAME:TAG" in str(caught.value.hint)


def test_the_gpus_are_requested_once() -> None:
    """The tool adds `--gpus all` by itself, but only if the engine has the nvidia runtime."""
    found = read(write_devcontainer(start()))
    assert (found["hostRequirements"], found["runArgs"]) == ({"gpu": True}, ["--shm-size", "1g"])
    found = read(write_devcontainer(start(devices=Devices.CDI)))
    assert found["hostRequirements"] == {"gpu": "optional"}
    assert found["runArgs"][:2] == ["--device", "nvidia.com/gpu=all"]
    found = read(write_devcontainer(start(host=None, devices=None)))
    assert not found.keys() & {"hostRequirements", "runArgs"}


def test_several_gpus_need_pinned_memory_unless_the_engine_is_rootless() -> None:
    assert read(write_devcontainer(start("h100", "h100")))["runArgs"][-2:] == ["--ulimit", "memlock=-1"]
    rootless = start("h100", "h100", user=User(1000, 100, rootless=True))
    assert "--ulimit" not in read(write_devcontainer(rootless))["runArgs"]


def test_the_caches_are_in_the_workspace() -> None:
    variables = read(write_devcontainer(start()))["containerEnv"]
    assert variables["CUDA_CACHE_PATH"] == "${containerWorkspaceFolder}/.cache/cuda"
    mine = read(write_devcontainer(start(environment={"CUDA_CACHE_PATH": "/mine"})))["containerEnv"]
    assert mine["CUDA_CACHE_PATH"] == "/mine"


def test_the_entry_point_checks_each_start_and_a_port_is_forwarded() -> None:
    found = read(write_devcontainer(start(image=starts.with_image(port=8888))))
    assert found["postStartCommand"] == ["/opt/tensorflow-gpu-matrix/start", "true"]
    assert found["forwardPorts"] == [8888]


def test_a_command_is_rejected() -> None:
    with pytest.raises(InputError, match="for an editor"):
        write_devcontainer(start(command=("python",)))


@pytest.mark.parametrize(
    "value",
    ["${localEnv:HOME}", "a${containerWorkspaceFolder}", "${localWorkspaceFolderBasename}", "${env:A:b}"],
)
def test_a_value_that_would_be_replaced_is_rejected(value: str) -> None:
    with pytest.raises(InputError, match="the value of A contains what a dev container would replace"):
        write_devcontainer(start(environment={"A": value}))


@given(starts.variables)
def test_every_value_survives(variables: dict[str, str]) -> None:
    found = read(write_devcontainer(start(environment=variables)))
    assert found["containerEnv"].items() >= variables.items()
