"""The Debian packages of a bootstrapped base, each pinned by version and hash."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from ..errors import InputError
from ..resources import images_directory, refresh_hint

DIRECTORY = images_directory() / "debian"
#: The archives of Debian, as the first part of a package's path names them.
ARCHIVES = ("debian", "debian-security")

#: Debian built the package again from the same source.
_REBUILD = re.compile(r"\+b\d+$")
_SNAPSHOT = re.compile(r"^# snapshot: (\d{8}T\d{6}Z)$", re.MULTILINE)
_LINE = re.compile(
    r"(?P<name>[a-z0-9][a-z0-9.+-]+) (?P<version>[\w.+:~-]+)"
    r" (?P<path>(?:debian|debian-security)/pool/(?:[\w+][\w.+~-]*/)+[\w+][\w.+~-]*\.deb)"
    r" (?P<size>\d{1,10}) sha256:(?P<sha256>[0-9a-f]{64})(?: source:(?P<source>[\w.+:~-]+))?"
)


@dataclass(frozen=True)
class DebianPackage:
    """One file of a Debian archive. path: `debian/pool/…` or `debian-security/pool/…`. size: in bytes.

    source_version: of the source package, whose version may differ from the package's.
    """

    name: str
    version: str
    path: str
    size: int
    sha256: str
    source_version: str

    def __str__(self) -> str:
        return f"{self.name} {self.version}"

    @property
    def file(self) -> str:
        return self.path.rsplit("/", 1)[1]

    @property
    def source(self) -> str:
        """The name of the source package, which is that of the directory in the archive."""
        return self.path.rsplit("/", 2)[1]


@dataclass(frozen=True)
class DebianLock:
    """All packages of a base. snapshot: a time at which snapshot.debian.org had them all, such as
    `20261122T120000Z`.
    """

    suite: str
    snapshot: str
    packages: tuple[DebianPackage, ...]

    @property
    def text(self) -> str:
        lines = [_line(one) for one in self.packages]
        return (
            f"# The packages of the base that is bootstrapped from Debian {self.suite} (amd64).\n"
            "# Written by `scripts/refresh debian`, not by hand.\n"
            f"# snapshot: {self.snapshot}\n" + "\n".join(lines) + "\n"
        )

    @property
    def digest(self) -> str:
        """The SHA-256 of the packages. The same packages have the same digest, whenever they were locked."""
        lines = "\n".join(f"{one.name} {one.version} {one.sha256}" for one in self.packages)
        return hashlib.sha256(lines.encode()).hexdigest()


def usual_source_version(version: str) -> str:
    """Return the version of the source package, if nothing else is said: without the mark of a rebuild."""
    return _REBUILD.sub("", version)


def lock_path(suite: str) -> Path:
    """Return the file of a suite's lock."""
    return DIRECTORY / f"{suite}.txt"


def read_lock(suite: str, path: Path | None = None) -> DebianLock:
    """Return the lock of a suite. Raises InputError, with the line, for a package that is not pinned."""
    path = path or lock_path(suite)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"Debian {suite} has no lock {path}", hint=refresh_hint("debian")) from None
    snapshot = _SNAPSHOT.search(text)
    if snapshot is None:
        raise InputError(f"{path} does not name a snapshot", hint=refresh_hint("debian"))
    packages = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise InputError(
                f"{path}:{number} does not pin a package by version, path, size and sha256",
                hint=refresh_hint("debian"),
            )
        packages.append(
            DebianPackage(
                match["name"],
                match["version"],
                match["path"],
                int(match["size"]),
                match["sha256"],
                match["source"] or usual_source_version(match["version"]),
            )
        )
    if not packages:
        raise InputError(f"{path} has no packages", hint=refresh_hint("debian"))
    return DebianLock(suite, snapshot[1], tuple(packages))


def _line(package: DebianPackage) -> str:
    line = f"{package.name} {package.version} {package.path} {package.size} sha256:{package.sha256}"
    differs = package.source_version != usual_source_version(package.version)
    return f"{line} source:{package.source_version}" if differs else line
