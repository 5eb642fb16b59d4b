"""The software that a file installs together: pins and other statements, each with its place in a file."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from yaml import MappingNode, Node, ScalarNode, SequenceNode

from .._vendor.packaging.specifiers import InvalidSpecifier, SpecifierSet
from .._vendor.packaging.utils import canonicalize_name
from ..compat.releases import every_python
from ..errors import InputError
from ..matrix.document import MatrixError, keys_of, parse_document
from ..model.prediction import Place
from ..system import files
from ..versions import InvalidVersion, Version, minor_in, read_marker

#: The packages that are TensorFlow. The first one that is there decides.
TENSORFLOW = ("tensorflow", "tensorflow-gpu", "tensorflow-cpu", "intel-tensorflow")
#: The variable that limits which GPUs CUDA shows to a process.
VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
#: Excludes `$`, `{`, `VERSION` and the like, because another tool may fill in a variable or a template.
_LIKE_VERSION = re.compile(r"[a-z\d][\w.+!-]*")
_SHORT = re.compile(r"\d+(?:\.\d+)?")
#: A package with more parts in its specifiers counts as one whose version is not known.
_MOST = 100


@dataclass(frozen=True)
class Stated:
    """A version that something other than a package states, or the value of a variable.

    value: a version, or for Python a specifier (`>=3.12`). image: True if a base image states it.
    """

    value: str
    place: Place
    image: bool = False


@dataclass(frozen=True)
class Pin:
    """A package that is asked for.

    name: normalized. versions: a version specifier (PEP 440); empty for any version, None if a file, an
    address or another index decides. constraint: True if it only limits the version. invalid: the text
    after `==` if it is not a version (`9.x`).
    """

    name: str
    versions: SpecifierSet | None
    place: Place
    extras: frozenset[str] = frozenset()
    from_conda: bool = False
    constraint: bool = False
    invalid: str = ""

    @property
    def exact(self) -> str | None:
        """The version, if the pin allows only one. For pip, `tensorflow==2.15` is 2.15.0."""
        for one in self.versions or ():
            if one.operator in ("==", "===") and not one.version.endswith(".*"):
                short = self.name in TENSORFLOW and not self.from_conda and _SHORT.fullmatch(one.version)
                return f"{one.version}{'.0' * (2 - one.version.count('.'))}" if short else one.version
        return None


@dataclass(frozen=True)
class Environment:
    """The software that is installed together.

    pins: at most one for each name. python: versions that may run it. cuda, cudnn: libraries of the system or
    of conda. without_cuda: True if the system is known to have no CUDA. for_gpu: True if the file says that a
    GPU will be used. visible_devices: the value of CUDA_VISIBLE_DEVICES where it runs. library_path: False
    if nothing tells the loader about the directories of NVIDIA's wheels, None if that is not known. complete:
    True if the pins are everything that is installed, as in a lock. name: the extra, the group or the
    environment of the project; empty for what is installed without naming one.
    """

    pins: tuple[Pin, ...]
    python: Stated | None = None
    cuda: Stated | None = None
    cudnn: Stated | None = None
    without_cuda: bool = False
    for_gpu: bool = False
    visible_devices: Stated | None = None
    library_path: bool | None = None
    complete: bool = False
    name: str = ""


@dataclass
class Collected:
    """The pins read so far, with at most one for each name."""

    pins: dict[str, Pin] = field(default_factory=dict)
    #: Names that are asked for in ways that contradict each other or are not known.
    limits: dict[str, Pin] = field(default_factory=dict)

    def add(self, pin: Pin, *, later: bool = False) -> None:
        """Add a pin.

        later: True for a command that runs after those that added the others, so that its version replaces
        theirs. Otherwise all must hold together.
        """
        pins = self.limits if pin.constraint else self.pins
        before = pins.get(pin.name)
        if before is None or (later and (pin.versions is None or len(pin.versions))):
            pins[pin.name] = pin
        elif later:
            # It keeps the version and adds what its extras require.
            pins[pin.name] = replace(before, extras=before.extras | pin.extras)
        else:
            pins[pin.name] = intersection(before, pin)

    def copy(self) -> Collected:
        """Return the same pins, to which others can be added."""
        return Collected(dict(self.pins), dict(self.limits))

    def all(self) -> tuple[Pin, ...]:
        """Return the pins, limited by the constraints."""
        return tuple(
            intersection(pin, self.limits[name]) if name in self.limits else pin
            for name, pin in self.pins.items()
        )


def intersection(one: Pin, other: Pin) -> Pin:
    """Return the pin that two pins of the same package make.

    Its place is that of the pin with an invalid version, or else of the exact version.
    """
    unknown = one.versions is None or other.versions is None
    versions = one.versions if one.versions == other.versions else None
    if one.versions is not None and other.versions is not None and len(one.versions) < _MOST:
        versions = one.versions & other.versions
    is_exact = not unknown and one.exact is None and other.exact is not None
    return replace(
        one,
        versions=versions,
        place=other.place if is_exact or (other.invalid and not one.invalid) else one.place,
        extras=one.extras | other.extras,
        constraint=one.constraint and other.constraint,
        invalid=one.invalid or other.invalid,
    )


def exact_pin(name: str, version: str, place: Place, *, from_conda: bool = False) -> Pin:
    """Return the pin of a package in one version; an empty version is not known."""
    versions = specifier(f"=={version}") if version else None
    return Pin(normalized(name), versions, place, from_conda=from_conda)


#: More digits than a number of a version has. Python does not convert thousands of them to compare versions.
LONG_NUMBER = re.compile(r"[0-9]{100}")


def specifier(text: str) -> SpecifierSet | None:
    """Return a version specifier, or None if the text is none."""
    try:
        return None if LONG_NUMBER.search(text) else SpecifierSet(text)
    except InvalidSpecifier:
        return None


def not_a_version(text: str) -> str:
    """Return the text if it only looks like a version (`9.x`, `latest`), else an empty string."""
    try:
        Version(text)
    except InvalidVersion:
        return text if _LIKE_VERSION.fullmatch(text) else ""
    return ""


def normalized(name: str) -> str:
    """Return the normalized name of a package."""
    return str(canonicalize_name(name))


# Evaluate markers for the machines that this project is about: Linux on x86_64 with CPython.


_MACHINE = {
    "implementation_name": "cpython",
    "os_name": "posix",
    "platform_machine": "x86_64",
    "platform_python_implementation": "CPython",
    "platform_system": "Linux",
    "sys_platform": "linux",
}


def marker_holds(marker: str, pythons: tuple[str, ...], extra: str = "") -> bool | None:
    """Return whether a marker is true for every Python; None if that depends on the Python or on the host."""
    answers = {_marker_holds(marker, python, extra) for python in pythons or every_python()}
    return answers.pop() if len(answers) == 1 else None


@functools.lru_cache(maxsize=8192)
def _marker_holds(marker: str, python: str, extra: str) -> bool | None:
    values = {
        **_MACHINE,
        "python_version": python,
        "python_full_version": f"{python}.99",
        "implementation_version": f"{python}.99",
        "extra": extra,
    }
    unknown = ("platform_release", "platform_version", "extras", "dependency_groups")
    if any(name in marker for name in unknown):
        return None
    try:
        return read_marker(marker).evaluate({**values})
    except (ValueError, KeyError, RecursionError):
        # ValueError: it is no marker, compares what can't be compared, or has a number that is too long.
        return None


def pythons_of(python: Stated | None) -> tuple[str, ...]:
    """Return the Pythons, oldest first, that a file allows; all known ones if it states none."""
    return pythons_within(python.value if python else ">=2")


@functools.lru_cache(maxsize=1024)
def pythons_within(specifier: str) -> tuple[str, ...]:
    """Return the Pythons, oldest first, that a version or a specifier allows."""
    if specifier[:1].isdigit():
        wanted = minor_in(specifier)
        return (wanted,) if wanted else ()
    # The newest patch release stands for the minor version, so that `>3.9.1` allows 3.9.
    allowed = SpecifierSet(specifier)
    return tuple(
        minor for minor in every_python() if any(allowed.contains(f"{minor}.{patch}") for patch in range(30))
    )


# Read a file within limits, and find the comments that silence findings in it.


#: The most bytes of a file that is read. The largest lock files have some megabytes.
MAX_BYTES = 16 * 1024 * 1024

#: The only directory from which files are read; None for any.
READ_WITHIN: ContextVar[Path | None] = ContextVar("READ_WITHIN", default=None)

_IGNORE = re.compile(r"#\s*validator:\s*ignore\[(?P<codes>[\w\s,-]*)\]")
_COMMENT_ONLY = re.compile(r"\s*#")


@dataclass(frozen=True)
class Source:
    """A file's text.

    name: as messages show it. ignored: line -> the codes that a comment silences there.
    """

    name: str
    text: str
    ignored: Mapping[int, frozenset[str]] = field(default_factory=dict, hash=False)


def read_source(path: Path) -> Source:
    """Read a text file. Raises InputError if it can't be read, is too large, or is not UTF-8."""
    name, within = str(path), READ_WITHIN.get()
    try:
        if within is not None and not Path(os.path.realpath(path)).is_relative_to(within):
            raise FileNotFoundError
        text = files.read_text(path, MAX_BYTES)
    except (FileNotFoundError, IsADirectoryError) as error:
        what = "is not a file" if isinstance(error, IsADirectoryError) else "does not exist"
        raise InputError(f"{name} {what}", hint="name the files to check, such as requirements.txt") from None
    except OSError as error:
        raise InputError(f"{name} can't be read: {error.strerror}") from None
    return Source(name, text, _ignored(text))


def _ignored(text: str) -> dict[int, frozenset[str]]:
    """Return the codes that are silenced on each line: by a comment there, or on a line of its own above."""
    found: dict[int, frozenset[str]] = {}
    above: frozenset[str] = frozenset()
    if "validator:" not in text:
        return found
    for number, line in enumerate(text.splitlines(), start=1):
        match = _IGNORE.search(line)
        codes = frozenset(re.findall(r"[\w-]+", match["codes"])) if match else frozenset()
        if _COMMENT_ONLY.match(line):
            above |= codes
            continue
        if above | codes:
            found[number] = above | codes
        above = frozenset()
    return found


# Find where the strings and keys of a TOML file are: the standard library's reader forgets it.


_TOKEN = re.compile(
    r"#[^\n]*"
    r'|"""(?P<long>(?:[^\\]|\\.)*?)"""|\'\'\'(?P<raw>.*?)\'\'\''
    r'|"(?P<text>(?:[^"\\\n]|\\.)*)"|\'(?P<literal>[^\'\n]*)\''
    r"|(?m:^[ \t]*)\[\[?(?P<table>[^\]\n]*)\]\]?"
    r"|(?m:^[ \t]*)(?P<key>[A-Za-z0-9_-]+)(?=[ \t]*[=.])",
    re.DOTALL,
)


@dataclass(frozen=True)
class Places:
    """The places in a file, in its order.

    strings: text -> its places. keys: table, the number of tables of its name before it, and key -> place.
    """

    strings: Mapping[str, list[Place]]
    keys: Mapping[tuple[str, int, str], Place]
    start: Place

    def string(self, text: str) -> Place:
        """Return the next place of a string that has not been asked for, or the last one."""
        places = self.strings.get(text)
        if not places:
            return self.start
        return places.pop(0) if len(places) > 1 else places[0]

    def key(self, table: str, name: str, before: int = 0) -> Place:
        """Return the place of a key in a table. before: the number of tables of its name that come before."""
        return self.keys.get((table, before, name), self.start)


def parse(source: Source) -> tuple[dict[str, Any], Places]:
    """Return the document, and its places. Raises InputError for a file that is not TOML."""
    try:
        document = files.parse_toml(source.text)
    except ValueError as error:
        raise InputError(f"{source.name} is not TOML: {error}") from None
    return document, _places(source)


def table_of(document: object, *names: str) -> Mapping[str, Any]:
    """Return a table inside a table, or the table itself without names; empty if there is no such table."""
    table = document
    for name in names:
        table = table.get(name) if isinstance(table, dict) else None
    return table if isinstance(table, dict) else {}


def list_of(value: object) -> list[Any]:
    """Return a value that is a list, and an empty list for any other value."""
    return value if isinstance(value, list) else []


def texts_of(value: object) -> list[str]:
    """Return the texts in a list; none for any other value."""
    return [item for item in list_of(value) if isinstance(item, str)]


def _places(source: Source) -> Places:
    strings: dict[str, list[Place]] = {}
    keys: dict[tuple[str, int, str], Place] = {}
    seen: dict[str, int] = {}
    table, line, counted = "", 1, 0
    for match in _TOKEN.finditer(source.text):
        start = match.start() + len(match[0]) - len(match[0].lstrip())
        line, counted = line + source.text.count("\n", counted, start), start
        place = Place(source.name, line, start - source.text.rfind("\n", 0, start))
        if match["table"] is not None:
            table = ".".join(part.strip().strip("\"'") for part in match["table"].split("."))
            seen[table] = seen.get(table, -1) + 1
        elif match["key"] is not None:
            keys.setdefault((table, seen.get(table, 0), match["key"]), place)
        else:
            texts = match.group("long", "raw", "text", "literal")
            content = next((text for text in texts if text is not None), None)
            if content is not None:
                # An escaped character does not occur in what is looked for, apart from quotes.
                strings.setdefault(content.replace('\\"', '"'), []).append(place)
    return Places(strings, keys, Place(source.name, 1, 1))


# Read a YAML or JSON file into nodes, which know their place.


def root_of(source: Source, what: str) -> MappingNode:
    """Return the mapping that a file is. what: what it should be, for messages. Raises InputError."""
    try:
        root = parse_document(source.text.encode(), source.name).root
    except MatrixError as error:
        raise InputError(str(error)) from None
    if not isinstance(root, MappingNode):
        raise InputError(f"{source.name} is not {what}: it is not a mapping")
    return root


def entries(node: Node | None) -> dict[str, tuple[Node, Node]]:
    """Return the nodes of the key and the value for each key of a mapping; none for any other node."""
    return keys_of(node) if isinstance(node, MappingNode) else {}


def members(node: Node | None) -> dict[str, Node]:
    """Return the values of a mapping by their keys; none for any other node."""
    return {name: value for name, (_, value) in entries(node).items()}


def items(node: Node | None) -> Iterator[Node]:
    """Yield the items of a list; none for any other node."""
    yield from node.value if isinstance(node, SequenceNode) else ()


def scalar(node: Node | None) -> str | None:
    """Return the text of a scalar, and None for any other node."""
    return str(node.value) if isinstance(node, ScalarNode) else None


def place_of(source: Source, node: Node) -> Place:
    """Return where a node begins."""
    return Place(source.name, node.start_mark.line + 1, node.start_mark.column + 1)
