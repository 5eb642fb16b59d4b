"""The `docker run` line for a host, each flag with the reason for it."""

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

#: Where `--mount` puts the current directory.
WORKSPACE = "/workspace"


class Devices(str, Enum):
    """How a container asks for the GPUs. AUTO: as the engine here offers them."""

    AUTO = "auto"
    GPUS = "gpus"
    CDI = "cdi"


@dataclass(frozen=True)
class Flag:
    """words: as they stand on the line. why: what it is needed for."""

    words: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class Mount:
    """A directory of this machine for the container. user: as whom the engine writes there, `1000:1000`."""

    directory: Path
    user: str

    @classmethod
    def of(cls, directory: Path, info: Mapping[str, Any], uid: int, gid: int) -> Mount:
        """For a directory of that user and group. A rootless engine runs as them, and calls them root."""
        rootless = any("name=rootless" in str(option) for option in info.get("SecurityOptions") or [])
        return cls(directory, "0:0" if rootless else f"{uid}:{gid}")


_DEVICES = {
    Devices.GPUS: Flag(("--gpus", "all"), "all GPUs, through the engine's nvidia runtime"),
    Devices.CDI: Flag(("--device", "nvidia.com/gpu=all"), "all GPUs, as CDI devices of the engine"),
}
# NCCL's documentation, Troubleshooting, Shared memory: both are recommended in containers.
_NCCL = (
    Flag(("--shm-size", "1g"), "several GPUs: NCCL passes data through /dev/shm, and 64 MB are not enough"),
    Flag(("--ulimit", "memlock=-1"), "several GPUs: NCCL pins memory"),
)


def devices_of(info: Mapping[str, Any]) -> Devices:
    """How an engine offers GPUs, by `docker info`. Raises MissingError when it offers none."""
    requests = device_requests(info)
    if not requests:
        raise MissingError(
            "the Docker Engine here offers no GPUs: it has neither an nvidia runtime nor CDI devices",
            hint="install the NVIDIA Container Toolkit and run `sudo nvidia-ctk runtime configure"
            " --runtime=docker`, or `sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`; for the"
            " line of another machine say --devices gpus or --devices cdi",
        )
    return Devices.CDI if requests[0]["Driver"] == "cdi" else Devices.GPUS


def flags(host: Host, devices: Devices, *, terminal: str, mount: Mount | None) -> list[Flag]:
    """What the container needs on this host.

    devices: not AUTO. terminal: what of `-i` and `-t` the command needs, `-it` or empty.
    """
    found = [Flag(("--rm",), "the container is removed when its command ends; the image stays")]
    if terminal:
        found.append(Flag((terminal,), "its standard input is yours"))
    found.append(_DEVICES[devices])
    if len(host.gpus) > 1:
        found += _NCCL
    if mount is not None:
        found += [
            Flag(("--mount", _bind(mount.directory)), f"the current directory is {WORKSPACE}"),
            Flag(("--workdir", WORKSPACE), "the command starts there"),
            Flag(("--user", mount.user), "what it writes there is yours"),
        ]
    return found


def command_line(found: Sequence[Flag], reference: str, command: Sequence[str]) -> list[str]:
    """The whole line, as words."""
    return ["docker", "run", *(word for flag in found for word in flag.words), reference, *command]


def _bind(directory: Path) -> str:
    """docker reads the value as one record of CSV, so that a path may hold commas and quotes."""
    stream = io.StringIO()
    fields = ["type=bind", f"source={directory}", f"target={WORKSPACE}"]
    csv.writer(stream, lineterminator="\n").writerow(fields)
    return stream.getvalue().removesuffix("\n")
