"""List what is in an image: the wheels of its lock and the packages of its base."""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, time, timezone
from types import MappingProxyType

from packageurl import PackageURL

from .. import __version__
from ..assemble.base_contents import BaseContents, SystemPackage
from ..errors import InputError
from ..model.lock import Lock, Wheel

#: The type of package URLs of Debian's packages and of those made from them.
DEBIAN_TYPE = "deb"
PYTHON_TYPE = "pypi"
#: For what has no type of its own.
OTHER_TYPE = "generic"
UPSTREAM = "upstream"
_EPOCH = "SOURCE_DATE_EPOCH"
_NAMESPACE = uuid.UUID("2c5cb0f6-5b1b-5b6f-9b0e-0d6f1f2e7a54")
#: `registry:python:3.12-slim@sha256:…` and `bootstrap:bookworm@sha256:…`.
_REGISTRY, _BOOTSTRAP = "registry:", "bootstrap:"


@dataclass(frozen=True)
class Component:
    """One package in an image.

    purl: its package URL, https://github.com/package-url/purl-spec. sha256: of its file, or None if unknown.
    file: the name of that file. in_base: it is a part of the base. license: the SPDX expression that it
    declares, or None if nobody knows it.
    """

    name: str
    version: str
    purl: str
    sha256: str | None
    file: str | None
    in_base: bool
    license: str | None = None


@dataclass(frozen=True)
class Bill:
    """The contents of an image.

    image: the image spec's identifier. base_name, base_digest: as in the origin of the base; the digest, in
    hexadecimal, may be None. listed: whether the packages of the base are among the components.
    distribution, release: of the base, such as `debian` and `12`; empty if unknown.
    created: the date of the image; it depends on nothing but the lock, or on SOURCE_DATE_EPOCH.
    """

    image: str
    lock_digest: str
    base_name: str
    base_digest: str | None
    base_version: str
    listed: bool
    distribution: str
    release: str
    components: tuple[Component, ...]
    created: datetime
    tool_version: str = __version__

    @property
    def serial(self) -> uuid.UUID:
        """The number of this list. Equal lists have equal numbers."""
        parts = [
            self.image, self.lock_digest, self.base_name, self.base_digest, self.distribution, self.release,
            self.created.isoformat(), self.tool_version,
            *((one.purl, one.sha256, one.license) for one in self.components),
        ]  # fmt: skip
        return uuid.uuid5(_NAMESPACE, hashlib.sha256(json.dumps(parts).encode()).hexdigest())


def bill(
    lock: Lock,
    contents: BaseContents,
    environment: Mapping[str, str] = os.environ,
    licenses: Mapping[str, str] = MappingProxyType({}),
) -> Bill:
    """Return what is in the image of a lock on a base.

    licenses: the SPDX expressions of wheels, by SHA-256. environment: may have SOURCE_DATE_EPOCH, https://reproducible-builds.org/specs/source-date-epoch/.
    Raises InputError if that is not a time.
    """
    plain, _, digest = contents.origin.partition("@sha256:")
    # What was added to a base follows its digest, which is then that of another one.
    known = digest if len(digest) == 64 else None
    name, version = _named(plain)
    components = (
        *_of_base(contents),
        *(_of_wheel(wheel, licenses.get(wheel.sha256)) for wheel in lock.wheels),
    )
    return Bill(
        image=lock.identifier,
        lock_digest=lock.digest,
        base_name=name,
        base_digest=known,
        base_version=version,
        listed=contents.packages is not None,
        distribution=contents.distribution,
        release=contents.release,
        components=components,
        created=_created(lock, environment),
    )


def _named(origin: str) -> tuple[str, str]:
    """Return the name and the version of a base: its tag or its suite."""
    if origin.startswith(_BOOTSTRAP):
        return "debian", origin.removeprefix(_BOOTSTRAP)
    name = origin.removeprefix(_REGISTRY)
    path, colon, tag = name.rpartition(":")
    return (path, tag) if colon and "/" not in tag else (name, "latest")


def _of_base(contents: BaseContents) -> Iterator[Component]:
    if contents.python is not None:
        purl = PackageURL(OTHER_TYPE, None, "python", contents.python)
        yield Component("python", contents.python, purl.to_string(), None, None, in_base=True)
    for package in contents.packages or ():
        yield Component(
            package.name, package.version, _debian_purl(package, contents), package.sha256, None, in_base=True
        )


def _debian_purl(package: SystemPackage, contents: BaseContents) -> str:
    """Return the URL, with the qualifiers that scanners read: advisories are about source packages."""
    qualifiers = {"arch": package.architecture}
    if contents.distribution and contents.release:
        qualifiers["distro"] = f"{contents.distribution}-{contents.release}"
    if package.source_version != package.version:
        qualifiers[UPSTREAM] = f"{package.source}@{package.source_version}"
    elif package.source != package.name:
        qualifiers[UPSTREAM] = package.source
    distribution = contents.distribution or "debian"
    return PackageURL(DEBIAN_TYPE, distribution, package.name, package.version, qualifiers).to_string()


def _of_wheel(wheel: Wheel, license_: str | None) -> Component:
    # A wheel that does not come from the index may have the name of another package there.
    kind = PYTHON_TYPE if wheel.path is None else OTHER_TYPE
    purl = PackageURL(kind, None, wheel.name, wheel.version).to_string()
    return Component(
        wheel.name, wheel.version, purl, wheel.sha256, wheel.filename, in_base=False, license=license_
    )


def _created(lock: Lock, environment: Mapping[str, str]) -> datetime:
    given = environment.get(_EPOCH)
    if given:
        try:
            return datetime.fromtimestamp(int(given), timezone.utc)
        except (ValueError, OverflowError, OSError):
            raise InputError(
                f"{_EPOCH} is {given!r}, which is not a number of seconds since 1970",
                hint="unset it, or give it the time of the last change of your sources",
            ) from None
    if lock.resolved is None:
        return datetime.fromtimestamp(0, timezone.utc)
    return datetime.combine(lock.resolved, time(), timezone.utc)
