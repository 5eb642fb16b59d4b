"""Describe what the container of an image needs on a host. The modules of `formats` write it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from ..assemble.configuration import XLA_CACHE
from ..compat import facts
from ..engines.containers import device_requests
from ..errors import InputError, MissingError
from ..versions import release_range
from .choose import Host

#: The working directory in the container, where the user's files are.
WORKSPACE = "/workspace"
#: What NCCL's documentation recommends for containers (Troubleshooting, Shared memory).
SHARED_MEMORY_GIB = 1
SHARED_MEMORY_WHY = (
    "NCCL passes data between GPUs through /dev/shm, and so do the worker processes of input pipelines;"
    " the default of 64 MB is too small for them"
)
PINNED_MEMORY_WHY = "NCCL pins memory when it uses several GPUs"
CACHE_WHY = (
    "caches that outlive the container: the kernels that CUDA compiles for the GPU, data sets and weights of"
    " Keras"
)

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: Characters that change the text direction, and so can disguise a line.
_DIRECTIONS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


class Devices(str, Enum):
    """The way a container requests the GPUs. AUTO: as the local engine offers them."""

    AUTO = "auto"
    GPUS = "gpus"
    CDI = "cdi"


class Place(Enum):
    """Where an image is: in a registry, in the local engine, or in an OCI layout, a directory."""

    REGISTRY = "registry"
    ENGINE = "engine"
    LAYOUT = "layout"


@dataclass(frozen=True)
class Image:
    """The image to start.

    reference: by digest, the id in the local engine, or `DIRECTORY:TAG` of an OCI layout. name: for people.
    standing: sentences that say what its certificate covers, or why it is not certified. checks_host: whether
    its entry point checks the driver and the GPUs. port: where its own command answers. place: where it is.
    tag: `NAME:TAG` in the local engine, if it is there and has one. plain_http: whether its registry answers
    without TLS. tensorflow, digest: name the cache of XLA; the first is empty for somebody else's image.
    """

    reference: str
    name: str
    standing: tuple[str, ...]
    certified: bool
    checks_host: bool = True
    port: int | None = None
    place: Place = Place.REGISTRY
    tag: str = ""
    plain_http: bool = False
    tensorflow: str = ""
    digest: str = ""

    @property
    def in_transport(self) -> str:
        """The image as Podman and Apptainer name it, with its transport (containers-transports(5))."""
        return f"oci:{self.reference}" if self.place is Place.LAYOUT else f"docker://{self.reference}"


@dataclass(frozen=True)
class User:
    """The user who owns the files. rootless: whether the Docker Engine is this user's own, without root."""

    uid: int
    gid: int
    rootless: bool = False

    @property
    def in_docker(self) -> str:
        """The user of a container of the Docker Engine whose files belong to this user."""
        return "0:0" if self.rootless else f"{self.uid}:{self.gid}"


@dataclass(frozen=True)
class Start:
    """The needs of a container. host: None if it uses no GPUs.

    devices: how a Docker Engine gives them, not AUTO. directory: the one to mount as WORKSPACE, or None.
    environment: the variables that the user asks for. command: words in place of the image's own command.
    terminal: `-it`, `-i` or empty, as the command needs. xla_cache: let XLA keep what it compiles, where it
    can.
    """

    image: Image
    host: Host | None
    devices: Devices | None
    user: User
    directory: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    terminal: str = ""
    xla_cache: bool = True

    def __post_init__(self) -> None:
        for name, value in self.environment.items():
            if not _VARIABLE.fullmatch(name):
                raise InputError(
                    f"--env: {name!r} is not the name of an environment variable",
                    hint="use letters, digits and _, and don't start with a digit",
                )
            _check(f"the value of {name}", value)
        if self.directory is not None:
            _check("the path of the current directory", str(self.directory))
        if self.image.place is Place.LAYOUT:
            _check("the path of the OCI layout", self.image.reference)
        for word in self.command:
            _check("the command", word)

    @property
    def gpu_count(self) -> int:
        return len(self.host.gpus) if self.host else 0

    @property
    def port(self) -> int | None:
        """The port on which the image's own command answers. Another command does not."""
        return None if self.command else self.image.port

    def variables(self, home: str | None = None) -> dict[str, str]:
        """Return the variables; the user's own come last. home: for a user whom the image does not know."""
        own = {"HOME": home} if home else {}
        caches = cache_variables(WORKSPACE) if self.directory is not None else {}
        return {**own, **caches, **self.xla_variables(XLA_CACHE), **self.environment}

    @property
    def xla_caches(self) -> list[facts.Row]:
        """The rows of the facts about what this TensorFlow's XLA can cache; empty if nothing is to be cached.

        The entry point prepares the directory, and the facts are about the wheels of releases only.
        """
        release = self.image.tensorflow
        if not (self.xla_cache and self.host and self.image.checks_host and release) or "+" in release:
            return []
        return [
            row for row in facts.rows("xla", "caches") if release_range(row["releases"]).contains(release)
        ]

    @property
    def xla_why(self) -> str:
        """Say what XLA keeps, and from which release on."""
        kept = " and ".join(f"{one['keeps']} (TensorFlow {one['releases']})" for one in self.xla_caches)
        return (
            f"XLA keeps {kept} for the next start: at most 2 GiB, in a separate directory for each user,"
            " image, GPU and driver, and nothing if less than 1 GiB is free. If the disk fills up while the"
            " program runs, TensorFlow aborts it. --no-xla-cache turns this off"
        )

    @property
    def xla_volume(self) -> str:
        """The name of the volume for it, which belongs to the user alone; empty if XLA keeps nothing."""
        return f"{Path(XLA_CACHE).name}-{self.user.uid}" if self.xla_caches else ""

    def xla_variables(self, directory: str) -> dict[str, str]:
        """Return the variables for the entry point. directory: where XLA keeps what it compiles."""
        if not (caches := self.xla_caches):
            return {}
        name = f"{self.image.tensorflow}-{self.image.digest.rpartition(':')[2][:16]}"
        flags = " ".join(one["flag"] for one in caches)
        return {"VALIDATOR_XLA_CACHE": f"{directory}/{name}", "VALIDATOR_XLA_CACHE_FLAGS": flags}


def cache_variables(directory: str) -> dict[str, str]:
    """Return the variables that put the caches into a directory that the user can write to."""
    cache = f"{directory}/.cache"
    return {
        # CUDA C++ Programming Guide, CUDA Environment Variables. The default is ~/.nv/ComputeCache.
        "CUDA_CACHE_PATH": f"{cache}/cuda",
        # keras.src.backend.config. The default is ~/.keras.
        "KERAS_HOME": f"{cache}/keras",
        # XDG Base Directory Specification: pip, matplotlib and others.
        "XDG_CACHE_HOME": cache,
    }


def user_of(info: Mapping[str, Any], uid: int, gid: int) -> User:
    """Return the user, who in a rootless Docker Engine is root. info: the answer of `docker info`."""
    rootless = any("name=rootless" in str(option) for option in info.get("SecurityOptions") or [])
    return User(uid, gid, rootless)


def devices_of(info: Mapping[str, Any]) -> Devices:
    """Return how an engine offers GPUs, judged by `docker info`. Raises MissingError if it offers none."""
    requests = device_requests(info)
    if not requests:
        raise MissingError(
            "the local Docker Engine offers no GPUs: it has neither an nvidia runtime nor CDI devices",
            hint="install the NVIDIA Container Toolkit and run `sudo nvidia-ctk runtime configure"
            " --runtime=docker`, or `sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`; to"
            " write it for another machine, pass --devices gpus or --devices cdi",
        )
    return Devices.CDI if requests[0]["Driver"] == "cdi" else Devices.GPUS


def parse_variables(texts: Iterable[str]) -> dict[str, str]:
    """Parse the values of `--env`: `NAME=VALUE`. Raises InputError. `Start` checks names and values."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"--env: {text!r} has no value", hint="write NAME=VALUE")
        found[name] = value
    return found


def _check(what: str, text: str) -> None:
    """Raise InputError for characters that nobody sees in a file, or that no file can have."""
    for character in text:
        category = unicodedata.category(character)
        if (
            (category == "Cc" and character not in "\n\t")
            or category in ("Cs", "Zl", "Zp")
            or unicodedata.bidirectional(character) in _DIRECTIONS
        ):
            raise InputError(
                f"{what} contains the character U+{ord(character):04X}, which can't be read in a file",
                hint="leave it out, or rename the directory",
            )
