"""Write a file for Docker Compose (https://github.com/compose-spec/compose-spec)."""

from __future__ import annotations

from typing import Any

from ..start import (
    CACHE_WHY,
    PINNED_MEMORY_WHY,
    SHARED_MEMORY_GIB,
    SHARED_MEMORY_WHY,
    WORKSPACE,
    Devices,
    Place,
    Start,
)
from .text import Noted, comments, header, sentence, to_yaml

_SERVICE = "tensorflow"
_GPUS: dict[Devices, Noted] = {
    Devices.GPUS: Noted(
        {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]},
        "All GPUs, through the engine's nvidia runtime.",
    ),
    Devices.CDI: Noted(
        {"driver": "cdi", "device_ids": ["nvidia.com/gpu=all"], "capabilities": ["gpu"]},
        "All GPUs, as CDI devices of the engine.",
    ),
}


def write(start: Start) -> str:
    """Return the file."""
    ports = " --service-ports" if start.port is not None else ""
    how = f"Start it with: docker compose run --rm{ports} {_SERVICE}"
    return "".join(f"{line}\n" for line in comments(header(start.image, how))) + to_yaml(
        {"services": {_SERVICE: _service(start)}}
    )


def _service(start: Start) -> dict[str, Any]:
    found: dict[str, Any] = {"image": _text(start.image.reference)}
    if start.image.place is Place.ENGINE:
        found["pull_policy"] = Noted("never", "The image is only in this engine.")
    if start.command:
        found["command"] = [_text(word) for word in start.command]
    else:
        found |= {"stdin_open": Noted(True, "The image's own command reads from your terminal."), "tty": True}
    if start.host is not None:
        found["shm_size"] = Noted(f"{SHARED_MEMORY_GIB}gb", sentence(SHARED_MEMORY_WHY))
        if start.gpu_count > 1 and not start.user.rootless:
            found["ulimits"] = Noted({"memlock": -1}, sentence(PINNED_MEMORY_WHY))
    if start.port is not None:
        found["ports"] = Noted(
            [f"127.0.0.1:{start.port}:{start.port}"], "Its page can be opened on this machine only."
        )
    if start.directory is not None:
        found |= {
            "volumes": [{"type": "bind", "source": _text(str(start.directory)), "target": WORKSPACE}],
            "working_dir": WORKSPACE,
            "user": Noted(start.user.in_docker, "Files that it writes there belong to you."),
        }
    if variables := start.variables("/tmp" if start.directory is not None else None):
        found["environment"] = _noted({name: _text(value) for name, value in variables.items()}, start)
    if start.devices is not None:
        found["deploy"] = {"resources": {"reservations": {"devices": [_GPUS[start.devices]]}}}
    return found


def _noted(variables: dict[str, str], start: Start) -> dict[str, Any]:
    """Return the variables, with comments on those that nobody asked for."""
    whys = {
        "HOME": "In the image, your user may have no home directory.",
        "CUDA_CACHE_PATH": sentence(CACHE_WHY),
    }
    return {
        name: Noted(value, whys[name]) if name in whys.keys() - start.environment.keys() else value
        for name, value in variables.items()
    }


def _text(value: str) -> str:
    """Return a text in which Compose replaces no variable (compose-spec, Interpolation)."""
    return value.replace("$", "$$")
