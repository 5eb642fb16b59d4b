"""Comparing versions the way people write them: `2.21` means every 2.21.x, and `3.1` is not `3.10`.

A version with fewer parts than the one it is held against is compared over the parts it has. So each of
`<2.21`, `=2.21` and `>2.21` takes a part of all releases that the other two leave.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from ..model.versions import DriverRelease

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
