"""The types of versions, and their comparison. No other module compares versions by its own rules.

A *driver release* (`535.183.01`, what NVML calls the driver version) and a *CUDA version* (`12.2`: of a
toolkit, or the newest that a driver supports) are different types here, because confusing them is
the usual source of errors about "the CUDA version". Versions of Python packages follow PEP 440, which
`packaging` reads; its `Version` is imported from here.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ._vendor.packaging.version import InvalidVersion as InvalidVersion
from ._vendor.packaging.version import Version as Version

_DRIVER = re.compile(r"^[Rr]?(\d{3,4})(?:\.(\d{1,4}))?(?:\.(\d{1,4}))?$")
_CUDA = re.compile(r"^(\d{1,2})\.(\d{1,2})(?:\.(\d{1,4}))?$")
_NUMBERS = re.compile(r"[0-9]+(\.[0-9]+)*")
_LEADING_NUMBERS = re.compile(r"v?(\d{1,6}(?:\.\d{1,6}){0,3})")
_DEBIAN = re.compile(
    r"(?:(?P<epoch>[0-9]{1,9}):)?(?P<upstream>[0-9][A-Za-z0-9.+~-]{0,200}?)(?<!-)(?:-(?P<revision>[A-Za-z0-9.+~]{1,200}))?"
)
_DEBIAN_PARTS = re.compile(r"(?=.)([^0-9]*)([0-9]*)")
_CAPABILITY = re.compile(r"^(?:sm_|compute_)?(?:(\d{1,2})\.(\d)|(\d{1,2})(\d))[af]?$")


@functools.total_ordering
@dataclass(frozen=True, eq=False)
class DriverRelease:
    """An NVIDIA driver release, such as `535.183.01`, or a whole branch, such as `535`.

    `point` is empty when only the branch is known. A bare branch stands for its newest release, so it is
    greater than every point release of the branch.
    """

    branch: int
    point: tuple[int, ...] = ()
    text: str = ""

    @classmethod
    def parse(cls, text: str) -> DriverRelease:
        """Read `535`, `R535`, `535.183` or `535.183.01`. Raises ValueError for other text."""
        match = _DRIVER.match(text.strip())
        if not match:
            raise ValueError(f'"{text}" is not a driver release (expected something like 535.183.01 or 535)')
        branch, *point = (group for group in match.groups() if group is not None)
        return cls(int(branch), tuple(int(part) for part in point), text.strip().lstrip("Rr"))

    @property
    def is_branch(self) -> bool:
        """True when only the branch is known."""
        return not self.point

    def _key(self) -> tuple[float, ...]:
        return (self.branch, *(self.point or (math.inf,)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DriverRelease) and self._key() == other._key()

    def __lt__(self, other: DriverRelease) -> bool:
        return self._key() < other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __str__(self) -> str:
        return self.text or ".".join(str(part) for part in (self.branch, *self.point))


@dataclass(frozen=True, order=True)
class CudaVersion:
    """A CUDA version by major and minor: a toolkit's, or the newest that a driver supports."""

    major: int
    minor: int

    @classmethod
    def parse(cls, text: str) -> CudaVersion:
        """Read `12.5` or `12.5.1`. Raises ValueError for other text."""
        match = _CUDA.match(text.strip())
        if not match:
            raise ValueError(f'"{text}" is not a CUDA version (expected something like 12.5)')
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


@dataclass(frozen=True, order=True)
class ComputeCapability:
    """A GPU's compute capability, such as 9.0."""

    major: int
    minor: int

    @classmethod
    def parse(cls, text: str) -> ComputeCapability:
        """Read `9.0`, `90`, `sm_90` or `compute_90`. Raises ValueError for other text."""
        match = _CAPABILITY.match(text.strip().lower())
        if not match:
            raise ValueError(f'"{text}" is not a compute capability (expected something like 9.0)')
        dotted_major, dotted_minor, major, minor = match.groups()
        return cls(int(dotted_major or major), int(dotted_minor or minor))

    @property
    def sm(self) -> str:
        """The name that compilers use: `sm_90`."""
        return f"sm_{self.major}{self.minor}"

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


@functools.total_ordering
@dataclass(frozen=True, eq=False)
class DebianVersion:
    """The version of a Debian package, ordered as dpkg orders them.

    https://www.debian.org/doc/debian-policy/ch-controlfields.html#version
    """

    epoch: int
    upstream: str
    revision: str
    text: str

    @classmethod
    def parse(cls, text: str) -> DebianVersion:
        """Read `1:2.38.1-5+deb12u3`. Raises ValueError for other text."""
        match = _DEBIAN.fullmatch(text)
        if not match:
            raise ValueError(f'"{text}" is not the version of a Debian package')
        return cls(int(match["epoch"] or 0), match["upstream"], match["revision"] or "0", text)

    def _key(self) -> tuple[Any, ...]:
        return (self.epoch, _debian_order(self.upstream), _debian_order(self.revision))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DebianVersion) and self._key() == other._key()

    def __lt__(self, other: DebianVersion) -> bool:
        return self._key() < other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __str__(self) -> str:
        return self.text


def _debian_order(part: str) -> tuple[tuple[tuple[int, ...], int], ...]:
    """Return what orders an upstream version or a revision: text and numbers in turn.

    In text, a tilde comes before the end, the end before letters, and letters before everything else.
    """
    found = []
    for text, digits in _DEBIAN_PARTS.findall(part):
        order = tuple(-1 if char == "~" else ord(char) + (0 if char.isalpha() else 256) for char in text)
        found.append(((*order, 0), int(digits or 0)))
    return (*found, ((0,), 0))


# PEP 440.


def major_minor(version: str) -> str:
    """Return the first two numbers of a version: `2.21` of `2.21.0`, `9.10` of `9.10.2.21`.

    Raises InvalidVersion, a ValueError, for text that is not a version.
    """
    major, minor = (*Version(version).release, 0)[:2]
    return f"{major}.{minor}"


def version_or_oldest(text: str | None) -> Version:
    """Return the version, or, if the text is not a version, one that is older than every release."""
    try:
        return Version(text or "")
    except InvalidVersion:
        return _OLDEST


_OLDEST = Version("0.dev0")

# Plain numbers, such as those of CUDA, cuDNN and Python, and of versions that are found in text.


def leading_numbers(text: str) -> tuple[int, ...]:
    """Return the numbers that a version begins with, at most four: (2, 18, 0) for `v2.18.0-3-g85c`.

    Return an empty tuple for text that does not begin with a number.
    """
    match = _LEADING_NUMBERS.match(text.strip())
    return tuple(int(part) for part in match[1].split(".")) if match else ()


def is_release_of(version: str, series: str) -> bool:
    """Return True when a version is the series or in it: 12.8.1 is in 12.8, but 12.10 is not in 12.1."""
    return version == series or version.startswith(f"{series}.")


def is_numbers(text: str) -> bool:
    """Return True for text that consists of numbers and dots only."""
    return _NUMBERS.fullmatch(text) is not None


# Comparing versions the way people write them: `2.21` means every 2.21.x, and `3.1` is not `3.10`.

#: Return the order of a found version and the wanted one: negative, zero or positive. Raises ValueError for a
#: found text that is not a version of this kind.
Comparer = Callable[[str], int]

#: Each operator, as a question about the order that a comparer returns.
OPERATORS: dict[str, Callable[[int], bool]] = {
    "=": lambda order: order == 0,
    "==": lambda order: order == 0,
    "!=": lambda order: order != 0,
    ">=": lambda order: order >= 0,
    "<=": lambda order: order <= 0,
    ">": lambda order: order > 0,
    "<": lambda order: order < 0,
}

#: Any run of operator characters, so that `=>` is seen as a wrong operator and not as part of a value.
OPERATOR_CHARACTERS = re.compile(r"[=<>!~]+")


def numbers_comparer(wanted: str, max_parts: int | None = None) -> Comparer:
    """Compare by as many numbers as `wanted` has. Missing numbers of the found version count as zero.

    Raises ValueError when `wanted` is not made of numbers and dots, or has more than `max_parts` numbers.
    """
    if not is_numbers(wanted):
        example = ".".join(["12", "5", "1"][:max_parts])
        raise ValueError(f"it is not a version (expected something like {example})")
    parts = wanted.split(".")
    if max_parts is not None and len(parts) > max_parts:
        raise ValueError(f"it has more than {max_parts} parts (write {'.'.join(parts[:max_parts])})")
    target = tuple(int(part) for part in parts)
    return lambda found: _order(leading_numbers(found), target)


def driver_comparer(wanted: str) -> Comparer:
    """Compare driver releases: `535` is every 535.x. A found branch stands for its newest release.

    Raises ValueError when `wanted` is not a driver release.
    """
    release = DriverRelease.parse(wanted)
    target = (release.branch, *release.point)

    def compare(found: str) -> int:
        release = DriverRelease.parse(found)
        return _order((release.branch, *release.point), target, missing=math.inf)

    return compare


def release_comparer(wanted: str) -> Comparer:
    """Compare TensorFlow releases: `2.15` is every 2.15.x, but `2.15.0` is not `2.15.0.post1`.

    Raises ValueError when `wanted` is not a version.
    """
    try:
        target = Version(wanted)
    except InvalidVersion:
        raise ValueError("it is not a version (expected something like 2.21 or 2.21.0)") from None
    if is_numbers(wanted) and len(target.release) < 3:
        return lambda found: _order(Version(found).release, target.release)
    return lambda found: (Version(found) > target) - (Version(found) < target)


@dataclass(frozen=True)
class Range:
    """Comparisons that must all hold, such as `>=2.14,<2.20`."""

    comparisons: tuple[tuple[str, Comparer], ...]

    @classmethod
    def parse(cls, text: str, comparer: Callable[[str], Comparer]) -> Range:
        """Read comparisons that are separated by commas.

        comparer: makes the comparer of one bound, such as `release_comparer`. Raises ValueError.
        """
        comparisons = []
        for part in text.split(","):
            match = OPERATOR_CHARACTERS.match(part.strip())
            operator = match[0] if match else ""
            if operator not in OPERATORS:
                raise ValueError(f'"{part.strip()}" does not begin with one of {" ".join(OPERATORS)}')
            comparisons.append((operator, comparer(part.strip()[len(operator) :].strip())))
        return cls(tuple(comparisons))

    @property
    def is_exact(self) -> bool:
        """True when one of the comparisons is `=` or `==`."""
        return any(operator in ("=", "==") for operator, _ in self.comparisons)

    def contains(self, found: str) -> bool:
        """Return True when a version satisfies every comparison."""
        return all(OPERATORS[operator](compare(found)) for operator, compare in self.comparisons)


def _order(found: tuple[float, ...], wanted: tuple[float, ...], missing: float = 0) -> int:
    """Return the order of two versions by as many numbers as `wanted` has."""
    head = (*found, *(missing for _ in wanted))[: len(wanted)]
    return (head > wanted) - (head < wanted)
