"""Read the commands that people ran: how they started a container and what they installed.

A command may stand after a prompt, in a Dockerfile, in a notebook or in the middle of a sentence.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from .observations import normalized

_Values = tuple[str, Mapping[str, str]]

#: The kinds that commands show, with the names of their values.
KINDS: Mapping[str, frozenset[str]] = {
    "docker_run": frozenset({"gpus", "image", "engine", "runtime_class"}),
    "pip_install": frozenset({"name", "version", "spec", "extra"}),
    "conda_install": frozenset({"name", "version", "build", "channel"}),
}
#: How many commands of one kind are read in a line, and how many characters of each.
_MOST, _LONGEST = 10, 1500
#: Packages that say something about the GPU, by the beginning of their normalized names.
_PACKAGES = re.compile(
    r"(?:tensorflow|tf-nightly|tf-keras|keras|nvidia-|torch|jax|numpy|protobuf|cuda|cudnn|python$|intel-tensorflow)"
)
_CONTAINER = re.compile(
    r"(?P<engine>nvidia-docker2?|docker|podman|nerdctl)(?P<compose>-compose|\s+compose)?(?:\s+container)?"
    r"\s+(?:run|create)\s+"
    r"|(?P<apptainer>apptainer|singularity)\s+(?:-{1,2}\w\S*\s+)*(?:run|exec|shell|instance\s+start)\s+",
    re.IGNORECASE,
)
_PIP = re.compile(
    r"(?:pip[\d.]*|uv\s+pip|uv|poetry|pipenv|pipx)[\"',\s]+(?:install|add|download)(?:[\"']?\s*,\s*[\"']?|\s+)",
    re.IGNORECASE,
)
_CONDA = re.compile(
    r"(?:micromamba|mamba|conda)\s+(?:-{1,2}\S+\s+)*(?:install|create|update)\s+", re.IGNORECASE
)
#: What stands before a command that was typed: a prompt, a mark of a notebook or a list, variables.
_TYPED = re.compile(
    r"\s*(?:\([\w. -]{1,40}\)\s*)?(?:[\w.@:~/\\\[\]-]*(?: [\w.@:~/\\\[\]-]+)?[$#>%]+\s*)?"
    r"(?:In ?\[\d*\]:\s*)?[!%]*(?:RUN\s+|[-*]\s+|\d+[.)]\s+)?[`'\"]*"
    r"(?:(?:sudo|time|nohup|exec|python[\d.]*|-m|\w+=\S*)\s+)*"
)
_WORD = re.compile(r"(?:[^\s\"']|\"[^\"]*\"|'[^']*'|[\"'])+")
_ENDS_COMMAND = re.compile(r"[;|`\n]|&&|\s>|\s#\s")
#: Options of `docker run` that take a value in the next word.
_OPTIONS = (
    "-v -e -p -w -u -h -m -l --volume --env --publish --workdir --user --hostname --memory --label --name"
    " --net --network --ipc --pid --shm-size --ulimit --mount --env-file --entrypoint --cpus --restart"
    " --platform --pull --security-opt --cap-add --group-add --tmpfs --expose --add-host --dns --device"
    " --gpus --runtime --cgroupns -B --bind --home --pwd --overlay"
)
_WITH_VALUE = frozenset(_OPTIONS.split())
_IMAGE = re.compile(r"(?:docker://|/)?[a-z0-9][\w.-]*(?:[/:][\w.@:-]+)*(?:/[\w.@:-]+)*")
#: Images whose names have no sign of an image, such as a colon.
_PLAIN_IMAGES = frozenset({"ubuntu", "debian", "python", "centos", "fedora", "image", "myimage", "busybox"})
_REQUIREMENT = re.compile(
    r"(?P<name>[A-Za-z][\w.-]*?)(?:\[(?P<extra>[\w, -]*)\])?"
    r"(?P<spec>(?:\s*(?:===?|~=|!=|<=?|>=?)\s*[\w.*+!]+,?)*)"
)
_CONDA_SPEC = re.compile(
    r"(?:(?P<channel>[\w-]+)(?:/[\w-]+)?::)?(?P<name>[a-z][\w.-]*)"
    r"(?:(?:==?|>=|<=|<|>)(?P<version>\d[\w.*]*)(?:=(?P<build>[\w.*]+))?)?"
)


class Shown(NamedTuple):
    """A fact that a command shows. typed: it is not part of a sentence. text: how it begins in the line."""

    kind: str
    values: Mapping[str, str]
    typed: bool
    text: str


def read_commands(line: str) -> Iterator[Shown]:
    """Yield everything that the commands in a line show."""
    for pattern, reader in _READERS:
        for match in itertools.islice(pattern.finditer(line), _MOST):
            before = line[max(0, match.start() - _LONGEST) : match.start()]
            if before and (before[-1].isalnum() or (before[-1] in "-_./" and not before.endswith("/bin/"))):
                continue
            rest = line[match.end() : match.end() + _LONGEST]
            end = _ENDS_COMMAND.search(_without_quoted(rest))
            typed = _TYPED.fullmatch(before) is not None or before.rstrip().endswith(("&&", ";", "`"))
            words = _words(rest[: end.start()] if end else rest)
            for kind, values in reader(match, words, typed):
                yield Shown(kind, values, typed, match[0])


def _without_quoted(text: str) -> str:
    """Return a text of the same length in which quoted parts can't end a command."""
    return re.sub(r"\"[^\"]*\"|'[^']*'", lambda quoted: "x" * len(quoted[0]), text)


def _words(text: str) -> list[str]:
    """Return the words of a command without their quotes. (`shlex` fails at an apostrophe.)"""
    return [word.replace('"', "").replace("'", "") for word in _WORD.findall(text)]


def _container(match: re.Match[str], words: Sequence[str], typed: bool) -> Iterator[_Values]:
    engine = (match["engine"] or match["apptainer"]).lower()
    apptainer = match["apptainer"] is not None
    gpus = "yes" if engine.startswith("nvidia-docker") else "no"
    image, position = "", 0
    while position < len(words):
        word = words[position]
        following = words[position + 1] if position + 1 < len(words) else ""
        if not word.startswith("-"):
            image = word
            break
        name, equals, value = word.partition("=")
        takes = name in _WITH_VALUE or (name[:2] in _WITH_VALUE and len(name) == 2)
        if not equals and takes:
            value, position = following, position + 1
        if _gives_gpus(name, value, apptainer):
            gpus = "yes"
        position += 1
    if match["compose"]:
        # The service's definition decides about its GPUs.
        if gpus == "yes":
            yield "docker_run", {"gpus": gpus, "engine": "compose"}
        return
    marked = any(sign in image for sign in "/:_.") or image.lower() in _PLAIN_IMAGES
    if gpus == "yes":
        values = {"gpus": gpus, "engine": engine}
        yield "docker_run", {**values, "image": image} if _IMAGE.fullmatch(image) else values
    elif _IMAGE.fullmatch(image) and (marked or (typed and position > 0)):
        yield "docker_run", {"gpus": gpus, "engine": engine, "image": image}


def _gives_gpus(name: str, value: str, apptainer: bool) -> bool:
    if apptainer:
        return name in ("--nv", "--nvccli")
    if name == "--gpus":
        return value.strip("\"'") not in ("0", "none", "")
    return (name == "--runtime" and value == "nvidia") or (
        name == "--device" and value.startswith(("nvidia.com/gpu", "/dev/nvidia"))
    )


def _pip(match: re.Match[str], words: Sequence[str], typed: bool) -> Iterator[_Values]:
    skip = False
    for word in words:
        if skip or word.startswith("-"):
            skip = not skip and word in ("-r", "-c", "-i", "--index-url", "--extra-index-url", "-t", "-f")
            continue
        requirement = _REQUIREMENT.fullmatch(word.strip("\"',.()"))
        if requirement is None:
            # The words of a sentence go on after the package's name.
            if not typed:
                return
            continue
        name = normalized(requirement["name"])
        if not _PACKAGES.match(name):
            if not typed:
                return
            continue
        spec = requirement["spec"].replace(" ", "")
        pinned = re.fullmatch(r"===?([\w.+!]+)", spec)
        values = {
            "name": name,
            "version": pinned[1] if pinned else "",
            "spec": "" if pinned else spec,
            "extra": requirement["extra"] or "",
        }
        yield "pip_install", {key: value for key, value in values.items() if value}


def _conda(match: re.Match[str], words: Sequence[str], typed: bool) -> Iterator[_Values]:
    channel, skip = "", ""
    found: list[dict[str, str]] = []
    for word in words:
        if skip:
            channel = channel or (word if skip in ("-c", "--channel") else "")
            skip = ""
            continue
        if word.startswith("-"):
            name, equals, value = word.partition("=")
            if name == "--channel" and equals:
                channel = channel or value
            elif name in ("-c", "--channel", "-n", "--name", "-p", "--prefix", "-f", "--file"):
                skip = name
            continue
        spec = _CONDA_SPEC.fullmatch(word.strip("\"',.()").lower())
        if spec is not None and _PACKAGES.match(spec["name"]):
            found.append({name: value for name, value in spec.groupdict().items() if value})
        elif not typed:
            break
    for values in found:
        yield "conda_install", {**({"channel": channel} if channel else {}), **values}


_Reader = Callable[[re.Match[str], Sequence[str], bool], Iterator[_Values]]
_READERS: tuple[tuple[re.Pattern[str], _Reader], ...] = (
    (_CONTAINER, _container),
    (_PIP, _pip),
    (_CONDA, _conda),
)
