"""Find or make the base of an image: from a registry by its digest, or from Debian's packages by their
hashes.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Protocol

from ..errors import InputError, MissingError, ValidatorError
from ..model.base_origin import BaseOrigin
from ..model.spec import ImageSpec
from ..registry.names import Repository
from ..resources import refresh_hint
from ..system.files import cache_directory, full_disk_named
from ..system.runs import temporary_directory
from . import bootstrap
from .base import Base, BaseLayer, compression, read_base
from .base_archives import compress_archive, read_archive, read_file, saved_image
from .base_contents import installed_packages
from .base_registry import ImageName, registry_base, tag_digest
from .layer_table import LayerTable
from .pinned_bases import FILE, PinnedBase, pinned_bases
from .progress import Progress

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
        """Write an image to an archive, and return that with its digest in a registry, if it has one.

        None if the engine does not have the image. If the name has a digest, so must the image. The archive
        is in `directory`, unless it was written earlier.
        """

    def with_system_packages(
        self, base: str, packages: Sequence[str], progress: Progress, *, renew: bool = False
    ) -> str:
        """Return the name of an image of the engine: the base with these packages of its distribution.

        base: `plain@sha256:…`, or the name of one of the engine's images. renew: install them in the versions
        of today, even if the engine has an image with older ones.
        """


class Bases:
    """Finds or makes bases. Methods may be called from any thread.

    local: the images of an engine, if there is one. pinned: the default bases by Python (None: those in
    images/bases.yaml). directory: for bases that were made (None: in the cache directory).
    renew: install system packages in the versions of today, and use no base that has older ones.
    """

    def __init__(
        self,
        policy: BasePolicy,
        table: LayerTable,
        local: LocalImages | None = None,
        pinned: Mapping[str, PinnedBase] | None = None,
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
    def _pinned(self) -> Mapping[str, PinnedBase]:
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
        """Return the base of an image spec, with its system packages.

        Raises MissingError or InputError if there is none, or if it lacks something that images need.
        """
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
        """Return a base from a registry with system packages, which only an engine can install."""
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
        """Return the base without its system packages, or the bootstrapped one, which has them."""
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
            and found.plain == str(self._pinned[spec.python])
        )

    def warn_if_moved(self, spec: ImageSpec, origin: str) -> None:
        """Warn, once for each image, if the base is named without a digest and now is another image.

        origin: of the base that the image has. Says nothing if the registry can't be asked.
        """
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
        return str(self._pinned[python])

    def _named(self, text: str, python: str, progress: Progress) -> Base:
        with self._guard:
            key = (text, python)
            if key not in self._found:
                self._found[key] = self._look_up(ImageName.parse(text), text, python, progress)
            return self._found[key]

    def _look_up(self, name: ImageName, text: str, python: str, progress: Progress) -> Base:
        unreachable = self._unreachable
        if unreachable is None:
            try:
                return registry_base(name, python, self._table)
            except MissingError as error:
                unreachable = error
                # The default bases are all in one registry. It is not asked again for each of them.
                if self._given is None and text in {str(base) for base in self._pinned.values()}:
                    self._unreachable = error
        if self._local is not None and (saved := self._local.save(text, self._directory)):
            archive, digest = saved
            progress(f"{unreachable}; using the engine's copy of {text}")
            origin = f"registry:{name.plain}" + (f"@{digest}" if digest else "")
            return saved_image(archive, origin, name.plain, digest, python, self._table)
        raise unreachable

    def _bootstrapped(self, suite: str, python: str, packages: Sequence[str], progress: Progress) -> Base:
        origin = bootstrap.origin(suite, packages)

        def diff_id() -> Mapping[str, object]:
            hashing = hashlib.sha256()
            for part in self._archive(suite, packages, progress):
                hashing.update(part)
            return {"diff_id": f"sha256:{hashing.hexdigest()}"}

        # The file may have been made again with other content: the versions of packages depend on the day.
        path = self._kept(suite, packages, progress) if packages else self._path(suite)
        key = f"{origin} {path.stat().st_mtime_ns}" if path.exists() else origin
        found = str(self._table.facts(key, diff_id)["diff_id"])
        layer = BaseLayer(
            found,
            None,
            lambda: self._archive(suite, packages, progress),
            lambda: self._packed(suite, packages, progress),
        )
        return read_base(origin, f"debian:{suite}", None, _CONFIG, (layer,), python, self._table)

    def _archive(self, suite: str, packages: Sequence[str], progress: Progress) -> Iterator[bytes]:
        """Return the root file system of a suite."""
        return read_archive(self._kept(suite, packages, progress))

    def _packed(self, suite: str, packages: Sequence[str], progress: Progress) -> Iterator[bytes] | None:
        """Return it as a compressed layer, or None if another version of zstd compressed the file."""
        path = self._kept(suite, packages, progress)
        return read_file(path) if path == self._new_path(suite, packages) else None

    def _kept(self, suite: str, packages: Sequence[str], progress: Progress) -> Path:
        """Return the file with a root file system. Make it if the cache does not have it."""
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
        return f"no supported Debian release has Python {python}, so a base can't be bootstrapped"
    return f"a base can't be bootstrapped: {bootstrap.NO_TOOL}"
