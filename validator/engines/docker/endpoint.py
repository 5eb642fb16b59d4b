"""Finding a Docker Engine that can be used, by the same rules as the Docker command line.

The SDK does everything but builds, the command line's buildx plugin does those; both must talk to the same
engine: the one of DOCKER_HOST, else of the current context, else of the default socket.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import docker
import requests
from docker.context import ContextAPI
from docker.errors import DockerException

from ...errors import MissingError
from ...system import processes

#: Docker Engine 23 made BuildKit the builder; what is here needs its named contexts and secrets.
OLDEST_ENGINE = 23
#: Since 0.17 bake wants to be told what a target may do (docker/buildx pull request 2666); an older one does
#: not know the switch and asks for no permission.
_ALLOW_SINCE = (0, 17)
#: How long an engine may take to answer at all, in seconds. A hanging one must not hold up `--engine auto`.
_ANSWER_WITHIN_S = 10
#: Later questions may wait for an engine that is busy building.
_BUSY_TIMEOUT_S = 300
_DEFAULT_HOST = "unix:///var/run/docker.sock"
_INSTALL = (
    "install Docker Engine 23 or newer with its buildx plugin; `build-matrix --engine venv` does without"
)


@dataclass(frozen=True)
class Buildx:
    """The command that builds: `argv` up to `buildx`, the builder that is the engine itself, its version."""

    argv: tuple[str, ...]
    builder: str
    version: tuple[int, int]

    @property
    def takes_allow(self) -> bool:
        return self.version >= _ALLOW_SINCE


@dataclass(frozen=True)
class Endpoint:
    """An engine that answers.

    quick: a client that waits only seconds; the other waits for an engine that is busy.
    """

    client: docker.DockerClient
    quick: docker.DockerClient
    buildx: Buildx
    version: str
    info: Mapping[str, Any]

    @property
    def has_image_store(self) -> bool:
        """Whether images are kept by containerd, which shares layers by digest and takes zstd."""
        status = self.info.get("DriverStatus") or []
        return any("io.containerd.snapshotter" in str(value) for pair in status for value in pair)

    @property
    def docker(self) -> str:
        """The command that talks to this engine."""
        return self.buildx.argv[0]

    @property
    def is_local(self) -> bool:
        """Whether the engine runs on this very kernel."""
        return _is_local(self.client)


@dataclass(frozen=True)
class Reached:
    """An engine that answers, for what needs no builds.

    quick: a client that waits only seconds. context: what the docker command calls it.
    """

    quick: docker.DockerClient
    context: str
    version: str
    info: Mapping[str, Any]

    @property
    def is_local(self) -> bool:
        """Whether the engine runs on this very kernel."""
        return _is_local(self.quick)


def connect() -> Endpoint:
    """The engine that the Docker command line would use, and what builds in it. Raises MissingError saying in
    one line why not."""
    reached = reach()
    try:
        buildx = find_buildx(reached.context)
    except MissingError:
        reached.quick.close()
        raise
    return Endpoint(_client(_BUSY_TIMEOUT_S)[0], reached.quick, buildx, reached.version, reached.info)


def reach() -> Reached:
    """The engine that the Docker command line would use. Raises MissingError saying in one line why not."""
    quick, context = _client(_ANSWER_WITHIN_S)
    try:
        try:
            version = str(quick.version().get("Version", "?"))
            info = quick.info()
        except (DockerException, requests.RequestException) as error:
            raise MissingError(f"no Docker Engine answers: {_root_cause(error)}", hint=_INSTALL) from error
        _check_server(version, info)
    except MissingError:
        quick.close()
        raise
    return Reached(quick, context, version, info)


def find_buildx(context: str) -> Buildx:
    """The first `docker` on PATH whose buildx works. An old one may stand before it."""
    found = list(dict.fromkeys(_on_path("docker")))
    for binary in found:
        result = processes.run([binary, "buildx", "version"], timeout_s=30)
        match = re.search(r"v?(\d+)\.(\d+)\.\d+", result.stdout.decode("utf-8", "replace"))
        if result.ok and match:
            return Buildx((binary, "buildx"), context, (int(match[1]), int(match[2])))
    if not found:
        raise MissingError(
            "a Docker Engine answers, but there is no docker command to build with", hint=_INSTALL
        )
    raise MissingError(
        "a Docker Engine answers, but docker has no buildx plugin to build with", hint=_INSTALL
    )


def _client(timeout_s: int) -> tuple[docker.DockerClient, str]:
    """The SDK's client, and the name of the context it stands for."""
    name, host, tls = "default", os.environ.get("DOCKER_HOST"), None
    try:
        if not host:
            asked = os.environ.get("DOCKER_CONTEXT")
            context = ContextAPI.get_context(asked)
            if context is None:
                raise MissingError(
                    f"there is no Docker context {asked or 'in use'}", hint="docker context ls"
                )
            if context.name != "default":
                name, host, tls = str(context.name), str(context.Host), context.TLSConfig
        _check_socket(host or _DEFAULT_HOST)
        if name == "default":
            return docker.DockerClient.from_env(timeout=timeout_s, use_ssh_client=True), name
        return docker.DockerClient(host, tls=tls or False, timeout=timeout_s, use_ssh_client=True), name
    except (DockerException, requests.RequestException) as error:
        raise MissingError(f"no Docker Engine answers: {_root_cause(error)}", hint=_INSTALL) from error


def _is_local(client: docker.DockerClient) -> bool:
    return bool(client.api.base_url.startswith("http+docker://localhost"))


def _check_server(version: str, info: Mapping[str, Any]) -> None:
    major = int(match[0]) if (match := re.match(r"\d+", version)) else 0
    if major < OLDEST_ENGINE:
        raise MissingError(
            f"Docker Engine {version} is too old, {OLDEST_ENGINE} or newer is needed", hint=_INSTALL
        )
    kind = f"{info.get('OSType')}/{info.get('Architecture')}"
    if kind != "linux/x86_64":
        raise MissingError(
            f"the Docker Engine runs {kind} containers; TensorFlow's GPU wheels are for linux/x86_64",
            hint="use an engine on an x86-64 Linux, through DOCKER_HOST or a context",
        )


def _check_socket(host: str) -> None:
    """Say what is wrong with a local socket. The SDK would leave its own half-open and blame itself."""
    path = host.removeprefix("unix://")
    if path == host:
        return
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_ANSWER_WITHIN_S)
        try:
            connection.connect(path)
        except (FileNotFoundError, NotADirectoryError):
            reason = f"no Docker Engine: there is no socket at {path}"
        except PermissionError:
            reason = f"no Docker Engine that we may use: permission denied on {path}"
        except OSError as error:
            reason = f"no Docker Engine answers at {path}: {error.strerror or error}"
        else:
            return
    raise MissingError(reason, hint=_INSTALL)


def _root_cause(error: BaseException) -> str:
    while error.__cause__ or error.__context__:
        error = error.__cause__ or error.__context__ or error
    return " ".join(str(error).split())[:200]


def _on_path(name: str) -> list[str]:
    directories = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return [path for directory in directories if (path := shutil.which(name, path=directory or "."))]
