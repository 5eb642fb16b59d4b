"""Finds a Docker Engine that can be used, by the rules of the Docker command line, or a Podman.

The command line pulls images and, with its buildx plugin, installs system packages; everything else is done
with the SDK. Both must use the same engine: that of DOCKER_HOST, of the current context, or of the default
socket, in this order.

Podman's service answers the same SDK, so nearly all is done as with Docker. Its images are those of the user
who runs this, rootless or as root. It gives no CDI devices and writes no archives with zstd layers, so the
command line creates containers and saves images: podman-system-service(1), podman-create(1) and
podman-save(1) of Podman 4.3, the oldest that is used.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import re
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import docker
import requests
import yaml
from docker.context import ContextAPI
from docker.errors import APIError, DockerException, ImageNotFound

from ..errors import MissingError, ValidatorError
from ..model import codec
from ..model.codec import LARGEST, DocumentError
from ..system import processes, runs
from ..system.files import read_text

T = TypeVar("T")


def engine_gone(what: str) -> MissingError:
    """Return the error for an engine that stopped responding."""
    return MissingError(
        f"{what}: the Docker Engine stopped responding",
        hint="start it again and repeat the command; finished work is kept",
    )


@contextlib.contextmanager
def answering(what: str) -> Iterator[None]:
    """Raise ValidatorError for an error from the engine, MissingError if it stops responding."""
    try:
        yield
    except APIError as error:
        raise ValidatorError(
            f"{what}: the engine answered: {' '.join(str(error.explanation or error).split())[:300]}",
            hint="look at the engine's log, and run the same command again",
        ) from error
    except (DockerException, requests.RequestException) as error:
        raise engine_gone(what) from error


def disk_full(what: str) -> MissingError:
    """Return the error for an engine whose disk is full."""
    return MissingError(
        f"{what}: no space left on the engine's disk",
        hint="free some with `docker image prune`, then repeat the command",
    )


def read(answer: object, kind: type[T], what: str) -> T:
    """Return an answer of an engine as a typed value. Raises ValidatorError if it can't be read."""
    try:
        return codec.convert(answer, kind)
    except DocumentError as error:
        raise ValidatorError(f"the engine's answer about {what} can't be read: {error}") from None


#: Docker Engine 23 is the first that reads layers with zstd compression, and made BuildKit the default.
OLDEST_ENGINE = 23
#: The timeout of the first requests, in seconds. A hanging engine must not block `--engine auto`.
ANSWER_WITHIN_S = 10
#: The timeout of later requests, which may have to wait while the engine builds.
BUSY_TIMEOUT_S = 300
_BLOCK = 1 << 16
_DEFAULT_HOST = "unix:///var/run/docker.sock"
_INSTALL = (
    "install Docker Engine 23 or newer; without one, `build-matrix --no-validate` with --push or --oci makes"
    " images, `build-matrix --engine venv` measures environments, and `check --python` checks one"
)
#: From Docker's documentation: "Post-installation steps" and "Rootless mode".
_NOT_IN_GROUP = (
    "`sudo usermod -aG {group} $USER` and a new login put you into it; its members can become root on this"
    " machine; or run Docker without root: https://docs.docker.com/engine/security/rootless/"
)
_INSTALL_BUILDX = "install it: the package docker-buildx in Debian, docker-buildx-plugin from Docker"


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """An engine that responds, on a machine that may lack the docker command.

    quick: a client with a timeout of a few seconds. client: one that waits for an engine that is busy.
    context: the name of its Docker context. program: the command for this engine. is_podman: it is Podman,
    not Docker.
    """

    quick: docker.DockerClient
    client: docker.DockerClient
    context: str
    version: str
    info: Mapping[str, Any]
    program: str = "docker"
    is_podman: bool = False

    @property
    def product(self) -> str:
        """The name of the engine's kind, as people write it."""
        return "Podman" if self.is_podman else "Docker"

    @property
    def is_local(self) -> bool:
        """True if the engine runs on this machine."""
        return bool(self.quick.api.base_url.startswith("http+docker://localhost"))

    def responds(self) -> bool:
        """Return True if the engine still responds."""
        try:
            return bool(self.quick.ping())
        except (DockerException, requests.RequestException):
            return False

    def close(self) -> None:
        self.quick.close()
        self.client.close()

    @property
    def has_image_store(self) -> bool:
        """True if containerd stores the images, which shares layers by digest and supports zstd."""
        status = self.info.get("DriverStatus") or []
        return any("io.containerd.snapshotter" in str(value) for pair in status for value in pair)

    @property
    def buildx(self) -> tuple[str, ...]:
        """The buildx command, with this engine as the builder. Raises MissingError if it is not installed."""
        return find_buildx(self.context)


def connect() -> Endpoint:
    """Return the engine and the command that run images. Raises MissingError with the reason."""
    reached = reach()
    program = shutil.which("docker")
    if program is None:
        reached.close()
        raise MissingError(
            "a Docker Engine is running, but the docker command, which pulls images, is not installed",
            hint=_INSTALL,
        )
    return replace(reached, program=program)


def reach(hint: str = _INSTALL) -> Endpoint:
    """Return the engine that the Docker command line would use.

    Raises MissingError with the reason. hint: what to do if no engine responds.
    """
    quick, context = _client(ANSWER_WITHIN_S, hint)
    try:
        try:
            version = str(quick.version().get("Version", "?"))
            info = quick.info()
        except (DockerException, requests.RequestException, ValidatorError) as error:
            raise MissingError(f"no Docker Engine responds: {root_cause(error)}", hint=hint) from error
        _check_server(version, info, hint)
        client, _ = _client(BUSY_TIMEOUT_S, hint)
    except MissingError:
        quick.close()
        raise
    return Endpoint(quick=quick, client=client, context=context, version=version, info=info)


def find_buildx(context: str) -> tuple[str, ...]:
    """Return the command of the first `docker` on PATH whose buildx works; an old one may come before it."""
    directories = os.environ.get("PATH", os.defpath).split(os.pathsep)
    found = (shutil.which("docker", path=directory or ".") for directory in directories)
    for binary in dict.fromkeys(filter(None, found)):
        result = processes.run([binary, "buildx", "version"], timeout_s=30)
        if result.ok and re.search(rb"\d+\.\d+\.\d+", result.stdout):
            return binary, "buildx", "--builder", context
    raise MissingError(
        "a Docker Engine is running, but the docker command has no buildx plugin, which installs system"
        " packages",
        hint=_INSTALL_BUILDX,
    )


def _client(timeout_s: int, hint: str = _INSTALL) -> tuple[docker.DockerClient, str]:
    """Return a client of the SDK, and the name of its Docker context."""
    name, host, tls = "default", os.environ.get("DOCKER_HOST"), None
    try:
        if not host:
            asked = os.environ.get("DOCKER_CONTEXT")
            context = ContextAPI.get_context(asked)
            if context is None:
                raise MissingError(
                    f"the Docker context {asked or 'in use'} does not exist",
                    hint="list the contexts with `docker context ls`",
                )
            if context.name != "default":
                name, host, tls = str(context.name), str(context.Host), context.TLSConfig
        _check_socket(host or _DEFAULT_HOST, hint)
        if name == "default":
            return Client.from_env(timeout=timeout_s, use_ssh_client=True), name
        return Client(host, tls=tls or False, timeout=timeout_s, use_ssh_client=True), name
    except (DockerException, requests.RequestException) as error:
        raise MissingError(f"no Docker Engine responds: {root_cause(error)}", hint=hint) from error
    except ValueError as error:
        # The SDK parses the address with urllib, whose errors it lets through.
        raise MissingError(
            f"the address of the Docker Engine can't be read: {host!r}: {root_cause(error)}",
            hint="correct DOCKER_HOST or the Docker context; for example unix:///var/run/docker.sock",
        ) from error
    except (AttributeError, TypeError) as error:
        # The SDK expects objects and texts in the configuration of the client, without checking.
        raise MissingError(
            f"Docker's configuration can't be read: {root_cause(error)}",
            hint="correct config.json in ~/.docker, or in the directory that DOCKER_CONFIG names",
        ) from error


class Client(docker.DockerClient):
    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.api = _Api(*arguments, **named)


class _Api(docker.APIClient):
    """The SDK's client, which would read whole answers without a limit: images have labels and history."""

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        answer = super().send(request, **{**options, "stream": True})
        if options.get("stream"):
            return answer
        content = bytearray()
        for part in answer.iter_content(_BLOCK):
            content += part
            if len(content) > LARGEST:
                answer.close()
                raise ValidatorError(f"the engine's answer has more than {LARGEST >> 20} MiB")
        answer._content = bytes(content)
        return answer


def _check_server(version: str, info: Mapping[str, Any], hint: str = _INSTALL) -> None:
    major = int(match[0]) if (match := re.match(r"\d+", version)) else 0
    if major < OLDEST_ENGINE:
        raise MissingError(
            f"Docker Engine {version} is too old; {OLDEST_ENGINE} or newer is needed", hint=hint
        )
    kind = f"{info.get('OSType')}/{info.get('Architecture')}"
    if kind != "linux/x86_64":
        raise MissingError(
            f"the Docker Engine runs {kind} containers, but TensorFlow's GPU wheels are for linux/x86_64",
            hint="use an engine on x86-64 Linux, with DOCKER_HOST or a Docker context",
        )


def _check_socket(host: str, hint: str) -> None:
    """Raise MissingError if a local socket can't be used. The SDK's own error would not say why."""
    path = host.removeprefix("unix://")
    group = "docker"
    if path == host:
        return
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(ANSWER_WITHIN_S)
        try:
            connection.connect(path)
        except (FileNotFoundError, NotADirectoryError):
            reason = f"no Docker Engine found: the socket {path} does not exist"
        except PermissionError:
            with contextlib.suppress(OSError, KeyError):
                group = Path(path).group()
            # If only root may use the socket, Docker's own group is the one to be in.
            group = "docker" if group == "root" else group
            reason = f"permission denied for the Docker Engine's socket {path}: you are not in group {group}"
            hint = _NOT_IN_GROUP.format(group=group)
        except OSError as error:
            reason = f"no Docker Engine responds at {path}: {error.strerror or error}"
        else:
            return
    raise MissingError(reason, hint=hint)


def root_cause(error: BaseException) -> str:
    while error.__cause__ or error.__context__:
        error = error.__cause__ or error.__context__ or error
    return " ".join(str(error).split())[:200]


OLDEST = (4, 3)
_INSTALL_PODMAN = "install Podman 4.3 or newer: the package podman"
#: Where CDI specifications are, by the specification of CDI.
_SPECIFICATIONS = (Path("/etc/cdi"), Path("/var/run/cdi"))
_CDI_KIND = "nvidia.com/gpu"
_QUICK_S = 60
_NO_IMAGE = re.compile(r"no such image|image not known|unable to find", re.IGNORECASE)


def connect_podman() -> Endpoint:
    """Return the Podman of this user. Raises MissingError with the reason if there is none."""
    program = shutil.which("podman")
    if program is None:
        raise MissingError("Podman is not installed", hint=_INSTALL_PODMAN)
    found = processes.run([program, "version", "--format", "{{.Client.Version}}"], timeout_s=_QUICK_S)
    version = found.stdout.decode("utf-8", "replace").strip()
    numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
    if not found.ok or len(numbers) < 2:
        last = processes.last_line(found.stderr_tail)
        raise MissingError(f"Podman does not work: {last}", hint="run `podman info`")
    if numbers < OLDEST:
        raise MissingError(f"Podman {version} is too old; 4.3 or newer is needed", hint=_INSTALL_PODMAN)
    address = f"unix://{_podman_service(program)}"
    try:
        quick = Client(address, timeout=ANSWER_WITHIN_S)
        info = quick.info()
        client = Client(address, timeout=BUSY_TIMEOUT_S)
    except (DockerException, requests.RequestException) as error:
        raise MissingError(f"Podman's service does not respond: {root_cause(error)}") from error
    machine = info.get("Architecture")
    known: dict[str, Any] = {
        **info,
        "Architecture": "x86_64" if machine == "amd64" else machine,
        "DiscoveredDevices": [{"ID": f"{_CDI_KIND}={name}"} for name in sorted(set(_cdi_devices()))],
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


def connect_any(docker: Callable[[], Endpoint]) -> Endpoint:
    """Return the Docker Engine, or Podman where there is none. Raises MissingError with both reasons.

    docker: connects to the Docker Engine, for example `connect`.
    """
    try:
        return docker()
    except MissingError as error:
        try:
            return connect_podman()
        except MissingError as other:
            raise MissingError(f"{error}; {other}", hint=error.hint) from error


@functools.cache
def _podman_service(program: str) -> Path:
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


def _cdi_devices() -> Iterator[str]:
    """Yield the names of NVIDIA's GPUs in the CDI specifications of this machine."""
    for directory in _SPECIFICATIONS:
        for path in sorted((*directory.glob("*.yaml"), *directory.glob("*.json"))):
            with contextlib.suppress(yaml.YAMLError, ValidatorError, OSError):
                found = yaml.safe_load(read_text(path))
                if isinstance(found, dict) and found.get("kind") == _CDI_KIND:
                    yield from (str(one["name"]) for one in found.get("devices", ()) if "name" in one)


def podman_create(endpoint: Endpoint, image: str, command: Sequence[str], arguments: Sequence[str]) -> str:
    """Create a container and return its id. command: the program and its arguments. arguments: of podman.

    Raises APIError, and ImageNotFound if there is no such image.
    """
    # Keep this machine's proxies, with their credentials, out of the container.
    options = ["--pull=never", "--http-proxy=false", *arguments, "--entrypoint", command[0]]
    done = processes.run(
        [endpoint.program, "create", *options, image, *command[1:]], timeout_s=BUSY_TIMEOUT_S
    )
    if not done.ok:
        kind = ImageNotFound if _NO_IMAGE.search(done.stderr_tail) else APIError
        raise kind(done.stderr_tail, explanation=done.stderr_tail)
    return done.stdout.decode("ascii", "replace").strip()


def podman_save(endpoint: Endpoint, reference: str, path: Path) -> None:
    """Write an image to an archive in the format of OCI. Raises ValidatorError."""
    options = ["--quiet", "--format=oci-archive", f"--output={path}"]
    done = processes.run([endpoint.program, "save", *options, reference])
    if not done.ok:
        raise ValidatorError(f"{reference} can't be saved: {' '.join(done.stderr_tail.split())[-300:]}")
