"""Estimate, before anything is fetched, how much a run downloads and stores."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..locks.lock_files import LockDirectory
from ..model.lock import Lock, Wheel
from ..model.spec import ImageSpec

#: What an image takes, relative to its wheels: tf2.21.0-cuda12.5-cudnn9.3-py311 has 2.6 GB of wheels and
#: takes 8.1 GB in Docker's containerd store, which keeps layers compressed and unpacked.
_STORED = 3.1


@dataclass(frozen=True)
class Estimate:
    """All sizes are in bytes.

    images: how many have a lock. unlocked: how many have none yet, whose sizes are not known.
    wheels: of all different wheels. download: of those that are not here. largest: what the largest image
    takes in an engine.
    """

    images: int
    unlocked: int
    wheels: int
    download: int
    largest: int


def estimate(
    specs: Iterable[ImageSpec], locks: LockDirectory, missing: Callable[[Iterable[Wheel]], Iterable[Wheel]]
) -> Estimate:
    """Return the estimate for these images. missing: returns the wheels that would have to be downloaded."""
    found = [locks.read(spec.identifier) for spec in specs]
    locked: list[Lock] = [lock for lock in found if lock is not None]
    wheels = list({wheel.sha256: wheel for lock in locked for wheel in lock.wheels}.values())
    return Estimate(
        images=len(locked),
        unlocked=len(found) - len(locked),
        wheels=_bytes_of(wheels),
        download=_bytes_of(missing(wheels)),
        largest=round(_STORED * max((lock.size for lock in locked), default=0)),
    )


def _bytes_of(wheels: Iterable[Wheel]) -> int:
    return sum(wheel.size or 0 for wheel in wheels)
