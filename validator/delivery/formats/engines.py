"""Write the command line of Docker and of Podman, with the reason for each flag."""

from __future__ import annotations

import csv
import io
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

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
from .text import comments, header


@dataclass(frozen=True)
class Flag:
    """A flag with its values, and the reason why the container needs it."""

    words: tuple[str, ...]
    why: str


_COPIED = "oci: Podman copies the image from this directory into its own storage first"
#: An absolute path that can be the name of an image, after `localhost`.
_NAME = re.compile(r"(?:/[a-z0-9]+(?:(?:[.]|_|__|-+)[a-z0-9]+)*)+")
_AS_NAME = (
    "Podman 4.3 takes the directory as the name of its copy, so there it may have only lower-case letters,"
    " digits, and dots, dashes or underscores between them"
)
_GPUS = {
    Devices.GPUS: Flag(("--gpus", "all"), "all GPUs, through the engine's nvidia runtime"),
    Devices.CDI: Flag(("--device", "nvidia.com/gpu=all"), "all GPUs, as CDI devices of the engine"),
}


def docker_command(start: Start) -> list[str]:
    """Return the words of `docker run`."""
    return _command("docker", start, docker_flags(start), start.image.reference)


def podman_command(start: Start) -> list[str]:
    """Return the words of `podman run`."""
    return _command("podman", start, podman_flags(start), _podman_image(start))


def write_docker(start: Start) -> str:
    """Return the `docker run` line, after comments."""
    return _written(start, docker_flags(start), docker_command(start))


def write_podman(start: Start) -> str:
    """Return the `podman run` line, after comments."""
    about: tuple[str, ...] = (_COPIED,) if start.image.place is Place.LAYOUT else ()
    if about and not _NAME.fullmatch(start.image.reference.partition(":")[0]):
        about += (_AS_NAME,)
    return _written(start, podman_flags(start), podman_command(start), about)


def docker_flags(start: Start) -> list[Flag]:
    """Return the flags for the Docker Engine."""
    found = _first(start)
    if start.devices is not None:
        found.append(_GPUS[start.devices])
    found += _memory(start, may_pin=not start.user.rootless)
    if start.directory is not None:
        found += [
            *_mount(start.directory),
            Flag(("--user", start.user.in_docker), "files that it writes there belong to you"),
        ]
    return [*found, *_variables(start)]


def podman_flags(start: Start) -> list[Flag]:
    """Return the flags for Podman, which runs containers as the user who starts them."""
    found = _first(start)
    rootless = start.user.uid != 0
    if start.host is not None:
        # Podman's --gpus came with 5.0, and makes the same request.
        found.append(Flag(("--device", "nvidia.com/gpu=all"), "all GPUs, as CDI devices"))
    if start.host is not None or start.directory is not None:
        found.append(
            Flag(
                ("--security-opt", "label=disable"),
                "with SELinux, lets the container use the GPUs and your files without new labels",
            )
        )
    # A user may not raise the limit, and the container would not start.
    found += _memory(start, may_pin=not rootless)
    if start.directory is not None:
        found += _mount(start.directory)
        if rootless:
            found.append(Flag(("--userns", "keep-id"), "your user has the same number in the container"))
        found.append(
            Flag(("--user", f"{start.user.uid}:{start.user.gid}"), "files that it writes there belong to you")
        )
    if start.image.plain_http:
        found.append(Flag(("--tls-verify=false",), "the registry answers without TLS"))
    return [*found, *_variables(start)]


def _first(start: Start) -> list[Flag]:
    found = [Flag(("--rm",), "the container is removed when its command ends; the image stays")]
    if start.terminal:
        found.append(Flag((start.terminal,), "the command reads from your terminal"))
    if start.port is not None:
        address = f"127.0.0.1:{start.port}:{start.port}"
        found.append(Flag(("--publish", address), "its page can be opened on this machine only"))
    return found


def _memory(start: Start, *, may_pin: bool) -> list[Flag]:
    if start.host is None:
        return []
    found = [Flag(("--shm-size", f"{SHARED_MEMORY_GIB}g"), SHARED_MEMORY_WHY)]
    if start.gpu_count > 1 and may_pin:
        found.append(Flag(("--ulimit", "memlock=-1"), PINNED_MEMORY_WHY))
    return found


def _mount(directory: Path) -> list[Flag]:
    return [
        Flag(("--mount", bind(directory, "target")), f"the current directory is mounted as {WORKSPACE}"),
        Flag(("--workdir", WORKSPACE), "the command starts in that directory"),
    ]


def _variables(start: Start) -> list[Flag]:
    why = {
        "HOME": "in the image, your user may have no home directory",
        **dict.fromkeys(("CUDA_CACHE_PATH", "KERAS_HOME", "XDG_CACHE_HOME"), CACHE_WHY),
        **dict.fromkeys(start.environment, "you set it with --env"),
    }
    home = "/tmp" if start.directory is not None else None
    return [Flag(("--env", f"{name}={value}"), why[name]) for name, value in start.variables(home).items()]


def _podman_image(start: Start) -> str:
    return start.image.in_transport if start.image.place is Place.LAYOUT else start.image.reference


def _command(program: str, start: Start, flags: Sequence[Flag], image: str) -> list[str]:
    words = [word for flag in flags for word in flag.words]
    return [program, "run", *words, image, *start.command]


def _written(start: Start, flags: Sequence[Flag], command: Sequence[str], about: Sequence[str] = ()) -> str:
    """Return a command line, after comments. about: what the comments say of the image, after the flags."""
    reasons: dict[str, list[str]] = {}
    for flag in flags:
        reasons.setdefault(flag.why, []).append(shlex.join(flag.words))
    told = [f"{', '.join(words)}: {why}" for why, words in reasons.items()]
    lines = [*comments(header(start.image)), *comments([*told, *about]), shlex.join(command)]
    return "".join(f"{line}\n" for line in lines)


def bind(directory: Path, target: str) -> str:
    """Return the value of a --mount, as a CSV record, so that a path may contain commas, quotes and colons.

    target: the name of the field for the path in the container, which is WORKSPACE.
    """
    stream = io.StringIO()
    fields = ["type=bind", f"source={directory}", f"{target}={WORKSPACE}"]
    csv.writer(stream, lineterminator="\n").writerow(fields)
    return stream.getvalue().removesuffix("\n")
