"""Read requirements files for lint: with positions, and without refusing what a lock could not honor."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from .._vendor.packaging.requirements import InvalidRequirement, Requirement
from .._vendor.packaging.specifiers import SpecifierSet
from ..matrix.requirements import CONSTRAIN, INCLUDE, MAX_FILES, OPTIONS, logical_lines
from ..model.finding import Place
from . import markers
from .environment import Collected, Environment, Pin, Stated, normalized
from .source import Source, read_source

#: Packages whose wheels on PyPI bring CUDA, and whose wheels on other indexes may not.
_ON_OTHER_INDEXES = re.compile(r"(?:torch|jax)")
_OTHER_INDEX = re.compile(r"(?:--extra-index-url|--find-links|-f)\b|(?:--index-url|-i)\b.*pytorch")
#: What pip-compile and `uv pip compile` write about themselves, in the first lines.
_COMPILED_FOR = re.compile(
    r"^#.*(?:pip-compile with [Pp]ython (?P<used>3\.\d+)|--python-version[= ](?P<asked>3\.\d+))"
)
_HEAD_LINES = 10


@dataclass
class Read:
    """What was read from a requirements file and those that it includes.

    sources: the files, the first one first. other_index: the first option that names another index.
    """

    collected: Collected = field(default_factory=Collected)
    sources: list[Source] = field(default_factory=list)
    python: Stated | None = None
    other_index: bool = False

    def pins(self) -> tuple[Pin, ...]:
        """Return the pins. Those of frameworks are unknown if another index may have other builds."""
        return tuple(from_other_index(pin) if self.other_index else pin for pin in self.collected.all())


def environment(path: Path) -> tuple[Environment, list[Source]]:
    """Return what a requirements file installs. Raises InputError for a file that can't be read."""
    read = read_requirements(path)
    return Environment(read.pins(), python=read.python), read.sources


def read_requirements(path: Path, python: str | None = None) -> Read:
    """Read a requirements file and those that it includes.

    python: the Python, if it is known from elsewhere. An include that does not exist is an error, as for pip.
    """
    read = Read()
    _read(path, read, {path.resolve()}, python, constraint=False)
    return read


def from_other_index(pin: Pin) -> Pin:
    """Return the pin with an unknown version if it is one of a framework."""
    if not _ON_OTHER_INDEXES.match(pin.name):
        return pin
    return Pin(pin.name, None, pin.place, pin.extras, pin.from_conda, pin.constraint)


def _read(path: Path, read: Read, seen: set[Path], python: str | None, *, constraint: bool) -> None:
    source = read_source(path)
    read.sources.append(source)
    if not constraint and read.python is None and python is None:
        read.python = _compiled_for(source)
    pythons = markers.pythons(python or (read.python.value if read.python else ">=2"))
    lines = source.text.splitlines()
    for number, text in logical_lines(source.text):
        inner = INCLUDE.fullmatch(text) or CONSTRAIN.fullmatch(text)
        if inner is not None:
            included = path.parent / inner["file"]
            if included.resolve() not in seen and len(seen) < MAX_FILES and "://" not in inner["file"]:
                seen.add(included.resolve())
                _read(included, read, seen, python, constraint=constraint or inner.re is CONSTRAIN)
        elif text.startswith("-"):
            read.other_index = read.other_index or _OTHER_INDEX.match(text) is not None
        else:
            line = lines[number - 1]
            place = Place(source.name, number, len(line) - len(line.lstrip()) + 1)
            pin = pin_of(OPTIONS.split(text)[0], place, pythons, constraint=constraint)
            if pin is not None:
                read.collected.add(pin)


def pin_of(
    text: str, place: Place, pythons: tuple[str, ...], *, extra: str = "", constraint: bool = False
) -> Pin | None:
    """Return the pin of a requirement.

    Return None if it is not a requirement with a name, or if its marker excludes it. If its marker depends on
    what is not known, its version is unknown. extra: the one that its marker may ask for.
    """
    try:
        wanted = Requirement(text)
    except InvalidRequirement:
        return None
    holds = markers.holds(str(wanted.marker), pythons, extra) if wanted.marker else True
    if holds is False:
        return None
    known = holds and wanted.url is None
    versions: SpecifierSet | None = wanted.specifier if known else None
    extras = frozenset(normalized(one) for one in wanted.extras)
    return Pin(normalized(wanted.name), versions, place, extras, constraint=constraint)


def _compiled_for(source: Source) -> Stated | None:
    for number, line in enumerate(source.text.splitlines()[:_HEAD_LINES], start=1):
        match = _COMPILED_FOR.match(line)
        if match is not None:
            return Stated(match["used"] or match["asked"], Place(source.name, number, 1))
    return None
