"""Versions that must not be mistaken for one another.

A *driver release* (`535.183.01`, what NVML calls the driver version) and a *CUDA version* (`12.2`: of a
toolkit, or the newest that a driver supports) are different types here, since most published confusion
about "the CUDA version" comes from mixing them.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

_DRIVER = re.compile(r"^[Rr]?(\d{3,4})(?:\.(\d{1,4}))?(?:\.(\d{1,4}))?$")
_CUDA = re.compile(r"^(\d{1,2})\.(\d{1,2})(?:\.(\d{1,4}))?$")
_CAPABILITY = re.compile(r"^(?:sm_|compute_)?(?:(\d{1,2})\.(\d)|(\d{1,2})(\d))[af]?$")


@functools.total_ordering
@dataclass(frozen=True, eq=False)
class DriverRelease:
    """An NVIDIA driver release, such as `535.183.01`, or a whole branch, such as `535`.

    `point` is empty when only the branch is known; a bare branch stands for its newest release, so it
    compares above every point release of the branch.
    """

    branch: int
    point: tuple[int, ...] = ()
    text: str = ""

    @classmethod
    def parse(cls, text: str) -> DriverRelease:
        """Read `535`, `R535`, `535.183` or `535.183.01`. Raises ValueError otherwise."""
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
        return (self.branch, *(self.point or (float("inf"),)))

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
        """Read `12.5` or `12.5.1`. Raises ValueError otherwise."""
        match = _CUDA.match(text.strip())
        if not match:
            raise ValueError(f'"{text}" is not a CUDA version (expected something like 12.5)')
        return cls(int(match[1]), int(match[2]))

    @classmethod
    def from_driver_api(cls, number: int) -> CudaVersion:
        """From `cuDriverGetVersion`, which answers 1000 * major + 10 * minor (CUDA Driver API)."""
        return cls(number // 1000, number % 1000 // 10)

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


@dataclass(frozen=True, order=True)
class ComputeCapability:
    """A GPU's compute capability, such as 9.0."""

    major: int
    minor: int

    @classmethod
    def parse(cls, text: str) -> ComputeCapability:
        """Read `9.0`, `90`, `sm_90` or `compute_90`. Raises ValueError otherwise."""
        match = _CAPABILITY.match(text.strip().lower())
        if not match:
            raise ValueError(f'"{text}" is not a compute capability (expected something like 9.0)')
        dotted_major, dotted_minor, major, minor = match.groups()
        return cls(int(dotted_major or major), int(dotted_minor or minor))

    @property
    def sm(self) -> str:
        """As compilers write it: `sm_90`."""
        return f"sm_{self.major}{self.minor}"

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


def decode_cudnn(number: int) -> str:
    """The version that `cudnnGetVersion` answers, as text.

    Up to 8.x it is 1000 * major + 100 * minor + patch (8907 is 8.9.7); from 9.0 on it is
    10000 * major + 100 * minor + patch (90300 is 9.3.0). Source: cudnn_version.h of either series.
    """
    base = 10000 if number >= 90000 else 1000
    return f"{number // base}.{number % base // 100}.{number % 100}"


# Comparing versions the way people write them: `2.21` means every 2.21.x, and `3.1` is not `3.10`.

#: What each operator asks of the sign of `found - wanted`.
OPERATORS: dict[str, Callable[[int], bool]] = {
    "=": lambda sign: sign == 0,
    "==": lambda sign: sign == 0,
    "!=": lambda sign: sign != 0,
    ">=": lambda sign: sign >= 0,
    "<=": lambda sign: sign <= 0,
    ">": lambda sign: sign > 0,
    "<": lambda sign: sign < 0,
}

#: Any run of operator characters, so that `=>` is seen as a wrong operator and not as part of a value.
OPERATOR = re.compile(r"[=<>!~]+")

_RELEASE = re.compile(r"[0-9]+(\.[0-9]+)*")

#: Compares a found version with the wanted one: negative, zero or positive.
Compare = Callable[[str], int]


def dotted(wanted: str, parts: int) -> Compare:
    """For versions of numbers and dots. Raises ValueError when `wanted` is none, or has too many parts."""
    if not _RELEASE.fullmatch(wanted):
        raise ValueError(
            f"it is not a version (expected something like {'.'.join(['12', '5', '1'][:parts])})"
        )
    target = _numbers(wanted)
    if len(target) > parts:
        raise ValueError(f"it has more than {parts} parts (write {'.'.join(wanted.split('.')[:parts])})")
    return lambda found: _sign(_numbers(found), target)


def is_version(text: str) -> bool:
    """Whether a text is nothing but numbers and dots."""
    return _RELEASE.fullmatch(text) is not None


def driver(wanted: str) -> Compare:
    """For driver releases; a host class that names a branch has the newest release of that branch."""
    target = DriverRelease.parse(wanted)
    numbers = (target.branch, *target.point)

    def compare(found: str) -> int:
        release = DriverRelease.parse(found)
        return _sign((release.branch, *release.point, math.inf, math.inf), numbers)

    return compare


def tensorflow(wanted: str) -> Compare:
    """For TensorFlow releases: `2.15` is every 2.15.x, `2.15.0` is not `2.15.0.post1`."""
    try:
        target = Version(wanted)
    except InvalidVersion:
        raise ValueError("it is not a version (expected something like 2.21 or 2.21.0)") from None
    if _RELEASE.fullmatch(wanted) and len(target.release) < 3:
        return lambda found: _sign(Version(found).release, target.release)
    return lambda found: (Version(found) > target) - (Version(found) < target)


@dataclass(frozen=True)
class Range:
    """`>=2.14,<2.20`: comparisons that must all hold."""

    comparisons: tuple[tuple[str, Compare], ...]

    @classmethod
    def parse(cls, text: str, compare: Callable[[str], Compare]) -> Range:
        """Raises ValueError saying what is wrong with it."""
        comparisons = []
        for part in text.split(","):
            match = OPERATOR.match(part.strip())
            operator = match[0] if match else ""
            if operator not in OPERATORS:
                raise ValueError(f'"{part.strip()}" begins with none of {" ".join(OPERATORS)}')
            comparisons.append((operator, compare(part.strip()[len(operator) :].strip())))
        return cls(tuple(comparisons))

    def holds(self, found: str) -> bool:
        return all(OPERATORS[operator](compare(found)) for operator, compare in self.comparisons)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def _sign(found: tuple[float, ...], wanted: tuple[float, ...]) -> int:
    head = found[: len(wanted)]
    return (head > wanted) - (head < wanted)
