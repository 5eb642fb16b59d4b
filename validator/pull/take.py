"""Takes an image from its registry by its digest, and finds the flags that bring this host's GPUs in."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docker.errors import DockerException, ImageNotFound

from ..engines.base import Progress
from ..engines.docker import transfer
from ..engines.docker.endpoint import Endpoint
from ..errors import ValidatorError
from ..registry.registry import Registry
from .candidates import Candidate

#: What a CDI specification for NVIDIA's GPUs calls all of them (nvidia-ctk cdi generate).
_CDI_ALL = "nvidia.com/gpu=all"
#: What NCCL and PyTorch-like loaders want beyond Docker's 64 MiB (NCCL documentation, "Troubleshooting").
_SHARED_MEMORY = "1g"
_WORK = "/work"


def take(registry: Registry, candidate: Candidate, endpoint: Endpoint, progress: Progress) -> str:
    """Pull an image whose certificate was verified; its reference by digest.

    Manifest and configuration are held against their digests before anything is pulled, and the engine holds
    the layers against theirs. The image also gets the tag as its local name.

    Raises ValidatorError when something is not what its digest says, MissingError when the registry or the
    engine can't do it.
    """
    registry.config(candidate.digest)
    reference = registry.repository.at(candidate.digest)
    transfer.pull(endpoint.docker, reference, progress, lambda: _answers(endpoint))
    image = endpoint.client.images.get(reference)
    if reference not in (image.attrs.get("RepoDigests") or []):
        raise ValidatorError(
            f"the engine has pulled {image.id} and does not know it as {reference}",
            hint="look what `docker image inspect` says of it, and do not use it",
        )
    if candidate.tag != candidate.digest:
        image.tag(registry.repository.tagged(candidate.tag))
    return reference


def has_image(endpoint: Endpoint, reference: str) -> bool:
    """Whether the engine has the image of a reference by digest."""
    try:
        endpoint.client.images.get(reference)
    except ImageNotFound:
        return False
    return True


@dataclass(frozen=True)
class Flag:
    """A part of the `docker run` line, and why it is there."""

    words: tuple[str, ...]
    why: str


def flags(
    engine: Mapping[str, Any] | None, gpus: int, *, mount: Path | None = None, interactive: bool = False
) -> list[Flag]:
    """What `docker run` needs for this host.

    engine: what the engine says of itself (`docker info`), None where none was asked. gpus: how many there
    are. mount: a directory to work in. interactive: whether a person sits before it.
    """
    found = [Flag(("--rm",), "the container is removed when it ends")]
    if interactive:
        found.append(Flag(("--interactive", "--tty"), "a person sits at this terminal"))
    found.append(_gpu_flag(engine))
    if gpus > 1:
        size = f"--shm-size={_SHARED_MEMORY}"
        found.append(
            Flag((size,), "several GPUs exchange data through /dev/shm, of which Docker gives 64 MiB")
        )
    if mount is not None:
        user = f"{os.getuid()}:{os.getgid()}"
        found.append(Flag(("--volume", f"{mount}:{_WORK}", "--workdir", _WORK), "the directory to work in"))
        found.append(Flag(("--user", user), "what is written there belongs to you"))
    return found


def command_line(reference: str, found: Sequence[Flag], command: Sequence[str]) -> list[str]:
    """The whole `docker run` line, word by word."""
    return ["docker", "run", *(word for flag in found for word in flag.words), reference, *command]


def _gpu_flag(engine: Mapping[str, Any] | None) -> Flag:
    """CDI where the engine has found NVIDIA's devices by it: it works without NVIDIA's runtime."""
    devices = (engine or {}).get("DiscoveredDevices") or []
    if any(device.get("ID") == _CDI_ALL for device in devices if isinstance(device, Mapping)):
        return Flag(("--device", _CDI_ALL), "the engine knows the GPUs by CDI")
    return Flag(("--gpus", "all"), "the NVIDIA Container Toolkit brings the GPUs in")


def _answers(endpoint: Endpoint) -> bool:
    try:
        return bool(endpoint.quick.ping())
    except (DockerException, OSError):
        return False
