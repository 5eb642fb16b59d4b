"""The lock of an image spec: kept while it satisfies the spec, otherwise resolved."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, replace

from ..assemble.wheels import Wheelhouse
from ..compat.policies import requirements
from ..compat.releases import origin_of
from ..errors import InputError
from ..locks.lock_files import LockDirectory, mismatches
from ..locks.resolve import resolve
from ..model.spec import ImageSpec, Lock
from ..system.package_sources import PackageSources
from ..system.processes import Progress


@dataclass(frozen=True)
class Locked:
    """A lock, and why it was written or kept."""

    lock: Lock
    written: bool
    why: str


def stale(locks: LockDirectory, spec: ImageSpec) -> list[str]:
    """Return why the spec's lock can't be used as it is; raises InputError if it is not a valid lock."""
    lock = locks.read(spec.identifier)
    return ["there is no lock yet"] if lock is None else mismatches(lock, spec, requirements(spec))


def refuse_wrong_locks(locks: LockDirectory, specs: Iterable[ImageSpec]) -> None:
    """Raise an InputError that lists every invalid lock file of these specs."""
    wrong: list[InputError] = []
    for spec in specs:
        try:
            locks.read(spec.identifier)
        except InputError as error:
            wrong.append(error)
    if wrong:
        raise InputError("\n".join(str(error) for error in wrong), hint=wrong[0].hint)


def ensure_lock(
    locks: LockDirectory,
    spec: ImageSpec,
    sources: PackageSources,
    progress: Progress,
    *,
    upgrade: bool = False,
) -> Locked:
    """Return the lock of a spec. Resolve and write it if it is missing or stale, or if `upgrade` is set.

    A stale lock keeps the versions that still satisfy the spec, unless `upgrade` is set. Raises InputError if
    the spec can't be resolved, and MissingError if the index can't be reached.
    """
    lock = locks.read(spec.identifier)
    reasons = stale(locks, spec)
    if lock is not None and not reasons and not upgrade:
        return Locked(_with_address(lock), written=False, why="kept")
    why = "upgraded" if lock is not None and not reasons else "; ".join(reasons)
    progress(f"resolving ({why})")
    own = origin_of(spec.tensorflow)
    with contextlib.closing(Wheelhouse(sources)) as house:
        resolved = resolve(
            spec,
            requirements(spec),
            sources,
            lambda line: progress(sources.redact(line)),
            keep=None if upgrade else lock,
            own=house.path(own) if own is not None and own.path is not None else None,
        )
    if lock is not None and lock == resolved:
        return Locked(_with_address(lock), written=False, why="nothing newer")
    locks.write(resolved)
    return Locked(resolved, written=True, why=why)


def _with_address(lock: Lock) -> Lock:
    """Return a lock that knows the whole address of its TensorFlow, which no file has."""
    own, origin = lock.own_tensorflow, origin_of(lock.identifier.partition("-")[0].removeprefix("tf"))
    if own is None or origin is None:
        return lock
    known = replace(own, address=origin.address)
    return replace(lock, wheels=tuple(known if wheel == own else wheel for wheel in lock.wheels))
