"""Errors for names that the facts do not know; each carries the nearest ones that they do."""

from __future__ import annotations

import bisect
from collections.abc import Iterable

from ..errors import InputError
from ..versions import InvalidVersion, Version


class NotKnown(InputError, ValueError):
    """A name or version that the facts do not know.

    nearest: what the facts know that comes nearest, best first; may be empty.
    """

    def __init__(self, message: str, nearest: tuple[str, ...] = (), *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.nearest = nearest


class UnknownRelease(NotKnown):
    """No TensorFlow release of that minor version is known."""


class UnknownGpu(NotKnown):
    """No GPU of that name is known."""


class PolicyError(NotKnown):
    """A CUDA or cuDNN policy that cannot be had for a release. axis: `cuda` or `cudnn`."""

    def __init__(self, axis: str, message: str, nearest: tuple[str, ...] = ()) -> None:
        super().__init__(message, nearest)
        self.axis = axis


def nearest_versions(asked: str, known: Iterable[str], count: int = 3) -> tuple[str, ...]:
    """The known versions around the one asked for, nearest first; all of them newest for a word.

    Near means near in the sorted list, so that 8.9 is nearest to 9.3 where nothing lies between them.
    """
    ordered = sorted(dict.fromkeys(known), key=Version)
    try:
        place = bisect.bisect_left(ordered, Version(asked), key=Version)
    except InvalidVersion:
        place = len(ordered)
    # A half less than the index of the version above: the one below and the one above are equally near.
    ranked = sorted(range(len(ordered)), key=lambda index: (abs(index - (place - 0.5)), -index))
    return tuple(ordered[index] for index in ranked[:count])


def listed(names: Iterable[str]) -> str:
    """`a`, `a, b`: names for a message."""
    return ", ".join(names)


def nearest_clause(nearest: tuple[str, ...]) -> str:
    """`; the nearest is 12.5` or `; the nearest are 9.28, 9.27, 9.26`; empty when there is none."""
    if not nearest:
        return ""
    return f"; the nearest {'is' if len(nearest) == 1 else 'are'} {listed(nearest)}"
