"""Errors for names that the facts do not know, each with the nearest known ones."""

from __future__ import annotations

import bisect
from collections.abc import Iterable

from ..errors import InputError
from ..versions import Version


class UnknownNameError(InputError, ValueError):
    """A name or version that the facts do not know.

    nearest: the nearest known ones, best first; may be empty.
    """

    def __init__(self, message: str, nearest: tuple[str, ...] = (), *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.nearest = nearest


class UnknownRelease(UnknownNameError):
    """A TensorFlow release of an unknown minor version."""


class UnknownGpu(UnknownNameError):
    """A GPU with an unknown name."""


class UnknownDriver(UnknownNameError):
    """A driver of a branch whose number is too great for a branch that may be released."""


class PolicyError(UnknownNameError):
    """A CUDA or cuDNN policy that a release can't be built with. axis: `cuda` or `cudnn`."""

    def __init__(self, axis: str, message: str, nearest: tuple[str, ...] = ()) -> None:
        super().__init__(message, nearest)
        self.axis = axis


def nearest_versions(asked: str, known: Iterable[str], count: int = 3) -> tuple[str, ...]:
    """Return the known versions nearest to another one, nearest first; for a word, the newest ones.

    Near means near in the sorted list: 8.9 is nearest to 9.3 if no known version is between them.
    """
    ordered = sorted(dict.fromkeys(known), key=Version)
    try:
        place = bisect.bisect_left(ordered, Version(asked), key=Version)
    except ValueError:
        # Not a version (InvalidVersion), or one with more digits than Python converts.
        place = len(ordered)
    # The version lies between two indexes, so the one below and the one above are equally near.
    ranked = sorted(range(len(ordered)), key=lambda index: (abs(index - (place - 0.5)), -index))
    return tuple(ordered[index] for index in ranked[:count])


def nearest_clause(nearest: tuple[str, ...]) -> str:
    """Return `; the nearest is 12.5` or `; the nearest are 9.28, 9.27`; nothing if there is none."""
    if not nearest:
        return ""
    return f"; the nearest {'is' if len(nearest) == 1 else 'are'} {', '.join(nearest)}"
