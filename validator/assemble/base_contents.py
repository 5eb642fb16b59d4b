"""List the packages of a base, as its lock or the database of dpkg in its layers says."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ..errors import InputError
from . import bootstrap
from .base import Base
from .debian_lock import DebianLock, read_lock, usual_source_version

_STATUS = "var/lib/dpkg/status"
#: Images without a package manager have one file for each package.
_STATUS_FILES = f"{_STATUS}.d/"
_OS_RELEASE = ("usr/lib/os-release", "etc/os-release")
#: What dpkg says of packages without files; all others have some, whatever is left to do.
_WITHOUT_FILES = ("config-files", "not-installed")
# https://www.debian.org/doc/debian-policy/ch-controlfields.html
_NAME = re.compile(r"[a-z0-9][a-z0-9+.-]+")
#: dpkg also accepts versions that don't begin with a digit, such as `v1.2`.
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+:~-]*")
_SOURCE = re.compile(r"(?P<name>[a-z0-9][a-z0-9+.-]+)(?: \((?P<version>[A-Za-z0-9.+:~-]+)\))?")
#: The number of each release that a base can be bootstrapped from.
_RELEASES = {"bookworm": "12", "trixie": "13"}


@dataclass(frozen=True, order=True)
class SystemPackage:
    """An installed package of Debian or a distribution made from it.

    source, source_version: the source package that it was built from. Advisories are about these.
    sha256: of its file, or None if the database of dpkg is all that is known.
    """

    name: str
    version: str
    architecture: str
    source: str
    source_version: str
    sha256: str | None = None


@dataclass(frozen=True)
class BaseContents:
    """The contents of a base.

    origin: as in `Base.origin`. distribution, release: such as `debian` and `12`; empty if unknown.
    packages: sorted by name; None if the base has no database of dpkg, so that nobody can list them.
    python: the exact version of its Python if that is not one of the packages.
    """

    origin: str
    distribution: str = ""
    release: str = ""
    packages: tuple[SystemPackage, ...] | None = None
    python: str | None = None


def contents(base: Base) -> BaseContents:
    """Return what a base has. Raises InputError if its list of packages is damaged."""
    for suite in bootstrap.SUITES.values():
        # With more packages, it has another origin, and their versions are those of the day it was made.
        if base.origin == bootstrap.origin(suite):
            return contents_of_suite(suite)
    release = _release({path: file.content for path, file in base.files.files.items()})
    found = installed_packages(base)
    interpreter = base.files.interpreter
    packaged = {f"python{interpreter.feature}-minimal", f"python{interpreter.feature}"}
    own = not any(one.name in packaged for one in found or ())
    return BaseContents(
        base.origin, release.get("ID", ""), release.get("VERSION_ID", ""),
        found, interpreter.version if own else None,
    )  # fmt: skip


def contents_of_suite(suite: str) -> BaseContents:
    """Return what the base has that is bootstrapped from a suite, without making it."""
    packages = tuple(sorted(_locked(read_lock(suite))))
    return BaseContents(bootstrap.origin(suite), "debian", _RELEASES[suite], packages)


def _locked(lock: DebianLock) -> Iterator[SystemPackage]:
    for one in lock.packages:
        architecture = one.file.removesuffix(".deb").rpartition("_")[2]
        yield SystemPackage(
            one.name, one.version, architecture, one.source, one.source_version, one.sha256
        )  # fmt: skip


def installed_packages(base: Base) -> tuple[SystemPackage, ...] | None:
    """Return the packages that the database of dpkg in a base has, sorted, or None if there is no database.

    Raises InputError if it is damaged.
    """
    databases = [
        file.content
        for path, file in base.files.files.items()
        if path == _STATUS or path.startswith(_STATUS_FILES)
    ]
    if not databases:
        return None
    found = {package for content in databases for package in read_status(content, base.name)}
    hashes: dict[tuple[str, str], str | None] = {}
    for suite in bootstrap.SUITES.values():
        if base.origin.startswith(f"bootstrap:{suite}@"):
            hashes = {(one.name, one.version): one.sha256 for one in _locked(read_lock(suite))}
    return tuple(sorted(replace(one, sha256=hashes.get((one.name, one.version))) for one in found))


def read_status(content: bytes, base: str) -> Iterator[SystemPackage]:
    """Yield the packages whose files dpkg has unpacked. base: its name, for messages.

    Raises InputError for an entry that is not what dpkg writes.
    """
    text = content.decode("utf-8", "replace").strip()
    # A base that has removed its packages may have an empty file.
    for number, stanza in enumerate(re.split(r"\n\s*\n", text) if text else (), 1):
        fields = _fields(stanza)
        # The files of images without a package manager have no status: each package is there.
        if fields.get("Status", "").rpartition(" ")[2] in _WITHOUT_FILES:
            continue
        name, version = fields.get("Package", ""), fields.get("Version", "")
        source = _SOURCE.fullmatch(fields.get("Source", name))
        if not (_NAME.fullmatch(name) and _VERSION.fullmatch(version) and source):
            raise InputError(
                f"the list of packages in the base image {base} is damaged: its entry {number} has no valid"
                f" name, version or source: {stanza[:80]!r}",
                hint="use another base",
            )
        yield SystemPackage(
            name, version, fields.get("Architecture", "all"),
            source["name"], source["version"] or usual_source_version(version),
        )  # fmt: skip


def _fields(stanza: str) -> dict[str, str]:
    """Return the fields of an entry with one line each. The others are not asked for."""
    lines = [line.partition(":") for line in stanza.splitlines() if not line[:1].isspace()]
    return {name: value.strip() for name, _, value in lines}


def _release(files: Mapping[str, bytes]) -> dict[str, str]:
    """Return the fields of os-release, without quotes."""
    content = next((files[path] for path in _OS_RELEASE if path in files), b"")
    lines = [line.partition("=") for line in content.decode("utf-8", "replace").splitlines()]
    return {name.strip(): value.strip().strip("\"'") for name, _, value in lines}
