"""Build the `docker run` line for a host, with the reason for each flag."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from ..engines.docker.gpus import device_requests
from ..errors import MissingError
from .host import Host

#: The path of the current directory in the container, with `--mount`.
WORKSPACE = "/workspace"


class Devices(str, Enum):
    """The way a container requests the GPUs. AUTO: as the local engine offers them."""

    AUTO = "auto"
    GPUS = "gpus"
    CDI = "cdi"


@dataclass(frozen=True)
class Flag:
    """A flag with its values, and the reason why the container needs it."""

    words: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class Mount:
    """A host directory to mount. user: the user and group that own new files there, `1000:1000`."""

    directory: Path
    user: str

    @classmethod
    def of(cls, directory: Path, info: Mapping[str, Any], uid: int, gid: int) -> Mount:
        """Mount a directory for this user and group, who in a rootless engine are root."""
        rootless = any("name=rootless" in str(option) for option in info.get("SecurityOptions") or [])
        return cls(directory, "0:0" if rootless else f"{uid}:{gid}")


_DEVICES = {
    Devices.GPUS: Flag(("--gpus", "all"), "all GPUs, through the engine's nvidia runtime"),
    Devices.CDI: Flag(("--device", "nvidia.com/gpu=all"), "all GPUs, as CDI devices of the engine"),
}
# NCCL's documentation, Troubleshooting, Shared memory: both are recommended in containers.
_NCCL = (
    Flag(
        ("--shm-size", "1g"),
        "NCCL passes data between GPUs through /dev/shm, and the default of 64 MB is too small",
    ),
    Flag(("--ulimit", "memlock=-1"), "NCCL pins memory when it uses several GPUs"),
)


def devices_of(info: Mapping[str, Any]) -> Devices:
    """Return how an engine offers GPUs, judged by `docker info`. Raises MissingError if it offers none."""
    requests = device_requests(info)
    if not requests:
        raise MissingError(
            "the local Docker Engine offers no GPUs: it has neither an nvidia runtime nor CDI devices",
            hint="install the NVIDIA Container Toolkit and run `sudo nvidia-ctk runtime configure"
            " --runtime=docker`, or `sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`; to"
            " print the line for another machine, pass --devices gpus or --devices cdi",
        )
    return Devices.CDI if requests[0]["Driver"] == "cdi" else Devices.GPUS


def flags(
    host: Host | None,
    devices: Devices | None,
    *,
    terminal: str,
    mount: Mount | None,
    port: int | None = None,
) -> list[Flag]:
    """Return the flags that the container needs on this host.

    host, devices: None for a container without GPUs. devices: GPUS or CDI, not AUTO. terminal: `-it`, `-i` or
    empty, as the command needs. port: where the image's command answers.
    """
    found = [Flag(("--rm",), "the container is removed when its command ends; the image stays")]
    if terminal:
        found.append(Flag((terminal,), "the command reads from your terminal"))
    if devices is not None:
        found.append(_DEVICES[devices])
    if host is not None and len(host.gpus) > 1:
        found += _NCCL
    if port is not None:
        address = f"127.0.0.1:{port}:{port}"
        found.append(Flag(("--publish", address), "its page can be opened on this machine only"))
    if mount is not None:
        found += [
            Flag(("--mount", _bind(mount.directory)), f"the current directory is mounted as {WORKSPACE}"),
            Flag(("--workdir", WORKSPACE), "the command starts in that directory"),
            Flag(("--user", mount.user), "files that it writes there belong to you"),
            Flag(("--env", "HOME=/tmp"), "in the image, your user may have no home directory"),
        ]
    return found


def command_line(found: Sequence[Flag], reference: str, command: Sequence[str]) -> list[str]:
    """Return the whole command line as words."""
    return ["docker", "run", *(word for flag in found for word in flag.words), reference, *command]


def _bind(directory: Path) -> str:
    """Return the value of --mount, as a CSV record, so that a path may contain commas and quotes."""
    stream = io.StringIO()
    fields = ["type=bind", f"source={directory}", f"target={WORKSPACE}"]
    csv.writer(stream, lineterminator="\n").writerow(fields)
    return stream.getvalue().removesuffix("\n")
