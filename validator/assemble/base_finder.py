"""Find or make the base of an image: from a registry by its digest, or from Debian's packages by their
hashes.
"""

from __future__ import annotations

import hashlib
import logging
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Protocol

import yaml

from ..errors import InputError, MissingError, ValidatorError
from ..model.record import BaseOrigin
from ..model.spec import ImageSpec
from ..registry.names import Repository
from ..resources import images_directory, refresh_hint
from ..system.files import cache_directory, full_disk_named, read_text
from ..system.processes import Progress
from ..system.runs import temporary_directory
from . import bootstrap
from .base import (
    Base,
    BaseLayer,
    ImageName,
    compress_archive,
    compression,
    read_archive,
    read_base,
    read_file,
    registry_base,
    saved_image,
    tag_digest,
)
from .bootstrap import DebianLock, read_lock, usual_source_version
from .layer_table import LayerTable

# Read and write images/bases.yaml, which pins the default base image for each Python by digest.

FILE = images_directory() / "bases.yaml"
#: The tag whose digest is pinned.
TAG = "python:{}-slim-bookworm"

#: An image in a registry: its name with a tag, and the digest that the tag had when it was pinned.
PINNED = re.compile(r"(?P<name>[a-z0-9][a-z0-9._/-]*:[\w.-]+)@(?P<digest>sha256:[0-9a-f]{64})")
_PYTHON = re.compile(r"3\.\d+")


def pinned_bases(path: Path = FILE) -> Mapping[str, str]:
    """Return the bases by Python. Raises InputError for a base without a digest."""
    try:
        content = yaml.safe_load(read_text(path))
    except yaml.YAMLError as error:
        raise InputError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict) or not content:
        raise InputError(f"{path} must be a mapping from Python versions to images")
    for python, base in content.items():
        if not (isinstance(base, str) and PINNED.fullmatch(base) and _PYTHON.fullmatch(str(python))):
            raise InputError(
                f"{path}: {python}: {base} is not pinned; it must be a name, a tag and a digest,"
                f" such as {TAG.format('3.12')}@sha256:…",
                hint=refresh_hint("bases", " on a machine that can reach the registry"),
            )
    return {str(python): base for python, base in content.items()}


def text_of(bases: Mapping[str, str]) -> str:
    """Return the content of the file."""
    lines = [f'"{python}": {base}' for python, base in bases.items()]
    header = (
        "# The default base image for each Python, pinned by digest."
        " Written by `scripts/refresh bases`, not by hand."
    )
    return "\n".join([header, *lines]) + "\n"


# List the packages of a base, as its lock or the database of dpkg in its layers says.

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
    """An installed package of Debian or a distribution made from it. Advisories are about its source.

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
    """The contents of a base. origin: as in `Base.origin`. distribution, release: such as `debian` and `12`.

    packages: sorted; None without a database of dpkg. python: the version of a Python that is no package.
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
    files = base.files.files
    content = next((files[path].content for path in _OS_RELEASE if path in files), b"")
    lines = [line.partition("=") for line in content.decode("utf-8", "replace").splitlines()]
    release = {name.strip(): value.strip().strip("\"'") for name, _, value in lines}
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
        yield SystemPackage(one.name, one.version, architecture, one.source, one.source_version, one.sha256)


def installed_packages(base: Base) -> tuple[SystemPackage, ...] | None:
    """Return a base's packages, or None without a database of dpkg. Raises InputError if it is damaged."""
    files = base.files.files.items()
    databases = [one.content for path, one in files if path == _STATUS or path.startswith(_STATUS_FILES)]
    if not databases:
        return None
    found = {package for content in databases for package in read_status(content, base.name)}
    hashes: dict[tuple[str, str], str | None] = {}
    for suite in bootstrap.SUITES.values():
        if base.origin.startswith(f"bootstrap:{suite}@"):
            hashes = {(one.name, one.version): one.sha256 for one in _locked(read_lock(suite))}
    return tuple(sorted(replace(one, sha256=hashes.get((one.name, one.version))) for one in found))


def read_status(content: bytes, base: str) -> Iterator[SystemPackage]:
    """Yield the packages that dpkg has unpacked. base: for messages. Raises InputError for a wrong entry."""
    text = content.decode("utf-8", "replace").strip()
    # A base that has removed its packages may have an empty file.
    for number, stanza in enumerate(re.split(r"\n\s*\n", text) if text else (), 1):
        # Only fields with one line matter.
        lines = [line.partition(":") for line in stanza.splitlines() if not line[:1].isspace()]
        fields = {key: value.strip() for key, _, value in lines}
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


logger = logging.getLogger(__name__)

_CONFIG = {"os": "linux", "architecture": "amd64", "config": {}}


class BasePolicy(str, Enum):
    """The origin of the default base. `auto`: the registry, or a bootstrap if no registry can be reached."""

    AUTO = "auto"
    REGISTRY = "registry"
    BOOTSTRAP = "bootstrap"


class LocalImages(Protocol):
    """The images of an engine, which may have a base that no registry has."""

    def save(self, name: str, directory: Path) -> tuple[Path, str | None] | None:
        """Write an image to an archive. Return that with its digest in a registry, or None without the image.

        If the name has a digest, so must the image. An archive that was written earlier may be elsewhere.
        """

    def with_system_packages(
        self, base: str, packages: Sequence[str], progress: Progress, *, renew: bool = False
    ) -> str:
        """Return the name of an image of the engine: the base with these packages of its distribution.

        base: `plain@sha256:…`, or an image of the engine. renew: install the versions of today in any case.
        """


class Bases:
    """Finds or makes bases. Methods may be called from any thread. local: the images of an engine.

    pinned: the default bases by Python (None: images/bases.yaml). directory: for bases that were made (None:
    in the cache). renew: install system packages in the versions of today, and use no base that has older
    ones.
    """

    def __init__(
        self,
        policy: BasePolicy,
        table: LayerTable,
        local: LocalImages | None = None,
        pinned: Mapping[str, str] | None = None,
        directory: Path | None = None,
        *,
        renew: bool = False,
    ) -> None:
        self._policy, self._table, self._local, self._given = policy, table, local, pinned
        self._directory = directory or cache_directory() / "bases"
        self._renew = renew
        #: The images whose bases were compared with what the registry has now.
        self._compared: set[str] = set()
        #: The archives with system packages that were made anew.
        self._renewed: set[Path] = set()
        self._guard = threading.Lock()
        self._found: dict[tuple[str, str], Base] = {}
        self._unreachable: MissingError | None = None
        self._told_of_fallback = False

    @cached_property
    def _pinned(self) -> Mapping[str, str]:
        return pinned_bases() if self._given is None else self._given

    def provides(self, python: str) -> str | None:
        """Return None if there is a default base with this Python, otherwise the reason why not."""
        suite = bootstrap.SUITES.get(python)
        if (
            suite
            and self._policy is not BasePolicy.REGISTRY
            and (bootstrap.tool() is not None or self._path(suite).exists())
        ):
            return None
        if self._policy is BasePolicy.BOOTSTRAP:
            return _no_bootstrap(suite, python)
        try:
            self._named(self._name(python), python, lambda _: None)
        except (MissingError, InputError) as error:
            if self._policy is BasePolicy.REGISTRY:
                return str(error)
            return f"{error}, and {_no_bootstrap(suite, python)}"
        return None

    def base(self, spec: ImageSpec, progress: Progress) -> Base:
        """Return a spec's base with system packages. Raises MissingError or InputError if none will do."""
        packages = _system_packages(spec)
        found = self._plain_or_bootstrapped(spec, progress)
        if not packages or found.origin.startswith(BasePolicy.BOOTSTRAP.value):
            return found
        with self._guard:
            key = (" ".join([found.origin, *packages]), spec.python)
            if key not in self._found:
                self._found[key] = self._extended(found, packages, spec.python, progress)
            return self._found[key]

    def _extended(self, base: Base, packages: Sequence[str], python: str, progress: Progress) -> Base:
        if self._local is None:
            raise MissingError(
                f"installing {', '.join(packages)} in {base.name} needs a Docker engine",
                hint="use a base in which they are (`base` in the matrix), or run this where Docker is",
            )
        origin = BaseOrigin.parse(base.origin)
        assert origin is not None
        name = self._local.with_system_packages(origin.plain, packages, progress, renew=self._renew)
        saved = self._local.save(name, self._directory)
        if saved is None:
            raise MissingError(f"the engine no longer has {name}", hint="run the same command again")
        made = saved_image(saved[0], base.origin, base.name, base.digest, python, self._table)
        before, after = installed_packages(base) or (), installed_packages(made)
        if after is None:
            raise InputError(
                f"what was installed in {base.name} can't be listed: it has no database of dpkg",
                hint="use a base made from Debian or Ubuntu",
            )
        added = tuple(f"{one.name}:{one.architecture}={one.version}" for one in sorted({*after} - {*before}))
        return replace(made, origin=str(origin.with_packages(packages, added)), added=added)

    def _plain_or_bootstrapped(self, spec: ImageSpec, progress: Progress) -> Base:
        if spec.base is not None:
            return self._named(spec.base, spec.python, progress)
        suite = bootstrap.SUITES.get(spec.python)
        if self._policy is not BasePolicy.BOOTSTRAP:
            try:
                return self._named(self._name(spec.python), spec.python, progress)
            except MissingError as error:
                if self._policy is BasePolicy.REGISTRY or suite is None:
                    raise
                if not self._told_of_fallback:
                    self._told_of_fallback = True
                    progress(f"{error}; using Debian's mirror instead")
        if suite is None:
            hint = f"use Python {' or '.join(bootstrap.SUITES)}"
            raise MissingError(_no_bootstrap(suite, spec.python), hint=hint)
        with self._guard:
            return self._bootstrapped(suite, spec.python, _system_packages(spec), progress)

    def is_current(self, spec: ImageSpec, origin: str) -> bool:
        """Return True if an image of this spec with this base need not be made again.

        System packages may have the versions of the day when they were installed, and a base that is named
        without a digest may be any image that the name had.
        """
        packages, found = _system_packages(spec), BaseOrigin.parse(origin)
        if found is None or (packages and self._renew and not self._made(spec, origin)):
            return False
        if found.kind == BasePolicy.BOOTSTRAP.value:
            suite = bootstrap.SUITES.get(spec.python)
            allowed = spec.base is None and self._policy is not BasePolicy.REGISTRY
            return allowed and suite is not None and origin == bootstrap.origin(suite, packages)
        if found.asked != tuple(sorted(set(packages))):
            return False
        if spec.base is not None:
            return spec.base in (found.name, found.plain)
        return (
            self._policy is not BasePolicy.BOOTSTRAP
            and spec.python in self._pinned
            and found.plain == self._pinned[spec.python]
        )

    def warn_if_moved(self, spec: ImageSpec, origin: str) -> None:
        """Warn, once for each image, if a base without a digest now is another image than `origin`."""
        found = BaseOrigin.parse(origin)
        if spec.base is None or "@" in spec.base or found is None or found.digest is None:
            return
        with self._guard:
            if spec.identifier in self._compared:
                return
            self._compared.add(spec.identifier)
            try:
                now = tag_digest(ImageName.parse(spec.base))
            except ValidatorError:
                return
        if now != found.digest:
            logger.warning(
                "%s was made on the base %s, and the name %s has another digest now, %s. `build-matrix"
                " --force` rebuilds the image on the new one; a digest in the matrix pins the base.",
                spec, found.plain, spec.base, now,
            )  # fmt: skip

    def _made(self, spec: ImageSpec, origin: str) -> bool:
        """Return True if this process has made a base with system packages."""
        suite = bootstrap.SUITES.get(spec.python)
        if suite is not None and origin == bootstrap.origin(suite, _system_packages(spec)):
            return self._path(suite, _system_packages(spec)) in self._renewed
        return any(base.origin == origin for base in self._found.values())

    def repository(self, spec: ImageSpec) -> Repository | None:
        """Return the repository that the base of an image spec is read from, if it can be in a registry."""
        if spec.base is not None:
            return ImageName.parse(spec.base).repository
        if self._policy is BasePolicy.BOOTSTRAP or spec.python not in self._pinned:
            return None
        return ImageName.parse(self._name(spec.python)).repository

    def _name(self, python: str) -> str:
        """Return the pinned default base of a Python. Raises MissingError if there is none."""
        if python not in self._pinned:
            raise MissingError(f"{FILE} has no base for Python {python}", hint=refresh_hint("bases"))
        return self._pinned[python]

    def _named(self, text: str, python: str, progress: Progress) -> Base:
        with self._guard:
            key = (text, python)
            if key in self._found:
                return self._found[key]
            name, unreachable = ImageName.parse(text), self._unreachable
            if unreachable is None:
                try:
                    self._found[key] = registry_base(name, python, self._table)
                    return self._found[key]
                except MissingError as error:
                    unreachable = error
                    # The default bases are all in one registry, so don't ask it again for each of them.
                    if self._given is None and text in self._pinned.values():
                        self._unreachable = error
            saved = self._local.save(text, self._directory) if self._local is not None else None
            if saved is None:
                raise unreachable
            progress(f"{unreachable}; using the engine's copy of {text}")
            archive, digest = saved
            origin = f"registry:{name.plain}" + (f"@{digest}" if digest else "")
            self._found[key] = saved_image(archive, origin, name.plain, digest, python, self._table)
            return self._found[key]

    def _bootstrapped(self, suite: str, python: str, packages: Sequence[str], progress: Progress) -> Base:
        origin = bootstrap.origin(suite, packages)

        def archive() -> Iterator[bytes]:
            return read_archive(self._kept(suite, packages, progress))

        def diff_id() -> Mapping[str, object]:
            hashing = hashlib.sha256()
            for part in archive():
                hashing.update(part)
            return {"diff_id": f"sha256:{hashing.hexdigest()}"}

        def packed() -> Iterator[bytes] | None:
            # Another version of zstd may have compressed the file.
            path = self._kept(suite, packages, progress)
            return read_file(path) if path == self._new_path(suite, packages) else None

        # The file may have been made again with other content: the versions of packages depend on the day.
        path = self._kept(suite, packages, progress) if packages else self._path(suite)
        key = f"{origin} {path.stat().st_mtime_ns}" if path.exists() else origin
        found = str(self._table.facts(key, diff_id)["diff_id"])
        layers = (BaseLayer(found, None, archive, packed),)
        return read_base(origin, f"debian:{suite}", None, _CONFIG, layers, python, self._table)

    def _kept(self, suite: str, packages: Sequence[str], progress: Progress) -> Path:
        path = self._path(suite, packages)
        is_old = self._renew and bool(packages) and path not in self._renewed
        if is_old or not path.exists():
            path = self._new_path(suite, packages)
            self._renewed.add(path)
            self._directory.mkdir(parents=True, exist_ok=True)
            with full_disk_named(self._directory), temporary_directory("base", self._directory) as place:
                made = bootstrap.root_file_system(suite, place, progress, packages)
                compress_archive(made, place / "compressed")
                (place / "compressed").replace(path)
        return path

    def _path(self, suite: str, packages: Sequence[str] = ()) -> Path:
        """Return the cached file of a root file system, or the path to write it to if there is none."""
        new = self._new_path(suite, packages)
        if new.exists():
            return new
        return next(iter(sorted(self._directory.glob(f"{_stem(suite, packages)}-*.tar.zst"))), new)

    def _new_path(self, suite: str, packages: Sequence[str]) -> Path:
        """Return the path of a file that the installed version of zstd compressed."""
        packing = hashlib.sha256(compression().encode()).hexdigest()[:8]
        return self._directory / f"{_stem(suite, packages)}-{packing}.tar.zst"


def _stem(suite: str, packages: Sequence[str]) -> str:
    return f"{suite}-{bootstrap.digest(suite, packages)[:12]}"


def _system_packages(spec: ImageSpec) -> tuple[str, ...]:
    return spec.additions.system_packages if spec.additions else ()


def _no_bootstrap(suite: str | None, python: str) -> str:
    if suite is None:
        others = " and ".join(
            f"Python {python} (Debian {suite})" for python, suite in bootstrap.SUITES.items()
        )
        return f"no supported Debian release has Python {python}: bases can be bootstrapped for {others}"
    return f"a base can't be bootstrapped: {bootstrap.NO_TOOL}"
