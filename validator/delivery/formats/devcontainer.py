"""Write a devcontainer.json, which VS Code and others open (https://containers.dev/implementors/json_reference)."""

from __future__ import annotations

import re
from typing import Any

from ...assemble.configuration import USER_NAME
from ...assemble.entry_point import START
from ...errors import InputError
from ..start import (
    CACHE_WHY,
    PINNED_MEMORY_WHY,
    SHARED_MEMORY_GIB,
    SHARED_MEMORY_WHY,
    Devices,
    Image,
    Place,
    Start,
    cache_variables,
)
from .text import Noted, header, sentence, to_jsonc

#: Where such a file is found.
USUAL = ".devcontainer/devcontainer.json"
_PYTHON = "/opt/venv/bin/python"
#: Editors replace these variables in values, and no escape is documented (Variables in devcontainer.json).
_REPLACED = re.compile(
    r"\$\{(?:env|localEnv|containerEnv|(?:local|container)WorkspaceFolder(?:Basename)?|devcontainerId)[:}]"
)


def write(start: Start) -> str:
    """Return the file. Raises InputError for a command, an image without a tag, or an unfit value."""
    if start.command:
        raise InputError(
            "a dev container is for an editor, which starts its own command",
            hint="leave out the command, and run it in the editor's terminal",
        )
    for name, value in start.environment.items():
        if _REPLACED.search(value):
            raise InputError(
                f"the value of {name} contains what a dev container would replace: {value!r}",
                hint="set the variable in the editor's terminal",
            )
    how = f"VS Code and others find it as {USUAL}: `Dev Containers: Reopen in Container`."
    return to_jsonc(_document(start), header(start.image, how))


def _document(start: Start) -> dict[str, Any]:
    found: dict[str, Any] = {"name": start.image.name, "image": _image(start.image)}
    if start.image.checks_host:
        found |= {
            "remoteUser": Noted(
                USER_NAME, "The image knows this user by number. The next line needs the name."
            ),
            "containerUser": USER_NAME,
        }
    found["updateRemoteUserUID"] = Noted(
        True, "On Linux, this user gets your number, so that files that it writes belong to you."
    )
    if start.host is not None:
        found |= _gpus(start)
    caches = cache_variables("${containerWorkspaceFolder}")
    variables: dict[str, Any] = {**caches, **start.environment}
    first = next(iter(caches))
    if first not in start.environment:
        variables[first] = Noted(variables[first], sentence(CACHE_WHY))
    found["containerEnv"] = variables
    if start.image.checks_host:
        found["postStartCommand"] = Noted(
            [START, "true"],
            "A dev container does not start the image's entry point, which checks the driver and the GPUs.",
        )
    if start.port is not None:
        found["forwardPorts"] = Noted([start.port], "JupyterLab, if you start it: `jupyter lab`.")
    found["customizations"] = {
        "vscode": {
            "extensions": ["ms-python.python"],
            "settings": {"python.defaultInterpreterPath": _PYTHON},
        }
    }
    return found


def _image(image: Image) -> Any:
    """Return the name of the image. Raises InputError if it is in the local engine without a tag."""
    if image.place is not Place.ENGINE:
        return image.reference
    if not image.tag:
        raise InputError(
            f"{image.name} has no tag in the local Docker Engine, and a dev container needs one",
            hint=f"give it one with `docker tag {image.name} NAME:TAG`, and pass that to --image",
        )
    return Noted(
        image.tag,
        "The tag: editors derive an image with your user ID, and BuildKit finds no image by its ID.",
    )


def _gpus(start: Start) -> dict[str, Any]:
    arguments: list[Any] = []
    if start.devices is Devices.CDI:
        needed = Noted("optional", "The tool knows only the nvidia runtime, so the flag is in runArgs.")
        arguments += [Noted("--device", "All GPUs, as CDI devices of the engine."), "nvidia.com/gpu=all"]
    else:
        needed = Noted(True, "The tool adds `--gpus all` if the engine has the nvidia runtime.")
    arguments += [Noted("--shm-size", sentence(SHARED_MEMORY_WHY)), f"{SHARED_MEMORY_GIB}g"]
    if start.gpu_count > 1 and not start.user.rootless:
        arguments += [Noted("--ulimit", sentence(PINNED_MEMORY_WHY)), "memlock=-1"]
    return {"hostRequirements": {"gpu": needed}, "runArgs": arguments}
