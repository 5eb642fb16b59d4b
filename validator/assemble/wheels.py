"""The wheels of an image: the lock that names them, and the cache that has them.

A lock is kept while it satisfies its image spec, and otherwise resolved.

Each wheel is downloaded once, verified, and kept until the space is needed. The files are named by their
SHA-256, in `wheels/` of the cache directory. Several processes may use it at the same time: a lock on the
unfinished file lets one of them download it, and a shared lock on the finished one keeps it from being
evicted while it is used. The kernel releases both when a process ends, however it ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import threading
import time
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ..compat.policies import requirements
from ..compat.releases import origin_of
from ..errors import InputError, MissingError
from ..locks import lock_files
from ..locks.index import PackageIndex, sha256_of
from ..locks.lock_files import LockDirectory, mismatches
from ..locks.resolve import resolve
from ..model.spec import ImageSpec, Lock, Wheel
from ..system.files import cache_directory, full_disk_named
from ..system.package_sources import PackageSources
from ..system.pools import Meter, map_in_threads
from ..system.processes import Progress
from .wheel import InstallableWheel, WheelError, is_verified, note_verified, open_wheel

logger = logging.getLogger(__name__)

#: The limit of the cache. One image has about 2.6 GB of wheels.
MOST_BYTES = 20_000_000_000
#: More connections don't make one index faster.
_AT_ONCE = 4
#: Seconds between two looks at a download of another process.
_PAUSE_S = 0.1
#: Where the wheels are in the cache directory.
_DIRECTORY = "wheels"


def cached_wheel(wheel: Wheel) -> Path | None:
    """Return the verified file of a wheel in the cache, or None. It may be evicted at any time."""
    path = cache_directory() / _DIRECTORY / f"{wheel.sha256}.whl"
    return path if path.is_file() else None


class Wheelhouse:
    """The wheels of locks as files. Methods may be called from several threads.

    directory: None for `wheels/` in the cache directory. most_bytes: beyond this, wheels that nobody uses are
    evicted. local: the directory that the paths of wheels on this machine are relative to.
    """

    def __init__(
        self,
        sources: PackageSources,
        directory: Path | None = None,
        most_bytes: int = MOST_BYTES,
        local: Path | None = None,
    ) -> None:
        self._index = PackageIndex(sources)
        self._directory = directory or cache_directory() / _DIRECTORY
        self._most_bytes = most_bytes
        self._local = local
        self._guard = threading.Lock()
        self._turns: dict[str, threading.Lock] = defaultdict(threading.Lock)
        #: The descriptors of the verified wheels by SHA-256, each with a shared lock.
        self._used: dict[str, int] = {}
        weakref.finalize(self, _close, self._used)

    def path(self, wheel: Wheel, received: Callable[[int], object] = lambda size: None) -> Path:
        """Return the file of a wheel, after downloading it if it is not here.

        Its hash is verified once, and the file stays until `close`, or this process ends. received: called
        with the number of bytes of each part that is downloaded. Raises MissingError if the index does not
        have it, the network keeps failing or the disk is full.
        """
        if wheel.is_local:
            file = Path(wheel.address or (self._local or Path()) / (wheel.path or ""))
            hint = "put the same file there again, or write a new lock with `validator lock`"
            if not file.is_file():
                raise MissingError(f"{file}: the wheel that the lock names is not there", hint=hint)
            if sha256_of(file) != wheel.sha256:
                raise InputError(f"{file}: the wheel changed since the lock was written", hint=hint)
            return file
        path = self._path(wheel)
        with self._turn(wheel):
            if wheel.sha256 not in self._used:
                with _writable(self._directory):
                    self._directory.mkdir(parents=True, exist_ok=True)
                    handle = self._opened(wheel)
                    while handle is None:
                        verified = self._download(wheel, received)
                        handle = self._opened(wheel, verified)
                self._used[wheel.sha256] = handle
        return path

    def open(self, wheel: Wheel) -> InstallableWheel:
        """Return the opened wheel, which is downloaded first if it is not here.

        If it is here, its hash is computed only once, while its directory is read. Raises what `path` and
        `open_wheel` raise.
        """
        opened = None if wheel.is_local else self._open_unverified(wheel)
        return opened or open_wheel(self.path(wheel), wheel)

    def missing(self, wheels: Iterable[Wheel]) -> list[Wheel]:
        """Return the wheels that would have to be downloaded."""
        return [wheel for wheel in wheels if not wheel.is_local and not self._path(wheel).exists()]

    def fetch(self, wheels: Iterable[Wheel], report: Callable[[str], object]) -> None:
        """Make sure that all wheels are here, several at once. Raises what `path` raises."""
        wheels = list({wheel.sha256: wheel for wheel in wheels}.values())
        missing = self.missing(wheels)
        sizes = [wheel.size for wheel in missing]
        total = None if None in sizes else sum(size or 0 for size in sizes)
        name = "wheel" if len(missing) == 1 else "wheels"
        # The largest first, so that none of them is left to download on its own at the end.
        largest = sorted(wheels, key=lambda wheel: -(wheel.size or 0))
        tell = report if missing else lambda _: None
        with Meter(f"downloading {len(missing)} {name}", total, tell) as meter:
            map_in_threads(lambda wheel: self.path(wheel, meter.add), largest, _AT_ONCE)

    def close(self) -> None:
        _close(self._used)

    def _path(self, wheel: Wheel) -> Path:
        return self._directory / f"{wheel.sha256}.whl"

    def _turn(self, wheel: Wheel) -> threading.Lock:
        with self._guard:
            return self._turns[wheel.sha256]

    def _open_unverified(self, wheel: Wheel) -> InstallableWheel | None:
        """Return an opened wheel that was not verified before, or None if it is not here or changed."""
        path = self._path(wheel)
        with self._turn(wheel), _writable(self._directory):
            file = None if wheel.sha256 in self._used else _locked(path, fcntl.LOCK_SH)
            if file is None:
                return None
            try:
                _note_use(path, file)
                opened = open_wheel(path, wheel)
            except WheelError:
                os.close(file)
                return None
            except BaseException:
                os.close(file)
                raise
            self._used[wheel.sha256] = file
            return opened

    def _opened(self, wheel: Wheel, verified: bool = False) -> int | None:
        """Return a wheel's file with a shared lock, or None if it is not here or was damaged."""
        path = self._path(wheel)
        file = _locked(path, fcntl.LOCK_SH)
        if file is None:
            return None
        try:
            if verified or is_verified(file, wheel.sha256) or sha256_of(path) == wheel.sha256:
                note_verified(file, wheel.sha256)
                _note_use(path, file)
                return file
            logger.warning("%s: its content changed, so it is downloaded again", path)
            path.unlink(missing_ok=True)
        except BaseException:
            os.close(file)
            raise
        os.close(file)
        return None

    def _download(self, wheel: Wheel, received: Callable[[int], object]) -> bool:
        """Download and verify a wheel. Return False if another process has done so meanwhile."""
        path = self._path(wheel)
        partial = path.with_name(f"{path.name}.partial")
        file = None
        while file is None:
            if path.exists():
                return False
            partial.touch()
            # The unfinished file becomes the wheel. A call that waits for its lock would go on waiting while
            # anybody uses the wheel.
            file = _locked(partial, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if file is None:
                time.sleep(_PAUSE_S)
        try:
            if path.exists():
                partial.unlink(missing_ok=True)
                return False
            found = self._index.locked(wheel)
            self._make_room((found.size or 0) - os.fstat(file).st_size)
            self._index.download(found, path, received)
            return True
        finally:
            # This gives up the lock.
            os.close(file)

    def _make_room(self, size: int) -> None:
        """Evict wheels until this size fits below the limit and on the disk, or all others are in use."""
        # What is left of downloads that nobody finished counts, too.
        files = []
        for path in self._directory.iterdir():
            with contextlib.suppress(FileNotFoundError):
                files.append((path, path.stat()))
        files.sort(key=lambda item: item[1].st_atime_ns)
        total = size + sum(status.st_size for _, status in files)
        for path, status in files:
            if total <= self._most_bytes and shutil.disk_usage(self._directory).free > size:
                return
            file = _locked(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if file is not None:
                try:
                    path.unlink(missing_ok=True)
                finally:
                    os.close(file)
                total -= status.st_size


def _locked(path: Path, how: int) -> int | None:
    """Return a file's descriptor, locked, or None if it does not exist or, with LOCK_NB, another has it."""
    while True:
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(file, how)
            there = path.stat()
        except (BlockingIOError, FileNotFoundError):
            os.close(file)
            if how & fcntl.LOCK_NB:
                return None
            continue
        # Another process may have removed or replaced it before this one had the lock.
        if os.path.samestat(there, os.fstat(file)):
            return file
        os.close(file)


def _note_use(path: Path, file: int) -> None:
    """Set the time of access, which orders the eviction. Not every file system keeps it by itself."""
    os.utime(path, ns=(time.time_ns(), os.fstat(file).st_mtime_ns))


def _close(files: dict[str, int]) -> None:
    while files:
        os.close(files.popitem()[1])


@contextlib.contextmanager
def _writable(directory: Path) -> Iterator[None]:
    try:
        with full_disk_named(directory):
            yield
    except OSError as error:
        raise MissingError(
            f"{directory}: wheels can't be stored here: {error.strerror}",
            hint="set VALIDATOR_CACHE to a directory that you may write to",
        ) from error


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
    lock_files.write(locks.own, resolved)
    return Locked(resolved, written=True, why=why)


def _with_address(lock: Lock) -> Lock:
    """Return a lock that knows the whole address of its TensorFlow, which no file has."""
    own, origin = lock.own_tensorflow, origin_of(lock.identifier.partition("-")[0].removeprefix("tf"))
    if own is None or origin is None:
        return lock
    known = replace(own, address=origin.address)
    return replace(lock, wheels=tuple(known if wheel == own else wheel for wheel in lock.wheels))
