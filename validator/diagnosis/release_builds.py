"""Look up what a TensorFlow release of any age needs: its CUDA, cuDNN, Pythons and driver.

compat's tables have the releases that images are made of. `data/older.yaml` has those before, which people
still paste text about.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..compat import releases
from ..compat.errors import UnknownRelease
from ..versions import DriverRelease, leading_numbers
from . import compiled


@dataclass(frozen=True)
class ReleaseBuild:
    """CUDA and cuDNN (`11.2`, `8.1`) that a release was tested with, and the Pythons that have a wheel."""

    cuda: str
    cudnn: str
    pythons: tuple[str, ...]


def release_build(version: str) -> ReleaseBuild | None:
    """Return the build of a TensorFlow release (`2.18.0`, `2.4`), or None if nothing is known about it."""
    numbers = leading_numbers(version)
    if len(numbers) < 2:
        return None
    minor = f"{numbers[0]}.{numbers[1]}"
    for row in _older("releases"):
        if row["minor"] == minor:
            return _build(row)
    try:
        known = releases.release(".".join(map(str, numbers[:3])) if len(numbers) > 2 else f"{minor}.0")
    except UnknownRelease:
        return None
    return ReleaseBuild(known.cuda, known.cudnn, known.pythons)


def newest_older_build(cuda: str) -> ReleaseBuild | None:
    """Return the build of the newest of the older releases that opened the libraries of this CUDA."""
    numbers = leading_numbers(cuda)
    if not numbers:
        return None
    # Up to CUDA 10 the names of its libraries hold the major and the minor version, later only the major.
    significant = 2 if numbers[0] < 11 else 1
    for row in _older("releases"):
        if leading_numbers(row["cuda"])[:significant] == numbers[:significant]:
            return _build(row)
    return None


def oldest_driver(cuda: str, windows: bool) -> str | None:
    """Return the oldest driver that runs a CUDA toolkit (from CUDA 11 on, by minor-version compatibility)."""
    numbers = leading_numbers(cuda)
    for row in _older("drivers"):
        if leading_numbers(row["cuda"]) in (numbers[:1], numbers[:2]):
            return str(row["windows" if windows else "linux"])
    return None


def is_older_driver(driver: str, other: str) -> bool:
    """Return whether a driver release is older than another. A bare branch stands for its newest release."""
    try:
        return DriverRelease.parse(driver) < DriverRelease.parse(other)
    except ValueError:
        return False


def _build(row: Mapping[str, Any]) -> ReleaseBuild:
    return ReleaseBuild(row["cuda"], row["cudnn"], tuple(row["pythons"]))


def _older(table: str) -> Iterable[Mapping[str, Any]]:
    rows: Iterable[Mapping[str, Any]] = compiled.section("older")[table]
    return rows
