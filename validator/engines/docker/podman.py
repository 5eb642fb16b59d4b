"""Podman in place of Docker: how it is reached, and what its Docker-compatible service can't do.

The service answers Docker's SDK, so nearly everything is done as with Docker. Its images are those of the
user who runs this, rootless or as root. It gives no CDI devices and writes no archives with zstd layers, so
the command line creates containers and saves images: podman-system-service(1), podman-create(1) and
podman-save(1) of Podman 4.3, the oldest that is used.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import requests
import yaml
from docker.errors import APIError, DockerException, ImageNotFound

from ...errors import MissingError, ValidatorError
from ...system import processes, runs
from ...system.files import read_text
from .endpoint import ANSWER_WITHIN_S, BUSY_TIMEOUT_S, Client, Endpoint, Reached, root_cause

OLDEST = (4, 3)
_INSTALL = "install Podman 4.3 or newer: the package podman"
#: Where CDI specifications are, by the specification of CDI.
_SPECIFICATIONS = (Path("/etc/cdi"), Path("/var/run/cdi"))
_KIND = "nvidia.com/gpu"
_QUICK_S = 60
_ARCHITECTURES = {"amd64": "x86_64"}
_NO_IMAGE = re.compile(r"no such image|image not known|unable to find", re.IGNORECASE)

Docker = TypeVar("Docker", bound=Reached)


def connect() -> Endpoint:
    """Return the Podman of this user. Raises MissingError with the reason if there is none."""
    program = shutil.which("podman")
    if program is None:
        raise MissingError("Podman is not installed", hint=_INSTALL)
    found = processes.run([program, "version", "--format", "{{.Client.Version}}"], timeout_s=_QUICK_S)
    version = found.stdout.decode("utf-8", "replace").strip()
    numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
    if not found.ok or len(numbers) < 2:
        last = (found.stderr_tail.strip().splitlines() or ["no message"])[-1]
        raise MissingError(f"Podman does not work: {last}", hint="run `podman info`")
    if numbers < OLDEST:
        raise MissingError(f"Podman {version} is too old; 4.3 or newer is needed", hint=_INSTALL)
    address = f"unix://{_service(program)}"
    try:
        quick = Client(address, timeout=ANSWER_WITHIN_S)
        info = quick.info()
        client = Client(address, timeout=BUSY_TIMEOUT_S)
    except (DockerException, requests.RequestException) as error:
        raise MissingError(f"Podman's service does not respond: {root_cause(error)}") from error
    known: dict[str, Any] = {
        **info,
        "Architecture": _ARCHITECTURES.get(str(info.get("Architecture")), info.get("Architecture")),
        "DiscoveredDevices": [{"ID": f"{_KIND}={name}"} for name in sorted(set(_devices()))],
        # GPUs come as devices of CDI, whatever runtimes are configured.
        "Runtimes": {},
    }
    if info.get("Rootless") and str(info.get("CgroupVersion")) == "1":
        # Podman says that it has limits, but without root it ignores them with this version of cgroups.
        known |= {"MemoryLimit": False, "PidsLimit": False}
    return Endpoint(
        quick=quick, context="podman", version=version, info=known, client=client, program=program,
        is_podman=True,
    )  # fmt: skip


def connect_any(docker: Callable[[], Docker]) -> Docker | Endpoint:
    """Return the Docker Engine, or Podman where there is none. Raises MissingError with both reasons.

    docker: connects to the Docker Engine, for example `endpoint.connect`.
    """
    try:
        return docker()
    except MissingError as error:
        try:
            return connect()
        except MissingError as other:
            raise MissingError(f"{error}; {other}", hint=error.hint) from error


@functools.cache
def _service(program: str) -> Path:
    """Start Podman's service for this process, and return its socket. Raises MissingError if that fails."""
    place = contextlib.ExitStack()
    atexit.register(place.close)
    # The path of a socket may have 107 characters.
    directory = place.enter_context(runs.temporary_directory("podman", Path(tempfile.gettempdir())))
    path = directory / "s"
    child = processes.start([program, "system", "service", "--time=0", f"unix://{path}"])
    place.callback(processes.end_group, child)
    deadline = time.monotonic() + _QUICK_S
    while not path.exists():
        processes.check_stopping()
        if child.poll() is not None or time.monotonic() > deadline:
            raise MissingError("Podman's service does not start", hint=f"run `{program} system service`")
        time.sleep(0.02)
    return path


def _devices() -> Iterator[str]:
    """Yield the names of NVIDIA's GPUs in the CDI specifications of this machine."""
    for directory in _SPECIFICATIONS:
        for path in sorted((*directory.glob("*.yaml"), *directory.glob("*.json"))):
            with contextlib.suppress(yaml.YAMLError, ValidatorError, OSError):
                found = yaml.safe_load(read_text(path))
                if isinstance(found, dict) and found.get("kind") == _KIND:
                    yield from (str(one["name"]) for one in found.get("devices", ()) if "name" in one)


def create(endpoint: Endpoint, image: str, command: Sequence[str], arguments: Sequence[str]) -> str:
    """Create a container and return its id. command: the program and its arguments. arguments: of podman.

    Raises APIError, and ImageNotFound if there is no such image.
    """
    done = processes.run(
        [
            # The proxies of this machine, with their credentials, stay outside.
            endpoint.program, "create", "--pull=never", "--http-proxy=false", *arguments,
            "--entrypoint", command[0], image, *command[1:],
        ],
        timeout_s=BUSY_TIMEOUT_S,
    )  # fmt: skip
    if not done.ok:
        kind = ImageNotFound if _NO_IMAGE.search(done.stderr_tail) else APIError
        raise kind(done.stderr_tail, explanation=done.stderr_tail)
    return done.stdout.decode("ascii", "replace").strip()


def save(endpoint: Endpoint, reference: str, path: Path) -> None:
    """Write an image to an archive in the format of OCI. Raises ValidatorError."""
    command: list[str | Path] = [
        endpoint.program,
        "save",
        "--quiet",
        "--format=oci-archive",
        "--output",
        path,
        reference,
    ]
    done = processes.run(command)
    if not done.ok:
        raise ValidatorError(f"{reference} can't be saved: {' '.join(done.stderr_tail.split())[-300:]}")
