"""TensorFlow releases that are too old for images, and the drivers that their CUDA toolkits need.

People still ask about them, and paste their logs.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from ..versions import CudaVersion, DriverRelease, InvalidVersion, Version, leading_numbers, major_minor
from . import drivers, facts
from .errors import UnknownRelease
from .facts import Fact
from .releases import Release, release, releases


@dataclass(frozen=True)
class Floor:
    """The oldest driver that runs a CUDA toolkit; from CUDA 11 on, every toolkit of the major version."""

    driver: DriverRelease
    fact: Fact


@functools.lru_cache(maxsize=1024)
def release_of_any_age(version: str) -> Release | None:
    """Return the facts of a release (`2.18.0`, `1.15`), or None if they don't have it.

    Text after the numbers does not matter (`2.17.0+nv25.2`). Two numbers stand for the newest release of the
    series. A release before those in `releases()` has the version as it was given.
    """
    numbers = leading_numbers(version)
    if len(numbers) < 2:
        return None
    minor = f"{numbers[0]}.{numbers[1]}"
    for row in facts.rows("older", "releases"):
        if row["minor"] == minor:
            return _older(row, ".".join(map(str, numbers[:3])))
    try:
        return release(version.strip())
    except UnknownRelease:
        pass
    try:
        return release(".".join(map(str, numbers[:3])))
    except UnknownRelease:
        return None


def nearest_inspected(version: str) -> Release | None:
    """Return the inspected release nearest to one that was not: before 2.8, a candidate or a nightly.

    None for a release that was inspected, and for one that can't exist.
    """
    try:
        asked = Version(version)
    except InvalidVersion:
        return None
    known = releases()
    if any(Version(one.version) == asked for one in known):
        return None
    if any(row["minor"] == major_minor(version) for row in facts.rows("older", "releases")):
        return known[0]
    last = Version(known[-1].version).release
    if not asked.is_prerelease or asked.release[:2] > (last[0], last[1] + 1):
        return None
    same = [one for one in known if one.minor == major_minor(version)]
    exact = [one for one in same if Version(one.version).release == asked.release]
    return exact[0] if exact else (same or known)[-1]


@functools.cache
def every_python() -> tuple[str, ...]:
    """Return every Python that a release has a wheel for, oldest first, and the one after the newest."""
    rows = (*facts.rows("older", "releases"), *facts.rows("tensorflow", "releases"))
    known = sorted({leading_numbers(python)[:2] for row in rows for python in row["pythons"]})
    known.append((known[-1][0], known[-1][1] + 1))
    return tuple(f"{major}.{minor}" for major, minor in known)


@functools.cache
def known_versions() -> tuple[str, ...]:
    """Return every stable release in the facts, oldest first; before 2.8 one for each minor version."""
    older = [f"{known.version}.0" for known in older_releases()]
    return (*older, *(known.version for known in releases() if not known.prerelease))


@functools.cache
def older_releases() -> tuple[Release, ...]:
    """Return the releases before 2.8, oldest first; one for each minor version (`2.7`)."""
    return tuple(_older(row, row["minor"]) for row in reversed(facts.rows("older", "releases")))


def newest_with_cuda(cuda: str) -> Release | None:
    """Return the newest of the older releases that opens the libraries of this CUDA, or None."""
    numbers = leading_numbers(cuda)
    if not numbers:
        return None
    # Up to CUDA 10 the names of its libraries hold the major and the minor version, later only the major.
    significant = 2 if numbers[0] < 11 else 1
    for row in facts.rows("older", "releases"):
        if leading_numbers(row["cuda"])[:significant] == numbers[:significant]:
            return _older(row, row["minor"])
    return None


@functools.lru_cache(maxsize=1024)
def oldest_driver(cuda: CudaVersion, windows: bool) -> Floor | None:
    """Return the oldest driver that runs a toolkit, on Linux or on Windows; None if it is not known."""
    every = drivers.minor_version(cuda.major)
    if every is not None:
        return Floor(every.windows if windows else every.driver, every.fact)
    for row in facts.rows("older", "drivers"):
        if row["cuda"] == str(cuda):
            return Floor(DriverRelease.parse(row["windows" if windows else "linux"]), facts.fact(row))
    return None


@functools.cache
def driver_with(cuda: CudaVersion, windows: bool = False) -> DriverRelease | None:
    """Return the oldest driver for which nvidia-smi shows a CUDA version; None if the tables don't have it.

    From CUDA 11 on, this is a whole branch, or on Windows a release that runs every toolkit of that CUDA.
    """
    branch = drivers.branch_for(cuda)
    if branch is not None:
        known, every = DriverRelease(branch.number), drivers.minor_version(cuda.major)
        return max(known, every.windows) if windows and every is not None else known
    floor = oldest_driver(cuda, windows)
    return floor.driver if floor is not None and drivers.minor_version(cuda.major) is None else None


def _older(row: facts.Row, version: str) -> Release:
    return Release(
        version=version,
        pythons=tuple(row["pythons"]),
        cuda=row["cuda"],
        cudnn=row["cudnn"],
        extra_style="none",
        fact=facts.fact(row),
        package=row.get("package", "tensorflow"),
        lowest_gpu=row["gpu"],
    )
