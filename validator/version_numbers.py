"""Versions that are plain numbers, such as those of CUDA, cuDNN and Python, and how people compare versions.

`2.21` means every 2.21.x, and `3.1` is not `3.10`. The host side imports all of this from `versions`.

Standard library only, for Python 3.9 and newer: this module travels with the probe, which has no time to
import `packaging` for every comparison.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass

_NUMBERS = re.compile(r"[0-9]+(\.[0-9]+)*")
_LEADING_NUMBERS = re.compile(r"v?(\d{1,6}(?:\.\d{1,6}){0,3})")


@functools.lru_cache(maxsize=4096)
def leading_numbers(text: str) -> tuple[int, ...]:
    """Return at most four numbers that a text begins with: (2, 18, 0) for `v2.18.0-3-g85c`; else ()."""
    match = _LEADING_NUMBERS.match(text.strip())
    return tuple(int(part) for part in match[1].split(".")) if match else ()


def major(text: str) -> str:
    """Return the first number of a version: `535` of `535.183.01`. Return an empty text if there is none."""
    numbers = leading_numbers(text)
    return str(numbers[0]) if numbers else ""


def is_release_of(version: str, series: str) -> bool:
    """Return True when a version is the series or in it: 12.8.1 is in 12.8, but 12.10 is not in 12.1."""
    return version == series or version.startswith(f"{series}.")


def whole_number(text: str, digits: int = 9) -> int | None:
    """Return a number that is written in at most so many ASCII digits, and None for any other text."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= digits else None


def is_numbers(text: str) -> bool:
    """Return True for text that consists of numbers and dots only."""
    return _NUMBERS.fullmatch(text) is not None


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
    return lambda found: order_by_numbers(leading_numbers(found), target)


@dataclass(frozen=True)
class Range:
    """Comparisons that must all hold, such as `>=2.14,<2.20`."""

    comparisons: tuple[tuple[str, Comparer], ...]

    @classmethod
    def parse(cls, text: str, comparer: Callable[[str], Comparer]) -> Range:
        """Read comparisons, separated by commas. comparer: reads a bound. Raises ValueError."""
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


def order_by_numbers(found: tuple[float, ...], wanted: tuple[float, ...], missing: float = 0) -> int:
    """Return the order of two versions by as many numbers as `wanted` has."""
    head = (*found, *(missing for _ in wanted))[: len(wanted)]
    return (head > wanted) - (head < wanted)
