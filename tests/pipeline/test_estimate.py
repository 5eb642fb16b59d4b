"""The estimate of a run before it starts: downloads, disk and time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from validator.locks import lock_files
from validator.locks.lock_files import LockDirectory
from validator.model.spec import ImageSpec, Lock
from validator.pipeline.makers import Estimate, estimate

from .test_build_matrix import OTHER, SPEC, write_lock


def test_each_wheel_counts_once_and_what_is_here_is_not_downloaded(tmp_path: Path) -> None:
    locks = LockDirectory(tmp_path)
    for spec, sha256 in ((SPEC, "0" * 64), (OTHER, "2" * 64)):
        lock = write_lock(tmp_path, spec, sha256)
        lock_files.write(
            tmp_path, replace(lock, wheels=tuple(replace(wheel, size=100) for wheel in lock.wheels))
        )
    unlocked = replace(SPEC, python="3.12")
    found = estimate(
        (SPEC, OTHER, unlocked), locks, lambda wheels: [w for w in wheels if w.name != "pip"], absent
    )
    # The lock's wheels share one hash, and pip is in both.
    assert (found.images, found.unlocked) == (2, 1)
    assert (found.wheels, found.download) == (300, 200)
    assert found.largest > 100


def test_nothing_is_known_without_locks(tmp_path: Path) -> None:
    found = estimate((SPEC,), LockDirectory(tmp_path), lambda wheels: wheels, absent)
    assert (found.images, found.unlocked, found.wheels, found.download, found.largest) == (0, 1, 0, 0, 0)


def test_an_image_that_is_here_needs_no_wheels(tmp_path: Path) -> None:
    write_lock(tmp_path, SPEC, "0" * 64)
    found = estimate((SPEC,), LockDirectory(tmp_path), lambda wheels: wheels, lambda spec, lock: spec == SPEC)
    assert found == Estimate(there=1, images=0, unlocked=0, wheels=0, download=0, largest=0)


def absent(spec: ImageSpec, lock: Lock) -> bool:
    return False
