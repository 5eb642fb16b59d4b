"""Runs the probe in a container of any image, and always removes the container."""

from __future__ import annotations

import contextlib
import io
import re
import secrets
import tarfile
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import docker
import msgspec
import requests
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from docker.models.containers import Container
from docker.types import CancellableStream, DeviceRequest, LogConfig

from ..errors import InputError, MissingError, ValidatorError
from ..model.spec import PROJECT, image_reference
from ..system import processes, runs
from ..system.files import says_full_disk
from ..system.processes import Progress
from ..system.runs import Note
from .endpoint import Endpoint, disk_full, engine_gone, podman_create, read
from .protocol import NO_PYTHON, START, ProbeRequest, no_report

_CDI = "nvidia.com/gpu="
_CDI_ALL = f"{_CDI}all"


class _Device(msgspec.Struct):
    id: str = msgspec.field(name="ID", default="")


class _Info(msgspec.Struct, rename="pascal"):
    runtimes: dict[str, Any] | None = None
    discovered_devices: list[_Device] | None = None


def offers_gpus(info: Mapping[str, Any]) -> bool:
    """Return True if an engine can provide NVIDIA GPUs to containers, according to `docker info`."""
    return bool(device_requests(info))


def device_requests(info: Mapping[str, Any], uuids: Sequence[str] = ()) -> list[DeviceRequest]:
    """Return the device requests for these GPUs, or for all; empty if the engine offers none.

    The nvidia runtime is preferred, because only it checks NVIDIA_REQUIRE_CUDA. The alternative is CDI:
    engines since 28.2 list the CDI devices that they found. Raises MissingError if CDI has no devices that
    are named by UUID.
    """
    found = read(info, _Info, "itself")
    if "nvidia" in (found.runtimes or {}):
        chosen: dict[str, Any] = {"device_ids": list(uuids)} if uuids else {"count": -1}
        return [DeviceRequest(capabilities=[["gpu"]], **chosen)]
    devices = {device.id for device in found.discovered_devices or ()}
    if _CDI_ALL not in devices:
        return []
    asked = [f"{_CDI}{uuid}" for uuid in uuids] or [_CDI_ALL]
    if not devices.issuperset(asked):
        raise MissingError(
            "this machine has GPUs of several models, but its CDI devices are not named by UUID, so a"
            " container can't be given the GPUs of one model",
            hint="run `nvidia-ctk cdi generate --device-name-strategy=uuid --output=/etc/cdi/nvidia.yaml`",
        )
    return [DeviceRequest(driver="cdi", device_ids=asked)]


#: The directory of the probe's files in the container.
_DIRECTORY = "validator-probe"
#: No report is this large. The limit prevents endless output from filling the memory.
_LARGEST_REPORT = 64 * 2**20
#: TensorFlow starts several threads per core; a fork bomb would start more than this.
_PIDS_LIMIT = 16384
#: The share of the engine's memory that a probe may use.
_MEMORY_SHARE = 0.8
_LINES_KEPT = 50
#: The exit status of a process that SIGKILL ended.
_KILLED = 128 + 9

#: A piece of a container's output: on stdout, or on stderr.
Frame = tuple[bytes | None, bytes | None]


def run_probe(endpoint: Endpoint, image: str, request: ProbeRequest, progress: Progress) -> bytes:
    """Run the probe in a new container of an image and return its standard output.

    The container has no network, no capabilities, none of the host's files or environment variables, limits
    on memory and processes, and the GPUs of the request. It uses the image's user and environment, but not
    its entry point. Raises MissingError if the image does not exist or the engine stops responding, and
    ValidatorError if there is no report within the time limit.
    """
    what = f"the probe in {image}"
    note = intend(endpoint, CONTAINER, new_name())
    try:
        container = _create(endpoint, image, request, note)
        container.put_archive("/", _archive(request))
        return _follow(container, request, what, progress)
    except ImageNotFound as error:
        raise MissingError(f"the engine has no image {image}", hint=_find_image_hint(image)) from error
    except APIError as error:
        raise _explain(what, str(error.explanation or error)) from error
    except (DockerException, requests.RequestException) as error:
        raise engine_gone(what) from error
    finally:
        remove_container(endpoint.client, note)


def remove_leftovers(endpoint: Endpoint) -> int:
    """Remove the probe containers of runs that were killed. Return how many there were."""
    found = leftovers(endpoint, CONTAINER)
    return sum(remove_container(endpoint.client, note) for note in found)


def new_name() -> str:
    """Return a name for a container of this run, with a random number that no other one has."""
    return f"validator-probe-{runs.current().directory.name}-{secrets.token_hex(8)}"


def _find_image_hint(image: str) -> str:
    if re.fullmatch(r"tf\d+\.\d+[\w.+-]*", image):
        return f"the local image of this specification is {image_reference(image)}"
    repository, _, tag = image.partition(":")
    if repository == PROJECT:
        # These names exist in no registry.
        return f"build it with `validator build-matrix --profile full --select image={tag}`"
    if "/" in image:
        return f"pull it with `docker pull {image}`, or list the local images with `docker images`"
    return "list the local images with `docker images`, or give the name that `docker pull` accepts"


def _create(endpoint: Endpoint, image: str, request: ProbeRequest, note: Note) -> Container:
    info = endpoint.info
    limits: dict[str, Any] = {}
    if info.get("MemoryLimit") and info.get("MemTotal"):
        limits["mem_limit"] = int(info["MemTotal"] * _MEMORY_SHARE)
    if info.get("PidsLimit"):
        limits["pids_limit"] = _PIDS_LIMIT
    start = ["/bin/sh", "-c", START, f"/{_DIRECTORY}/probe.pyz"]
    try:
        if endpoint.is_podman:
            made = podman_create(
                endpoint,
                image,
                [*start, *request.arguments],
                _podman_options(endpoint, request, note, limits),
            )
            note.write(container=made)
            return endpoint.client.containers.get(made)
        container = endpoint.client.containers.create(
            image,
            name=note.content["name"],
            entrypoint=start,
            command=list(request.arguments),
            working_dir=f"/{_DIRECTORY}",
            network_mode="none",
            # The image may be hostile, so its container gets no privileges and can't gain any.
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            # By default, the SDK passes the proxies of Docker's client configuration, with their credentials.
            use_config_proxy=False,
            device_requests=device_requests(info, request.gpus),
            # The output is read as it arrives, because a log could fill the engine's disk.
            log_config=LogConfig(type="none"),
            healthcheck={"test": ["NONE"]},
            **limits,
        )
    except APIError:
        note.erase()
        raise
    # Before it is started, so that the next run finds it by its id.
    note.write(container=str(container.id))
    return container


def _podman_options(
    endpoint: Endpoint, request: ProbeRequest, note: Note, limits: Mapping[str, int]
) -> list[str]:
    """Return what `_create` asks of Docker as options of `podman create`."""
    devices = [one for found in device_requests(endpoint.info, request.gpus) for one in found["DeviceIDs"]]
    return [
        f"--name={note.content['name']}", f"--workdir=/{_DIRECTORY}", "--network=none", "--cap-drop=all",
        "--security-opt=no-new-privileges", "--log-driver=none", "--no-healthcheck",
        # To remove a container, Podman asks it to end and waits ten seconds. Docker kills it.
        "--stop-signal=SIGKILL",
        *(f"--device={device}" for device in devices),
        # SELinux would deny the devices.
        *(["--security-opt=label=disable"] if devices else []),
        *([f"--memory={limits['mem_limit']}"] if "mem_limit" in limits else []),
        *([f"--pids-limit={limits['pids_limit']}"] if "pids_limit" in limits else []),
    ]  # fmt: skip


def _archive(request: ProbeRequest) -> bytes:
    """Return the probe's files as a tar archive that any user of the image can read."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        directory = tarfile.TarInfo(_DIRECTORY)
        directory.type, directory.mode = tarfile.DIRTYPE, 0o755
        archive.addfile(directory)
        for name, content in {"probe.pyz": request.archive, **request.files}.items():
            member = tarfile.TarInfo(f"{_DIRECTORY}/{name}")
            member.size, member.mode = len(content), 0o644
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


class _Output:
    """The output of a container, read by a separate thread."""

    def __init__(self, frames: Iterable[Frame], progress: Progress) -> None:
        self.stdout = bytearray()
        self.stderr: deque[str] = deque(maxlen=_LINES_KEPT)
        self.overflow = False
        self.error: BaseException | None = None
        self._progress = progress
        self.thread = threading.Thread(target=self._read, args=(frames,), daemon=True)
        self.thread.start()

    def _read(self, frames: Iterable[Frame]) -> None:
        partial = b""
        try:
            for out, err in frames:
                if out is not None:
                    self.stdout += out
                    if len(self.stdout) > _LARGEST_REPORT:
                        self.overflow = True
                        return
                *lines, rest = (partial + (err or b"")).split(b"\n")
                # A line without an end must not fill the memory.
                partial = rest[-8192:]
                for line in lines:
                    words = line[:8192].decode("utf-8", "replace").rstrip()
                    self.stderr.append(words)
                    self._progress(words)
        except BaseException as error:
            # Raised again by the thread that waits for the output.
            self.error = error


def _follow(container: Container, request: ProbeRequest, what: str, progress: Progress) -> bytes:
    # Attach before the start, so that no output is missed.
    stream = container.attach(stdout=True, stderr=True, stream=True, demux=True)
    try:
        container.start()
        output = _listen(stream, request, what, progress)
    finally:
        # Ends a pending read. The engine may have closed the stream first; over SSH, the SDK can't close it.
        with contextlib.suppress(OSError, DockerException):
            stream.close()
        # close() shuts the socket down but leaks its descriptor (docker 7.2). No public method releases it.
        stream._response.close()  # type: ignore[attr-defined]
    if output.overflow:
        raise ValidatorError(f"{what} wrote more than {_LARGEST_REPORT // 2**20} MB, which can't be a report")
    # The streams have ended because the container or the engine did.
    status = int(container.wait(timeout=30)["StatusCode"])
    if status == NO_PYTHON and not output.stdout:
        raise InputError(
            f"{what}: the image has no Python", hint="choose an image with Python and TensorFlow"
        )
    if not bytes(output.stdout).strip():
        container.reload()
        # Podman doesn't set OOMKilled on every machine.
        if container.attrs.get("State", {}).get("OOMKilled") or status == _KILLED:
            raise ValidatorError(
                f"{what} ran out of memory", hint="increase the memory of the engine's machine"
            )
        raise no_report(what, status, processes.last_line("\n".join(output.stderr)))
    return bytes(output.stdout)


def _listen(
    stream: CancellableStream[Frame], request: ProbeRequest, what: str, progress: Progress
) -> _Output:
    """Return the output of a container when it has ended. Raises ValidatorError at the time limit."""
    output = _Output(stream, progress)
    deadline = time.monotonic() + request.timeout_s
    while output.thread.is_alive():
        # Wait in short intervals, so that `stop_all` and Ctrl-C take effect.
        output.thread.join(timeout=0.2)
        processes.check_stopping()
        if time.monotonic() > deadline:
            raise ValidatorError(
                f"{what} exceeded its time limit of {request.timeout_s:.0f} s and was stopped"
            )
    if isinstance(output.error, (OSError, DockerException)):
        raise engine_gone(what) from output.error
    if output.error is not None:
        raise output.error
    return output


def _explain(what: str, reason: str) -> ValidatorError:
    if says_full_disk(reason):
        return disk_full(what)
    if "unsatisfied condition" in reason:
        condition = reason.partition("unsatisfied condition:")[2].strip().split("\n")[0]
        return MissingError(
            f"{what}: the host's driver is too old for this image ({condition or 'NVIDIA_REQUIRE_CUDA'})",
            hint="install a newer driver, or choose an image with an older CUDA",
        )
    if "setting rlimit" in reason:
        return MissingError(
            f"{what}: this engine asks for limits of a container that this machine does not allow",
            hint="set `default_ulimits` in containers.conf(5) to what `ulimit -Hn` and `ulimit -Hu` say",
        )
    if "/bin/sh" in reason and ("no such file" in reason or "not found" in reason):
        return InputError(
            f"{what}: the image has no /bin/sh, which the probe needs", hint="choose an image with a shell"
        )
    return ValidatorError(f"{what} could not be started: {' '.join(reason.split())[:400]}")


# Note what this machine's runs create in an engine, before it is created, in the notes of `system.runs`.
#
# Only containers and names of images that have a note are ever removed. A label, a name or an image does not
# prove who created something: anybody can copy them.

CONTAINER, LOADING = "container", "loading"
#: Seconds that an engine may take to create a container, even if nobody waits for it any more.
_CREATION_LIMIT_S = 600.0


def intend(endpoint: Endpoint, kind: str, name: str) -> Note:
    """Note that something will be created under this name, which nothing else has.

    Raises MissingError if the note can't be written.
    """
    return runs.current().note(kind, engine=_engine(endpoint), name=name)


def leftovers(endpoint: Endpoint, kind: str) -> list[Note]:
    """Return the notes of runs that were killed, about this engine."""
    return [
        note
        for note in runs.current().inherited(kind)
        if note.content.get("engine") == _engine(endpoint) and "name" in note.content
    ]


def remove_container(client: docker.DockerClient, note: Note) -> bool:
    """Remove a container, running or not, with its volumes. Return True if it was there.

    If the engine does not respond, the note stays for the next run.
    """
    identifier = note.content.get("container")
    try:
        client.api.remove_container(identifier or note.content["name"], force=True, v=True)
    except NotFound:
        if identifier is not None or note.age_s > _CREATION_LIMIT_S:
            note.erase()
        return False
    except (DockerException, requests.RequestException):
        return False
    note.erase()
    return True


def remove_image_name(client: docker.DockerClient, note: Note) -> None:
    """Remove the name of an image. If the engine does not respond, the note stays for the next run."""
    try:
        client.images.remove(note.content["name"], noprune=False)
    except ImageNotFound:
        pass
    except (DockerException, requests.RequestException):
        return
    note.erase()


def _engine(endpoint: Endpoint) -> str:
    """Return the engine's own id, however it is reached, or its address if it has no id."""
    return str(endpoint.info.get("ID") or endpoint.client.api.base_url)
