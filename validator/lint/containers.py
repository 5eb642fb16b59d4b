"""Read from the tag of a base image which software the image contains, if the tag says so."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from yaml import MappingNode, Node, ScalarNode

from ..compat.predict import cudnn_of_image, software_in
from ..errors import InputError
from ..model.prediction import Place
from .pins import (
    READ_WITHIN,
    VISIBLE_DEVICES,
    Environment,
    Source,
    Stated,
    items,
    members,
    place_of,
    read_source,
    root_of,
    scalar,
)

_REFERENCE = re.compile(r"(?:(?P<registry>(?=[^/]*[.:])[^/]*)/)?(?P<name>[^:@]+)(?::(?P<tag>[^@]+))?(?:@.*)?")
_CUDA_TAG = re.compile(
    r"(?P<release>(?P<cuda>\d+\.\d+)(?:\.\d+)?)(?:-(?P<cudnn>cudnn\d*))?-(?P<flavor>base|runtime|devel)(?:-\S+)?"
)
#: A tag that is not moved to another release, as `latest-gpu` is.
_RELEASE = re.compile(r"\d+\.\d+\.\d+")
_PYTHON_TAG = re.compile(r"(?P<python>\d\.\d+)(?:\.\d+)?(?:[-.]\S+)?")
#: Images of distributions, which have no CUDA.
_WITHOUT_CUDA = re.compile(
    r"(?:library/)?(?:ubuntu|debian|buildpack-deps|alpine|fedora|rockylinux|almalinux)"
)


@dataclass(frozen=True)
class BaseImage:
    """The software of a base image, as far as it is known. An empty value is not known.

    without_cuda: True if it has no libraries of CUDA. for_gpu: True if it makes sense only with a GPU.
    """

    cuda: str = ""
    cudnn: str = ""
    python: str = ""
    tensorflow: str = ""
    without_cuda: bool = False
    for_gpu: bool = False


def base_image(reference: str) -> BaseImage:
    """Return what the name of an image says: `nvidia/cuda:12.5.1-cudnn-runtime-ubuntu22.04`."""
    match = _REFERENCE.fullmatch(reference)
    if match is None:
        return BaseImage()
    name, tag = match["name"], match["tag"] or ""
    if name == "nvidia/cuda" or name.endswith("/nvidia/cuda"):
        return _cuda(tag)
    if name == "tensorflow/tensorflow" or name.endswith("/tensorflow/tensorflow"):
        return _tensorflow(tag)
    if match["registry"] == "nvcr.io" and name == "nvidia/tensorflow":
        return BaseImage(for_gpu=True)
    if name in ("python", "library/python"):
        python = _PYTHON_TAG.fullmatch(tag)
        return BaseImage(python=python["python"] if python else "", without_cuda=True)
    return BaseImage(without_cuda=_WITHOUT_CUDA.fullmatch(name) is not None)


def _cuda(tag: str) -> BaseImage:
    match = _CUDA_TAG.fullmatch(tag)
    if match is None:
        return BaseImage(for_gpu=True)
    if match["flavor"] == "base":
        # It has only the runtime library, and TensorFlow loads others.
        return BaseImage(without_cuda=True, for_gpu=True)
    return BaseImage(
        cuda=match["cuda"], cudnn=cudnn_of_image(match["release"], match["cudnn"] or ""), for_gpu=True
    )


def _tensorflow(tag: str) -> BaseImage:
    version, *variants = (tag or "latest").split("-")
    if "gpu" not in variants:
        # A CPU image has the Python and TensorFlow of the GPU image.
        other = _tensorflow("-".join((version, "gpu", *variants)))
        return replace(other, cuda="", cudnn="", without_cuda=other.cuda != "", for_gpu=False)
    try:
        contents = software_in(f"tensorflow/tensorflow:{tag}")
    except InputError:
        contents = None
    if contents is None or contents.cuda is None:
        return BaseImage(for_gpu=True)
    release = contents.tensorflow if _RELEASE.match(tag) else ""
    return BaseImage(contents.cuda, contents.cudnn or "", contents.python or "", release or "", for_gpu=True)


# Split a Dockerfile into instructions and commands, as BuildKit reads it, and substitute its variables.


_INSTRUCTION = re.compile(r"\s*(?P<keyword>[A-Za-z]+)(?:\s+(?P<rest>.*))?$", re.DOTALL)
_ESCAPE = re.compile(r"#\s*escape\s*=\s*`", re.IGNORECASE)
_HEREDOC = re.compile(r"<<-?\s*(?P<quote>['\"]?)(?P<name>[A-Za-z_]\w*)(?P=quote)")
_FLAG = re.compile(r"\s*--[a-z][\w-]*(?:=\S+)?(?=\s)")
_VARIABLE = re.compile(
    r"\\\$|\$(?:(?P<plain>[A-Za-z_]\w*)|\{(?P<name>[A-Za-z_]\w*)(?:(?P<how>:?[-+])(?P<other>[^{}]*))?\})"
)
#: Characters that the values of variables may add to a text. A list of packages has some thousand.
LONGEST_VALUES = 8192
#: A Dockerfile may have this many instructions, and this many variables may be set in a stage.
_MOST_INSTRUCTIONS = 5000
MOST_VARIABLES = 1000
#: Ends a command of a shell, outside of quotes.
_SEPARATOR = re.compile(r"&&|\|\||[;|\n]|(?:^|\s)(?:then|do|else)\s|\(|\)")


@dataclass(frozen=True)
class Instruction:
    """One instruction.

    file: the Dockerfile's name. keyword: in capital letters. rest: what follows, on one line, with line
    breaks only in heredocs. lines: its lines with their numbers.
    """

    file: str
    keyword: str
    rest: str
    lines: tuple[tuple[int, str], ...]

    def place_of(self, pattern: str) -> Place:
        """Return the place where a pattern occurs first, or that of the instruction."""
        for number, text in self.lines:
            match = re.search(pattern, text, re.IGNORECASE)
            if match is not None and not text.lstrip().startswith("#"):
                return Place(self.file, number, match.start() + 1)
        number, text = self.lines[0]
        return Place(self.file, number, len(text) - len(text.lstrip()) + 1)


def instructions(source: Source) -> Iterator[Instruction]:
    """Yield the instructions of a Dockerfile. What is not one is left out."""
    lines = list(enumerate(source.text.splitlines(), start=1))
    escape = "`" if any(_ESCAPE.match(line) for _, line in lines[:5]) else "\\"
    position = count = 0
    while position < len(lines):
        if (count := count + 1) > _MOST_INSTRUCTIONS:
            raise InputError(f"{source.name}: it has more than {_MOST_INSTRUCTIONS:,} instructions")
        start, ended = position, False
        parts: list[str] = []
        while position < len(lines) and not ended:
            line = lines[position][1].rstrip()
            position += 1
            if line.lstrip().startswith("#") or not line.strip():
                # Comments and empty lines may stand between the lines of an instruction.
                ended = not parts
                continue
            ended = not line.endswith(escape)
            parts.append(line if ended else line[: -len(escape)])
        match = _INSTRUCTION.fullmatch(" ".join(parts))
        if match is None:
            continue
        rest, keyword = match["rest"] or "", match["keyword"].upper()
        if keyword in ("RUN", "COPY", "ADD"):
            for heredoc in _HEREDOC.finditer(rest):
                body, position = _heredoc(lines, position, heredoc["name"])
                if keyword == "RUN":
                    rest += "\n" + body
        begin = next(
            index for index in range(start, position) if lines[index][1].strip()[:1] not in ("", "#")
        )
        yield Instruction(source.name, keyword, rest, tuple(lines[begin:position]))


def _heredoc(lines: list[tuple[int, str]], position: int, name: str) -> tuple[str, int]:
    """Return the body of a heredoc and the position of the line after it."""
    body = []
    while position < len(lines):
        line = lines[position][1]
        position += 1
        if line.strip() == name:
            break
        body.append(line)
    return re.sub(r"\\\n", " ", "\n".join(body)), position


def split_options(rest: str) -> tuple[list[tuple[str, str]], str]:
    """Return an instruction's own options, such as `--mount=type=cache`, and the text after them."""
    options = []
    while match := _FLAG.match(rest):
        name, _, value = match[0].strip().removeprefix("--").partition("=")
        options.append((name, value))
        rest = rest[match.end() :]
    return options, rest.strip()


def substituted(text: str, values: Mapping[str, str | None]) -> str | None:
    """Return a text with its variables replaced, or None if one of them is not known.

    values: None for a variable that has no value in the file. Values of more than `LONGEST_VALUES` characters
    together are not known either, because variables that contain each other twice grow without an end.
    """
    unknown = False

    def value(match: re.Match[str]) -> str:
        nonlocal unknown
        name = match["plain"] or match["name"]
        if name is None:
            return match[0]
        known = values.get(name)
        how, other = match["how"] or "", match["other"] or ""
        if how.endswith("+"):
            return other if known else ""
        if known is None or (not known and how == ":-"):
            unknown = unknown or not how
            return other
        return known

    found = _VARIABLE.finditer(text)
    longer = sum(len(values.get(match["plain"] or match["name"] or "") or "") for match in found)
    if longer > LONGEST_VALUES:
        return None
    replaced = _VARIABLE.sub(value, text)
    return None if unknown else replaced


def commands(rest: str) -> Iterator[str]:
    """Yield the commands that a RUN instruction starts, each on one line."""
    _, text = split_options(rest)
    if text.startswith("["):
        try:
            words = json.loads(text)
        except (ValueError, RecursionError):
            words = None
        if isinstance(words, list) and all(isinstance(word, str) for word in words):
            shell = len(words) == 3 and words[1] in ("-c", "-lc", "-exc")
            yield from commands(words[2]) if shell else [" ".join(words)]
            return
    hidden = re.sub(r"\"[^\"\n]*\"|'[^'\n]*'", lambda quoted: "x" * len(quoted[0]), text)
    start = 0
    for match in [*_SEPARATOR.finditer(hidden), None]:
        end = match.start() if match else len(text)
        command = " ".join(text[start:end].split())
        if command:
            yield command
        start = match.end() if match else end


def assignments(rest: str) -> Iterator[tuple[str, str | None]]:
    """Yield the names and values of an ARG or ENV instruction. The value is None if none is given."""
    old = re.fullmatch(r"(?P<name>[A-Za-z_]\w*)[ \t]+(?P<value>[^=].*)", rest.strip())
    if old is not None and "=" not in old["name"] and not re.match(r"\S+=", old["value"]):
        yield old["name"], _unquoted(old["value"])
        return
    for match in re.finditer(r"([A-Za-z_]\w*)(?:=((?:\"[^\"]*\"|'[^']*'|\\.|[^\s\"'])*))?", rest):
        yield match[1], None if match[2] is None else _unquoted(match[2])


def _unquoted(text: str) -> str:
    return re.sub(r"[\"']", "", text.strip())


# Find the files of the build context that an image holds, by where a Dockerfile copies them.


#: The newest copies count, so that a file with countless ones is read in time.
_MOST_COPIES = 200


@dataclass(frozen=True)
class Copy:
    """Files and directories of the build context, and where they are in the image.

    destination: an absolute path. into: True if it is certainly a directory.
    """

    sources: tuple[str, ...]
    destination: PurePosixPath
    into: bool


@dataclass(frozen=True)
class BuildContext:
    """The directories that may be the build context of a Dockerfile.

    It is the directory of the Dockerfile or one above it, up to the current directory.
    """

    directories: tuple[Path, ...]
    here: Path
    _files: dict[str, Path | None] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, dockerfile: Path) -> BuildContext:
        """Return the build context of a Dockerfile."""
        here, directory = Path.cwd().resolve(), dockerfile.parent.resolve()
        directories = [directory]
        if directory.is_relative_to(here) and READ_WITHIN.get() is None:
            directories += [one for one in directory.parents if one.is_relative_to(here)]
        return cls(tuple(directories), here)

    def file(self, relative: str) -> Path | None:
        """Return a file of the build context, None if there is none of this name."""
        if relative in self._files:
            return self._files[relative]
        self._files[relative] = None
        for directory in self.directories:
            try:
                path = (directory / relative.lstrip("/")).resolve()
                is_there = path.is_file() and path.is_relative_to(self.directories[-1])
            except (OSError, ValueError):
                # Nothing can have this name: it is too long, or has a NUL.
                continue
            if is_there:
                path = path.relative_to(self.here) if path.is_relative_to(self.here) else path
                self._files[relative] = path
                break
        return self._files[relative]

    def file_in_image(self, copies: Sequence[Copy], path: PurePosixPath) -> Path | None:
        """Return the file that is at an absolute path in the image, None if no copy puts one there."""
        for copy in reversed(copies[-_MOST_COPIES:]):
            for relative in _sources(copy, path):
                file = self.file(relative)
                if file is not None:
                    return file
        return None


def absolute(directory: PurePosixPath, path: str | PurePosixPath) -> PurePosixPath:
    """Return a path in the image as an absolute one without `..`. directory: where a relative one begins."""
    return PurePosixPath(posixpath.normpath(PurePosixPath("/", directory, path)))


def _sources(copy: Copy, path: PurePosixPath) -> Iterator[str]:
    """Yield the names that a file of the image may have in the build context."""
    for source in copy.sources:
        if "://" in source:
            continue
        name = PurePosixPath(source).name
        if copy.destination == path.parent and fnmatchcase(path.name, name):
            yield str(PurePosixPath(source).parent / path.name)
        if copy.destination == path and not copy.into:
            yield source
        if path.is_relative_to(copy.destination):
            yield str(PurePosixPath(source, path.relative_to(copy.destination)))


# Read a compose file: which image a service has, whether it gets GPUs, and which it shows to TensorFlow.


#: Tags of Compose that say how a value replaces that of another file.
_TAG = re.compile(r"(?<![^\s\[,])!(?:reset|override)\b")
#: Variables that the NVIDIA runtime reads.
_FOR_GPU = ("NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES")


def of_compose(path: Path) -> tuple[list[Environment], list[Source]]:
    """Return an environment for each service. Raises InputError."""
    source = read_source(path)
    # Spaces instead of the tags keep lines and columns as they are.
    plain = replace(source, text=_TAG.sub(lambda tag: " " * len(tag[0]), source.text))
    services = _child(root_of(plain, "a compose file"), "services")
    return [_service(source, service) for service in _members(services).values()], [source]


def _service(source: Source, service: Node) -> Environment:
    image = _text(_child(service, "image"))
    base = base_image(image) if image else BaseImage()
    variables = dict(_variables(_child(service, "environment")))
    for_gpu = base.for_gpu or _gets_gpus(service) or any(name in variables for name in _FOR_GPU)
    devices = variables.get(VISIBLE_DEVICES)
    stated = None
    if devices is not None and (value := _text(devices[1])) is not None:
        stated = Stated(value.partition("=")[2] if devices[0] else value, place_of(source, devices[1]))
    return Environment((), for_gpu=for_gpu, visible_devices=stated)


def _gets_gpus(service: Node) -> bool:
    """Return whether a service asks for GPUs: `gpus`, `runtime: nvidia`, or reserved devices."""
    if _child(service, "gpus") is not None or _text(_child(service, "runtime")) == "nvidia":
        return True
    node: Node | None = service
    for key in ("deploy", "resources", "reservations", "devices"):
        node = _child(node, key)
    return any(
        _text(capability) == "gpu"
        for device in items(node)
        for capability in items(_child(device, "capabilities"))
    )


def _variables(node: Node | None) -> Iterator[tuple[str, tuple[bool, Node]]]:
    """Yield the name of each variable, whether its node also holds the name (`NAME=VALUE`), and the node.

    A variable without a value gets the one in the user's shell, so it is left out.
    """
    for name, value in _members(node).items():
        is_null = isinstance(value, ScalarNode) and not value.style and value.value in ("", "~", "null")
        if not is_null:
            yield name, (False, value)
    for item in items(node):
        name, equals, _ = (_text(item) or "").partition("=")
        if equals:
            yield name, (True, item)


def _child(node: Node | None, key: str) -> Node | None:
    return _members(node).get(key)


def _members(node: Node | None) -> dict[str, Node]:
    """Return the members of a mapping by name, including those that `<<` takes from other mappings."""
    own = members(node)
    merged = own.pop("<<", None)
    if isinstance(merged, MappingNode):
        return _members(merged) | own
    taken: dict[str, Node] = {}
    # If several mappings have the same member, the first one counts.
    for other in reversed([*items(merged)]):
        taken |= _members(other)
    return taken | own


def _text(node: Node | None) -> str | None:
    """Return a scalar with its variables replaced by their defaults; None if one of them has no default."""
    text = scalar(node)
    return None if text is None else substituted(text, {})
