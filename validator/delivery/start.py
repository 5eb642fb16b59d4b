"""Describe what the container of an image needs on a host, and write it as a command or a script.

`formats` writes it for tools that take a file.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
import shlex
import textwrap
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import yaml

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


# What all formats share: comments, YAML and JSON.

_WIDTH = 100
_STEP = "  "


@dataclass(frozen=True)
class Noted:
    """A value of a mapping or list, with a comment that says why it is there."""

    value: Any
    why: str


def header(image: Image, *more: str) -> list[str]:
    """Return the sentences at the top of every file: what the image is and how the file is used."""
    loud = () if image.certified else ("NOT CERTIFIED.",)
    return [image.name, *loud, *image.standing, *more]


def sentence(text: str) -> str:
    """Return a reason as a sentence."""
    return f"{text[0].upper()}{text[1:]}."


def comments(texts: Iterable[str], mark: str = "#", indent: str = "") -> list[str]:
    """Return the lines of comments. Nothing in a text can end its comment."""
    lines = []
    for text in texts:
        visible = (
            "?" if unicodedata.category(one) in ("Cc", "Cf", "Cs", "Zl", "Zp") and one not in "\n\t" else one
            for one in text
        )
        shown = " ".join("".join(visible).split())
        width = max(40, _WIDTH - len(indent) - len(mark))
        wrapped = textwrap.wrap(shown, width, break_long_words=False, break_on_hyphens=False)
        lines += [f"{indent}{mark} {line}" for line in wrapped]
    return lines


def assignment(name: str, value: str) -> str:
    """Return `NAME=value` for a shell."""
    return f"{name}={shlex.quote(value)}"


def to_yaml(document: Mapping[str, Any]) -> str:
    """Return a mapping as YAML. Every text is in double quotes, which have an escape for each character."""
    return "".join(f"{line}\n" for line in _yaml(document, ""))


def _yaml(value: Any, indent: str) -> list[str]:
    """Return the lines of a mapping or list that is not empty; nothing for other values."""
    pairs: Iterable[tuple[str | None, Any]] = ()
    if isinstance(value, Mapping):
        pairs = value.items()
    elif isinstance(value, list):
        pairs = [(None, item) for item in value]
    lines = []
    for key, given in pairs:
        inner, notes = _unpack(given, "#", indent)
        lines += notes
        before = f"{indent}-" if key is None else f"{indent}{key}:"
        nested = _yaml(inner, indent + _STEP)
        if not nested:
            lines.append(f"{before} {_scalar(inner)}")
        elif key is None and isinstance(inner, Mapping):
            # A comment on the first key would come between the dash and the key.
            first = next(at for at, line in enumerate(nested) if not line.lstrip().startswith("#"))
            lines += [line[len(_STEP) :] for line in nested[:first]]
            lines += [f"{before} {nested[first].lstrip()}", *nested[first + 1 :]]
        else:
            lines += [before, *nested]
    return lines


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return str(yaml.dump(value, default_style='"', width=math.inf, allow_unicode=True)).strip()
    return json.dumps(value)


def to_jsonc(document: Mapping[str, Any], top: Iterable[str]) -> str:
    """Return a mapping as JSON with comments. top: the comments before it."""
    lines = [*comments(top, "//"), *_json(document, "", "")]
    return "".join(f"{line}\n" for line in lines)


def _json(value: Any, indent: str, before: str) -> list[str]:
    """Return the lines of a value. before: what is on its first line, such as the key."""
    is_mapping = isinstance(value, Mapping)
    if not value or not (is_mapping or isinstance(value, list)):
        return [f"{indent}{before}{json.dumps(value, ensure_ascii=False)}"]
    opening, closing = ("{", "}") if is_mapping else ("[", "]")
    pairs = (
        [(f"{json.dumps(key)}: ", inner) for key, inner in value.items()]
        if is_mapping
        else [("", inner) for inner in value]
    )
    lines = [f"{indent}{before}{opening}"]
    for number, (key, given) in enumerate(pairs, 1):
        inner, notes = _unpack(given, "//", indent + _STEP)
        written = _json(inner, indent + _STEP, key)
        if number < len(pairs):
            written[-1] += ","
        lines += [*notes, *written]
    return [*lines, f"{indent}{closing}"]


def _unpack(given: Any, mark: str, indent: str) -> tuple[Any, list[str]]:
    if isinstance(given, Noted):
        return given.value, comments([given.why], mark, indent)
    return given, []


# Write the command line of Docker and of Podman, with the reason for each flag.


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
    image = start.image.in_transport if start.image.place is Place.LAYOUT else start.image.reference
    return _command("podman", start, podman_flags(start), image)


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
    return [*found, *_variables(start), *_xla_volume(start)]


def podman_flags(start: Start) -> list[Flag]:
    """Return the flags for Podman, which runs containers as the user who starts them."""
    found = _first(start)
    rootless = start.user.uid != 0
    if start.host is not None:
        # Podman's --gpus came with 5.0, and makes the same request.
        found.append(Flag(("--device", "nvidia.com/gpu=all"), "all GPUs, as CDI devices"))
    if start.host is not None or start.directory is not None:
        why = "with SELinux, lets the container use the GPUs and your files without new labels"
        found.append(Flag(("--security-opt", "label=disable"), why))
    # A user may not raise the limit, and the container would not start.
    found += _memory(start, may_pin=not rootless)
    if start.directory is not None:
        found += _mount(start.directory)
        if rootless:
            found.append(Flag(("--userns", "keep-id"), "your user has the same number in the container"))
        user = f"{start.user.uid}:{start.user.gid}"
        found.append(Flag(("--user", user), "files that it writes there belong to you"))
    if start.image.plain_http:
        found.append(Flag(("--tls-verify=false",), "the registry answers without TLS"))
    # With keep-id the files belong to another user of the host than without.
    of_user = "-keep-id" if rootless and start.directory is not None else ""
    return [*found, *_variables(start), *_xla_volume(start, of_user)]


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


def _xla_volume(start: Start, of_user: str = "") -> list[Flag]:
    if not start.xla_volume:
        return []
    volume = f"type=volume,source={start.xla_volume}{of_user},target={XLA_CACHE}"
    return [Flag(("--mount", volume), start.xla_why)]


def _variables(start: Start) -> list[Flag]:
    why = {
        "HOME": "in the image, your user may have no home directory",
        **dict.fromkeys(start.xla_variables(XLA_CACHE), start.xla_why),
        **dict.fromkeys(("CUDA_CACHE_PATH", "KERAS_HOME", "XDG_CACHE_HOME"), CACHE_WHY),
        **dict.fromkeys(start.environment, "you set it with --env"),
    }
    home = "/tmp" if start.directory is not None else None
    return [Flag(("--env", f"{name}={value}"), why[name]) for name, value in start.variables(home).items()]


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


# Write a shell script for Apptainer (https://apptainer.org/docs/user/latest/).

_SHEBANG = "#!/bin/sh"
#: A variable with this prefix is set in the container without it, also with --cleanenv.
_PREFIX = "APPTAINERENV_"


def write_apptainer(start: Start) -> str:
    """Return the script."""
    lines = [_SHEBANG, *comments(header(start.image)), "set -eu", *body(start)]
    return "".join(f"{line}\n" for line in lines)


def body(start: Start) -> list[str]:
    """Return the lines of a shell script that replace the shell by the container."""
    words, told = ["apptainer", "run"], []
    if start.host is not None:
        words.append("--nv")
        told.append("--nv: all GPUs that this process may use, with the host's driver.")
    # Otherwise a shell evaluates variables and arguments: it runs what is between backticks.
    words.append("--no-eval")
    told.append("--no-eval: variables and arguments are taken as they are written (Apptainer 1.1 and newer).")
    words.append("--cleanenv")
    told.append("--cleanenv: no variables of the host, such as PYTHONPATH, change what is in the image.")
    if start.directory is not None:
        words += ["--mount", bind(start.directory, "destination"), "--pwd", WORKSPACE]
        where = f"this directory is {WORKSPACE} in the container, and the command starts there"
        told.append(f"--mount, --pwd: {where}.")
    image = start.image.in_transport
    if start.image.place is Place.LAYOUT:
        # https://github.com/apptainer/apptainer/blob/v1.4.0/internal/pkg/ociimage/sourcesink.go
        told.append(
            "oci: Apptainer converts the image in this directory, and caches the result. Apptainer before 1.4"
            f" does not take a digest; there it is {shlex.quote(image)}."
        )
        image = f"{image.rpartition(':')[0]}@{start.image.digest}"
    if start.image.plain_http:
        words.append("--no-https")
        told.append("--no-https: the registry answers without TLS.")
    told.append("Nothing is needed for your user or for shared memory: the container has those of the host.")
    if start.port is not None:
        told.append(
            f"The container has the host's network: JupyterLab answers on port {start.port} of this machine,"
            " to whoever has its token."
        )
    variables = {**(cache_variables(WORKSPACE) if start.directory is not None else {}), **start.environment}
    exports = [f"export {assignment(_PREFIX + name, value)}" for name, value in variables.items()]
    notes = comments([sentence(CACHE_WHY)]) if start.directory is not None else []
    line = shlex.join([*words, image, *start.command])
    return [*_xla_exports(start), *notes, *exports, *comments(told), f"exec {line}"]


def _xla_exports(start: Start) -> list[str]:
    """Return lines that keep what XLA compiles in the user's home directory, which Apptainer mounts."""
    if not start.xla_caches:
        return []
    where = "The cache is in your home directory, which is also mounted in the container."
    lines = comments([sentence(start.xla_why), where])
    for name, value in start.xla_variables("/.cache/tensorflow-gpu-matrix/xla").items():
        home = '"${HOME:-/tmp}"' if value.startswith("/") else ""
        lines.append(f"export {_PREFIX}{name}={home}{shlex.quote(value)}")
    return lines


# Write a batch script for Slurm, which runs the image with Apptainer (https://slurm.schedmd.com/sbatch.html).

_PROCESSORS = 4


def write_slurm(start: Start) -> str:
    """Return the script. Raises InputError if nothing would run in the job."""
    if not start.command and start.port is None:
        raise InputError(
            "a batch job needs a command: by itself, the image starts Python, which reads from a terminal",
            hint="add it after --, such as -- python train.py",
        )
    how = "Submit it with: sbatch FILE"
    lines = ["#!/bin/bash", *comments(header(start.image, how)), *_requests(start), "set -eu"]
    if start.directory is not None:
        lines += [*comments(["This directory has to be there on the node as well."])]
        lines += [f"cd -- {shlex.quote(str(start.directory))}"]
    if start.image.place is Place.LAYOUT:
        lines += comments(["The directory of the image has to be there on the node as well."])
    if start.host is not None:
        lines += [
            *comments(["Slurm says which GPUs belong to this job; not every cluster hides the others."]),
            'if [ -n "${CUDA_VISIBLE_DEVICES:-}" ]; then',
            '    export APPTAINERENV_CUDA_VISIBLE_DEVICES="$CUDA_VISIBLE_DEVICES"',
            "fi",
        ]
    return "".join(f"{line}\n" for line in [*lines, *body(start)])


def _requests(start: Start) -> list[str]:
    lines = ["#SBATCH --job-name=tensorflow", "#SBATCH --nodes=1", "#SBATCH --ntasks=1"]
    why = f"Slurm gives 1 processor by default. The input pipeline of tf.data uses {_PROCESSORS}."
    lines += comments([why])
    lines.append(f"#SBATCH --cpus-per-task={_PROCESSORS}")
    if start.host is not None:
        capabilities = ", ".join(map(str, start.host.capabilities))
        why = (
            f"GPUs of compute capability {capabilities} with driver branch {start.host.driver.branch}:"
            " add the partition or the constraint of such nodes, as your site names them."
        )
        lines += comments([why])
        lines.append(f"#SBATCH --gres=gpu:{start.gpu_count}")
    lines += comments(["The longest time that the job may take. Slurm starts short jobs earlier."])
    lines.append("#SBATCH --time=01:00:00")
    lines += comments(["The output goes to this file: %x is the name of the job, and %j its number."])
    return [*lines, "#SBATCH --output=%x-%j.log"]
