"""A matrix that was read and found good."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..model.spec import HostClass, ImageSpec
from .selection import Selector

#: The profile taken when none is named.
DEFAULT_PROFILE = "quick"


@dataclass(frozen=True)
class Profile:
    """A part of the matrix under a name.

    select: selectors that all must hold.
    first_available: Pythons in order of preference, of which each image takes the first that can be
        provided; empty when every Python is taken.
    """

    name: str
    description: str = ""
    select: tuple[Selector, ...] = ()
    first_available: tuple[str, ...] = ()


@dataclass(frozen=True)
class Exclusion:
    """Cells that are left out: those for which all selectors hold. `link` is an address, or None."""

    select: tuple[Selector, ...]
    reason: str
    link: str | None = None


@dataclass(frozen=True)
class Matrix:
    """Everything a matrix file asks for, expanded.

    file: the name it was read by, for messages.
    images, hosts: each identifier once, in the order that `order` gives.
    """

    file: str
    images: tuple[ImageSpec, ...]
    hosts: tuple[HostClass, ...]
    profiles: Mapping[str, Profile]
    exclusions: tuple[Exclusion, ...] = ()
