"""Write what is in the image of a lock as CycloneDX 1.6 (https://cyclonedx.org/docs/1.6/json/).

It lists the wheels of the lock and the packages of the base.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator, Mapping
from datetime import datetime, time, timezone
from types import MappingProxyType
from typing import Any

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import (
    DisjunctiveLicense,
    License,
    LicenseAcknowledgement,
    LicenseExpression,
)
from cyclonedx.model.tool import ToolRepository
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.spdx import is_supported_id
from packageurl import PackageURL

from .. import __version__
from ..assemble.base_contents import BaseContents, SystemPackage
from ..errors import InputError
from ..model.lock import Lock, Wheel
from .licenses import declared_licenses

_PROJECT = "tensorflow-gpu-matrix"
#: The type of package URLs of Debian's packages and of those made from them.
_DEBIAN_TYPE = "deb"
_PYTHON_TYPE = "pypi"
#: For what has no type of its own.
_OTHER_TYPE = "generic"
_EPOCH = "SOURCE_DATE_EPOCH"
_NAMESPACE = uuid.UUID("2c5cb0f6-5b1b-5b6f-9b0e-0d6f1f2e7a54")
#: `registry:python:3.12-slim@sha256:…` and `bootstrap:bookworm@sha256:…`.
_REGISTRY, _BOOTSTRAP = "registry:", "bootstrap:"


def document_of_lock(lock: Lock, base: BaseContents) -> dict[str, Any]:
    """Return the document about the image of a lock on a base, with the licences of the wheels in the cache.

    Raises InputError if SOURCE_DATE_EPOCH is not a time.
    """
    return document(lock, base, licenses=declared_licenses(lock))


def render(document: Mapping[str, Any]) -> str:
    """Return a document as text. Equal documents give the same text."""
    return f"{json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False)}\n"


def document(
    lock: Lock,
    contents: BaseContents,
    environment: Mapping[str, str] = os.environ,
    licenses: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return what is in the image of a lock on a base. The same input always gives the same document.

    licenses: the SPDX expressions of wheels, by SHA-256. environment: may have SOURCE_DATE_EPOCH,
    https://reproducible-builds.org/specs/source-date-epoch/. Raises InputError if that is not a time.
    """
    image = Component(
        name=lock.identifier,
        type=ComponentType.CONTAINER,
        bom_ref="image",
        properties=[Property(name=f"{_PROJECT}:lock-digest", value=lock.digest)],
    )
    base = _base(contents)
    in_base = list(_of_base(contents))
    wheels = [_of_wheel(wheel, licenses.get(wheel.sha256)) for wheel in lock.wheels]
    tool = Component(name=_PROJECT, version=__version__, type=ComponentType.APPLICATION, bom_ref="tool")
    bom = Bom(
        metadata=BomMetaData(
            component=image, timestamp=_created(lock, environment), tools=ToolRepository(components=[tool])
        ),
        components=[base, *in_base, *wheels],
    )
    bom.register_dependency(image, [base, *wheels])
    bom.register_dependency(base, in_base)
    found: dict[str, Any] = json.loads(JsonV1Dot6(bom).output_as_string())
    # The library draws a number at random. Equal lists have equal numbers here.
    del found["serialNumber"]
    return {**found, "serialNumber": uuid.uuid5(_NAMESPACE, render(found)).urn}


def _base(contents: BaseContents) -> Component:
    plain, _, digest = contents.origin.partition("@sha256:")
    name, version = _named(plain)
    return Component(
        name=name,
        version=version,
        type=ComponentType.CONTAINER,
        bom_ref="base",
        # What was added to a base follows its digest, which is then that of another one.
        hashes=_hashes(digest if len(digest) == 64 else None),
        description="The packages of this base are not listed." if contents.packages is None else None,
    )


def _named(origin: str) -> tuple[str, str]:
    """Return the name and the version of a base: its tag or its suite."""
    if origin.startswith(_BOOTSTRAP):
        return "debian", origin.removeprefix(_BOOTSTRAP)
    name = origin.removeprefix(_REGISTRY)
    path, colon, tag = name.rpartition(":")
    return (path, tag) if colon and "/" not in tag else (name, "latest")


def _of_base(contents: BaseContents) -> Iterator[Component]:
    if contents.distribution and contents.release:
        # Trivy reads the release of Debian packages only here:
        # https://github.com/aquasecurity/trivy/blob/main/pkg/sbom/io/decode.go
        yield Component(
            name=contents.distribution,
            version=contents.release,
            type=ComponentType.OPERATING_SYSTEM,
            bom_ref="operating-system",
        )
    if contents.python is not None:
        yield _package(PackageURL(_OTHER_TYPE, None, "python", contents.python), None)
    for package in contents.packages or ():
        yield _package(_debian_purl(package, contents), package.sha256)


def _debian_purl(package: SystemPackage, contents: BaseContents) -> PackageURL:
    """Return the URL, with the qualifiers that scanners read: advisories are about source packages."""
    qualifiers = {"arch": package.architecture}
    if contents.distribution and contents.release:
        qualifiers["distro"] = f"{contents.distribution}-{contents.release}"
    if package.source_version != package.version:
        qualifiers["upstream"] = f"{package.source}@{package.source_version}"
    elif package.source != package.name:
        qualifiers["upstream"] = package.source
    distribution = contents.distribution or "debian"
    return PackageURL(_DEBIAN_TYPE, distribution, package.name, package.version, qualifiers)


def _of_wheel(wheel: Wheel, license_: str | None) -> Component:
    # A wheel that does not come from the index may have the name of another package there.
    kind = _PYTHON_TYPE if wheel.path is None else _OTHER_TYPE
    return _package(
        PackageURL(kind, None, wheel.name, wheel.version), wheel.sha256,
        properties=[Property(name=f"{_PROJECT}:file", value=wheel.filename)], licenses=_licenses(license_),
    )  # fmt: skip


def _package(purl: PackageURL, sha256: str | None, **details: Any) -> Component:
    return Component(
        name=purl.name,
        version=purl.version,
        type=ComponentType.LIBRARY,
        bom_ref=purl.to_string(),
        purl=purl,
        hashes=_hashes(sha256),
        **details,
    )


def _hashes(sha256: str | None) -> list[HashType]:
    return [HashType(alg=HashAlgorithm.SHA_256, content=sha256)] if sha256 else []


def _licenses(expression: str | None) -> list[License]:
    if expression is None:
        return []
    declared = LicenseAcknowledgement.DECLARED
    if is_supported_id(expression):
        return [DisjunctiveLicense(id=expression, acknowledgement=declared)]
    return [LicenseExpression(expression, acknowledgement=declared)]


def _created(lock: Lock, environment: Mapping[str, str]) -> datetime:
    """Return the date of the image, which depends on nothing but the lock, or on SOURCE_DATE_EPOCH."""
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
