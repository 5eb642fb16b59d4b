"""Bootstrap a base image from Debian's packages, for machines that can't reach an image registry.

The packages are those of a lock. They are downloaded from the host's mirror and checked against their hashes
before anything of them runs. Then mmdebstrap or debootstrap creates the root file system from only these
files, and `docker import` makes an image from it. The base contains no trace of the mirror, its proxy or its
certificate authorities.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from ..errors import BuildError, MissingError
from ..resources import images_directory
from ..system import processes
from ..system.files import full_disk, full_disk_named, says_full_disk
from . import apt, image_names
from .debian_lock import DebianLock, read_lock
from .debian_packages import fetch, write_repository
from .progress import Progress

#: The Debian release whose own Python is this version.
SUITES: Mapping[str, str] = {"3.11": "bookworm", "3.13": "trixie"}
#: The packages in addition to the smallest Debian, as in official Python images. Without
#: usr-is-merged, Debian 12 would get a package that moves files to /usr, and all of Perl with it.
PACKAGES: Mapping[str, tuple[str, ...]] = {
    "bookworm": ("ca-certificates", "python3", "tzdata", "usr-is-merged"),
    "trixie": ("ca-certificates", "python3", "tzdata"),
}

#: The end of a sentence that says why a base can't be bootstrapped.
NO_TOOL = "this machine lacks apt, dpkg-deb, or both mmdebstrap and debootstrap"

_MERGE_USR = images_directory() / "base" / "merge-usr"
_CLEAN = images_directory() / "base" / "clean-rootfs"
#: With more packages, apt also knows the mirror. The packages of the lock come from the lock nevertheless.
_PREFERENCE = '"$1"/etc/apt/preferences.d/locked'
_PREFER_LOCKED = (
    'mkdir -p "$1"/etc/apt/preferences.d'
    f" && printf 'Package: *\\nPin: origin \"\"\\nPin-Priority: 1001\\n' >{_PREFERENCE}"
)
_NO_PREFERENCE = f"rm {_PREFERENCE}"
_TIMEOUT_S = 1800
_EXCLUDED = ("/usr/share/doc/*", "/usr/share/info/*", "/usr/share/locale/*", "/usr/share/man/*")


def digest(suite: str, packages: Sequence[str] = ()) -> str:
    """Return the SHA-256 of everything that a suite's base depends on: its packages and the recipe.

    packages: names of more packages, which are installed in the versions of that day.
    """
    scripts = [path.read_text(encoding="utf-8") for path in (_MERGE_USR, _CLEAN)]
    recipe = [suite, read_lock(suite).digest, *_EXCLUDED, *scripts, *sorted(packages)]
    return hashlib.sha256("\n".join(recipe).encode()).hexdigest()


def tag(suite: str) -> str:
    """Return the image name of a suite's base, which depends on its packages and the recipe."""
    return f"{image_names.PROJECT}-base:{suite}-{digest(suite)[:12]}"


def origin(suite: str, packages: Sequence[str] = ()) -> str:
    """Return the origin of a suite's base, as in records and labels."""
    return f"bootstrap:{suite}@sha256:{digest(suite, packages)}"


def tool() -> str | None:
    """Return the installed tool, or None. Each needs apt and dpkg-deb. debootstrap works only for root."""
    if not apt.HELPER.exists() or shutil.which("dpkg-deb") is None:
        return None
    if shutil.which("mmdebstrap"):
        return "mmdebstrap"
    return "debootstrap" if os.geteuid() == 0 and shutil.which("debootstrap") else None


def root_file_system(suite: str, directory: Path, progress: Progress, packages: Sequence[str] = ()) -> Path:
    """Create the root file system of a suite as a tar archive in `directory`. This takes about half a minute.

    packages: more packages, from the mirror, without a pinned version. Only mmdebstrap can add them.
    Raises MissingError if the tool, the network or disk space is missing, and BuildError for other failures.
    """
    name = tool()
    if name is None:
        raise MissingError(
            f"Debian {suite} can't be bootstrapped: {NO_TOOL}",
            hint="install apt, dpkg and mmdebstrap, or connect the engine to an image registry",
        )
    if packages and name != "mmdebstrap":
        raise MissingError(
            f"Debian {suite} can't be bootstrapped with {', '.join(packages)}: mmdebstrap is not installed",
            hint="install mmdebstrap, or use a base from a registry and Docker",
        )
    lock = read_lock(suite)
    sources = apt.apt_sources()
    archive = directory / "rootfs.tar"
    repository = directory / "packages"
    repository.mkdir()
    with full_disk_named(directory):
        progress(f"downloading {len(lock.packages)} packages of Debian {suite}")
        fetch(lock, sources, repository, progress)
        write_repository(lock, repository)
        progress(f"bootstrapping Debian {suite} with {name}")
        if name == "mmdebstrap":
            _mmdebstrap(lock, archive, repository, progress, packages, sources)
        else:
            _debootstrap(lock, archive, repository, progress)
    return archive


def _mmdebstrap(
    lock: DebianLock,
    archive: Path,
    repository: Path,
    progress: Progress,
    packages: Sequence[str],
    sources: apt.AptSources,
) -> None:
    hooks = [f"--setup-hook={_MERGE_USR}", f"--customize-hook={_CLEAN}"]
    if packages:
        hooks = [f"--setup-hook={_PREFER_LOCKED}", f"--customize-hook={_NO_PREFERENCE}", *hooks]
    # With `copy:`, the tool needs no access to the directory from inside the new root.
    _run(
        [
            "mmdebstrap", "--variant=minbase", f"--include={','.join((_names(lock), *packages))}",
            *(f"--dpkgopt=path-exclude={pattern}" for pattern in _EXCLUDED), *hooks,
            lock.suite, archive, f"deb [trusted=yes] copy:{repository} {lock.suite} main",
            *(sources.lines(lock.suite) if packages else ()),
        ],
        lock.suite, progress, sources.environment if packages else {},
    )  # fmt: skip


def _debootstrap(lock: DebianLock, archive: Path, repository: Path, progress: Progress) -> None:
    with tempfile.TemporaryDirectory(dir=archive.parent) as name:
        root = Path(name) / "root"
        _run(
            [
                "debootstrap", "--no-check-gpg", "--variant=minbase", f"--include={_names(lock)}",
                lock.suite, root, f"file://{repository}",
            ],
            lock.suite, progress,
        )  # fmt: skip
        _run([_CLEAN, root], lock.suite, progress)
        _run(
            [
                "tar", "--create", f"--file={archive}", f"--directory={root}", "--sort=name",
                "--numeric-owner", "--mtime=@0", "--exclude=./dev/*", ".",
            ],
            lock.suite, progress,
        )  # fmt: skip


def _names(lock: DebianLock) -> str:
    return ",".join(package.name for package in lock.packages)


def _run(
    command: list[str | Path],
    suite: str,
    progress: Progress,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> None:
    # With SOURCE_DATE_EPOCH, mmdebstrap's output is reproducible.
    environment = {**os.environ, **variables, "SOURCE_DATE_EPOCH": "0", "LC_ALL": "C.UTF-8"}
    result = processes.run(command, env=environment, timeout_s=_TIMEOUT_S, on_line=progress)
    if result.ok:
        return
    if says_full_disk(result.stderr_tail):
        raise full_disk(tempfile.gettempdir())
    last = [line for line in result.stderr_tail.splitlines() if line.strip()][-1:] or ["no message"]
    raise BuildError(
        f"Debian {suite} can't be bootstrapped: {Path(str(command[0])).name} failed: {last[0]}",
        log=result.stderr_tail,
    )
