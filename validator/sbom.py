"""Write what is in the image of a lock as CycloneDX 1.6 (https://cyclonedx.org/docs/1.6/json/).

It lists the wheels of the lock and the packages of the base.
"""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections.abc import Iterator, Mapping
from datetime import datetime, time, timezone
from email.message import Message
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense, LicenseAcknowledgement, LicenseExpression
from cyclonedx.model.tool import ToolRepository
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.spdx import fixup_id, is_expression, is_supported_id
from packageurl import PackageURL

from . import __version__
from .assemble.base_finder import BaseContents
from .assemble.wheels import cached_wheel
from .compat.inspect import WheelFile
from .errors import InputError, MissingError
from .model.spec import PROJECT, Lock, Wheel

# Read the licence that a wheel declares, as an SPDX expression.
#
# Only what says exactly one thing counts. "Apache 2.0" is no id of SPDX's list, and the classifier
# "BSD License" stands for several licences, so a wheel with nothing better has no licence here.

_CLASSIFIER = "License :: "
#: Trove classifiers that stand for one licence of SPDX's list, without the prefix.
#: Left out are those without a version, and those of a GPL that leave open whether later versions count
#: (https://peps.python.org/pep-0639/#mapping-license-classifiers-to-spdx-identifiers).
CLASSIFIERS: Mapping[str, str] = {
    "CC0 1.0 Universal (CC0 1.0) Public Domain Dedication": "CC0-1.0",
    "OSI Approved :: Blue Oak Model License (BlueOak-1.0.0)": "BlueOak-1.0.0",
    "OSI Approved :: Boost Software License 1.0 (BSL-1.0)": "BSL-1.0",
    "OSI Approved :: CMU License (MIT-CMU)": "MIT-CMU",
    "OSI Approved :: Common Development and Distribution License 1.0 (CDDL-1.0)": "CDDL-1.0",
    "OSI Approved :: Eclipse Public License 1.0 (EPL-1.0)": "EPL-1.0",
    "OSI Approved :: Eclipse Public License 2.0 (EPL-2.0)": "EPL-2.0",
    "OSI Approved :: European Union Public Licence 1.1 (EUPL 1.1)": "EUPL-1.1",
    "OSI Approved :: European Union Public Licence 1.2 (EUPL 1.2)": "EUPL-1.2",
    "OSI Approved :: GNU Affero General Public License v3 or later (AGPLv3+)": "AGPL-3.0-or-later",
    "OSI Approved :: GNU General Public License v2 or later (GPLv2+)": "GPL-2.0-or-later",
    "OSI Approved :: GNU General Public License v3 or later (GPLv3+)": "GPL-3.0-or-later",
    "OSI Approved :: GNU Lesser General Public License v3 or later (LGPLv3+)": "LGPL-3.0-or-later",
    "OSI Approved :: Historical Permission Notice and Disclaimer (HPND)": "HPND",
    "OSI Approved :: ISC License (ISCL)": "ISC",
    "OSI Approved :: MIT License": "MIT",
    "OSI Approved :: MIT No Attribution License (MIT-0)": "MIT-0",
    "OSI Approved :: Mozilla Public License 1.0 (MPL)": "MPL-1.0",
    "OSI Approved :: Mozilla Public License 1.1 (MPL 1.1)": "MPL-1.1",
    "OSI Approved :: Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "OSI Approved :: The Unlicense (Unlicense)": "Unlicense",
    "OSI Approved :: Universal Permissive License (UPL)": "UPL-1.0",
    "OSI Approved :: Zero-Clause BSD (0BSD)": "0BSD",
}


def declared_licenses(lock: Lock) -> dict[str, str]:
    """Return the SPDX expressions that the wheels of a lock declare, by SHA-256, for those in the cache."""
    found = {}
    for wheel in lock.wheels:
        path = cached_wheel(wheel)
        # The file may be gone now, or damaged, or not to be read.
        with contextlib.suppress(InputError, MissingError):
            if path is not None and (license_ := license_of(_headers(path))) is not None:
                found[wheel.sha256] = license_
    return found


def _headers(path: Path) -> Message:
    with WheelFile(path) as wheel:
        return wheel.metadata()


def license_of(headers: Message) -> str | None:
    """Return the SPDX expression that a wheel's METADATA declares; None if it says nothing unambiguous.

    That is `License-Expression`, else `License` if it is an id of SPDX's list, else the only licence among
    the classifiers.
    """
    expression = str(headers["License-Expression"] or "").strip()
    if expression:
        return fixup_id(expression) or (expression if is_expression(expression) else None)
    named = fixup_id(str(headers["License"] or "").strip())
    if named is not None and is_supported_id(named):
        return named
    classifiers = [str(one) for one in headers.get_all("Classifier", ())]
    licenses = {one.removeprefix(_CLASSIFIER) for one in classifiers if one.startswith(_CLASSIFIER)}
    return CLASSIFIERS.get(licenses.pop()) if len(licenses) == 1 else None


#: The types of package URLs: Debian's packages and those made from them, wheels, and what has no type.
_DEBIAN_TYPE, _PYTHON_TYPE, _OTHER_TYPE = "deb", "pypi", "generic"
_EPOCH = "SOURCE_DATE_EPOCH"
_NAMESPACE = uuid.UUID("2c5cb0f6-5b1b-5b6f-9b0e-0d6f1f2e7a54")
#: `registry:python:3.12-slim@sha256:…` and `bootstrap:bookworm@sha256:…`.
_REGISTRY, _BOOTSTRAP = "registry:", "bootstrap:"


def document_of_lock(lock: Lock, base: BaseContents) -> dict[str, Any]:
    """Return the document of a lock on a base. Raises InputError if SOURCE_DATE_EPOCH is not a time."""
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
    digest = Property(name=f"{PROJECT}:lock-digest", value=lock.digest)
    kind = ComponentType.CONTAINER
    image = Component(name=lock.identifier, type=kind, bom_ref="image", properties=[digest])
    base = _base(contents)
    in_base = list(_of_base(contents))
    wheels = [_of_wheel(wheel, licenses.get(wheel.sha256)) for wheel in lock.wheels]
    tool = Component(name=PROJECT, version=__version__, type=ComponentType.APPLICATION, bom_ref="tool")
    tools, created = ToolRepository(components=[tool]), _created(lock, environment)
    about = BomMetaData(component=image, timestamp=created, tools=tools)
    bom = Bom(metadata=about, components=[base, *in_base, *wheels])
    bom.register_dependency(image, [base, *wheels])
    bom.register_dependency(base, in_base)
    found: dict[str, Any] = json.loads(JsonV1Dot6(bom).output_as_string())
    # The library draws a number at random. Equal lists have equal numbers here.
    del found["serialNumber"]
    return {**found, "serialNumber": uuid.uuid5(_NAMESPACE, render(found)).urn}


def _base(contents: BaseContents) -> Component:
    plain, _, digest = contents.origin.partition("@sha256:")
    if plain.startswith(_BOOTSTRAP):
        name, version = "debian", plain.removeprefix(_BOOTSTRAP)
    else:
        name, version = plain.removeprefix(_REGISTRY), "latest"
        path, colon, tag = name.rpartition(":")
        if colon and "/" not in tag:
            name, version = path, tag
    return Component(
        name=name, version=version, type=ComponentType.CONTAINER, bom_ref="base",
        # What was added to a base follows its digest, which is then that of another one.
        hashes=_hashes(digest if len(digest) == 64 else None),
        description="The packages of this base are not listed." if contents.packages is None else None,
    )  # fmt: skip


def _of_base(contents: BaseContents) -> Iterator[Component]:
    if contents.distribution and contents.release:
        # Trivy reads the release of Debian packages only here:
        # https://github.com/aquasecurity/trivy/blob/main/pkg/sbom/io/decode.go
        yield Component(
            name=contents.distribution, version=contents.release, type=ComponentType.OPERATING_SYSTEM,
            bom_ref="operating-system",
        )  # fmt: skip
    if contents.python is not None:
        yield _package(PackageURL(_OTHER_TYPE, None, "python", contents.python), None)
    for package in contents.packages or ():
        # The qualifiers are for scanners: advisories are about source packages.
        qualifiers = {"arch": package.architecture}
        if contents.distribution and contents.release:
            qualifiers["distro"] = f"{contents.distribution}-{contents.release}"
        if package.source_version != package.version:
            qualifiers["upstream"] = f"{package.source}@{package.source_version}"
        elif package.source != package.name:
            qualifiers["upstream"] = package.source
        distribution = contents.distribution or "debian"
        purl = PackageURL(_DEBIAN_TYPE, distribution, package.name, package.version, qualifiers)
        yield _package(purl, package.sha256)


def _of_wheel(wheel: Wheel, license_: str | None) -> Component:
    # A wheel that does not come from the index may have the name of another package there.
    kind = _PYTHON_TYPE if wheel.path is None else _OTHER_TYPE
    purl = PackageURL(kind, None, wheel.name, wheel.version)
    declared = LicenseAcknowledgement.DECLARED
    licenses: list[DisjunctiveLicense | LicenseExpression] = []
    if license_ is not None and is_supported_id(license_):
        licenses = [DisjunctiveLicense(id=license_, acknowledgement=declared)]
    elif license_ is not None:
        licenses = [LicenseExpression(license_, acknowledgement=declared)]
    properties = [Property(name=f"{PROJECT}:file", value=wheel.filename)]
    if wheel.path is not None:
        properties.append(Property(name=f"{PROJECT}:origin", value=wheel.path))
    return _package(purl, wheel.sha256, properties=properties, licenses=licenses)


def _package(purl: PackageURL, sha256: str | None, **details: Any) -> Component:
    return Component(
        name=purl.name, version=purl.version, type=ComponentType.LIBRARY, bom_ref=purl.to_string(),
        purl=purl, hashes=_hashes(sha256), **details,
    )  # fmt: skip


def _hashes(sha256: str | None) -> list[HashType]:
    return [HashType(alg=HashAlgorithm.SHA_256, content=sha256)] if sha256 else []


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
