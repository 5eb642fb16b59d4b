"""Download the packages of a lock, check each against its hash, and make a repository of only these
packages.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import quote

from ..errors import MissingError
from ..resources import refresh_hint
from ..system import processes
from . import apt
from .debian_lock import ARCHIVES, DebianLock, DebianPackage, lock_path
from .progress import Progress

#: Debian's archive of everything that was ever on a mirror. Mirrors delete superseded versions.
SNAPSHOT = "https://snapshot.debian.org/archive"
_TIMEOUT_S = 1800


def fetch(lock: DebianLock, sources: apt.AptSources, directory: Path, progress: Progress) -> None:
    """Download every package of a lock into a directory, and check it.

    A package that the mirror no longer has is downloaded from snapshot.debian.org. Raises MissingError if a
    package differs from what the lock pins, or is in neither place.
    """
    snapshots = {archive: f"{SNAPSHOT}/{archive}/{lock.snapshot}" for archive in ARCHIVES}
    for name, places in (("the mirror", sources.mirrors), ("snapshot.debian.org", snapshots)):
        missing = [package for package in lock.packages if not (directory / package.file).exists()]
        if not missing:
            break
        _download(missing, places, directory, sources, progress)
        _refuse_changed(lock, directory, name)
    if missing := [package for package in lock.packages if not (directory / package.file).exists()]:
        shown = ", ".join(map(str, missing[:3])) + (
            f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        )
        raise MissingError(
            f"Debian {lock.suite} can't be bootstrapped: {shown} can be downloaded neither from the mirror"
            " nor from snapshot.debian.org",
            hint="check apt's sources and proxy on this machine; if the mirror has newer versions,"
            f" {refresh_hint('debian')}",
        )


def available(
    packages: Iterable[DebianPackage], lock: DebianLock, sources: apt.AptSources, directory: Path
) -> bool:
    """Return True if these packages of a lock can still be downloaded."""
    part = DebianLock(lock.suite, lock.snapshot, tuple(packages))
    try:
        fetch(part, sources, directory, lambda _: None)
    except MissingError:
        return False
    return True


def write_repository(lock: DebianLock, directory: Path) -> None:
    """Write the index of the downloaded packages, so that apt and debootstrap can read the directory."""
    stanzas = []
    for package in lock.packages:
        result = processes.run(["dpkg-deb", "--field", directory / package.file], timeout_s=60)
        if not result.ok:
            raise MissingError(f"dpkg-deb can't read {package.file}: {result.stderr_tail.strip()}")
        control = result.stdout.decode("utf-8").strip()
        stanzas.append(
            f"{control}\nFilename: {package.file}\nSize: {package.size}\nSHA256: {package.sha256}\n"
        )
    # debootstrap ignores a stanza without an empty line after it.
    index = "".join(f"{stanza}\n" for stanza in stanzas).encode()
    release = directory / "dists" / lock.suite
    binary = release / "main" / "binary-amd64"
    binary.mkdir(parents=True)
    (binary / "Packages").write_bytes(index)
    digest = hashlib.sha256(index).hexdigest()
    (release / "Release").write_text(
        f"Suite: {lock.suite}\nCodename: {lock.suite}\nArchitectures: amd64\nComponents: main\n"
        f"Date: Thu, 01 Jan 1970 00:00:00 UTC\nSHA256:\n {digest} {len(index)} main/binary-amd64/Packages\n",
        encoding="utf-8",
    )


def _download(
    packages: list[DebianPackage],
    places: Mapping[str, str],
    directory: Path,
    sources: apt.AptSources,
    progress: Progress,
) -> None:
    """Download files, and ignore those that could not be downloaded."""
    arguments = []
    for package in packages:
        archive, _, rest = package.path.partition("/")
        arguments += [
            f"{places[archive]}/{quote(rest, safe='/')}", str(directory / package.file),
            f"SHA256:{package.sha256}", f"Checksum-FileSize:{package.size}",
        ]  # fmt: skip
    processes.run(
        [
            apt.HELPER, "-o", "Acquire::Retries=2", "-o", "Acquire::http::Timeout=30",
            "-o", "Acquire::https::Timeout=30", "-o", "APT::Sandbox::User=root", "download-file", *arguments,
        ],
        env={**os.environ, **sources.environment, "LC_ALL": "C.UTF-8"},
        on_line=progress,
        timeout_s=_TIMEOUT_S,
    )  # fmt: skip


def _refuse_changed(lock: DebianLock, directory: Path, place: str) -> None:
    """Raise MissingError for a file that is not what the lock pins. apt-helper renames such files."""
    for package in lock.packages:
        path = directory / package.file
        for found in (path, path.with_name(f"{path.name}.FAILED")):
            # apt-helper leaves an empty file if the download has another size.
            if (
                not found.is_file()
                or (digest := hashlib.sha256(found.read_bytes()).hexdigest()) == package.sha256
            ):
                continue
            saw = f"a file with the sha256 {digest}" if found.stat().st_size else "a file of another size"
            raise MissingError(
                f"{place} serves {saw} as {package.path}, but for {package}, {lock_path(lock.suite)} pins"
                f" {package.size} bytes with the sha256 {package.sha256}: nothing was installed",
                hint="use another mirror in apt's sources; if Debian replaced the package,"
                f" {refresh_hint('debian', ', which checks the signature of Debian')}",
            )
