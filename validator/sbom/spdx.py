"""Write what is in an image as SPDX 2.3 (https://spdx.github.io/spdx-spec/v2.3/)."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from .bill import Bill, Component
from .cyclonedx import NOT_LISTED

#: The predicate type that `cosign verify-attestation --type spdxjson` asks for.
PREDICATE = "https://spdx.dev/Document"
_PROJECT = "tensorflow-gpu-matrix"
_NAMESPACE = "https://tensorflow-gpu-matrix.github.io/spdx"
_DOCUMENT, _IMAGE, _BASE = "SPDXRef-DOCUMENT", "SPDXRef-Image", "SPDXRef-Base"
_UNKNOWN = "NOASSERTION"


class _Struct(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    pass


class _Checksum(_Struct, frozen=True):
    algorithm: str
    checksum_value: str


class _Reference(_Struct, frozen=True):
    reference_category: str
    reference_type: str
    reference_locator: str


class _Package(_Struct, frozen=True):
    name: str
    spdx_id: str = msgspec.field(name="SPDXID")
    version_info: str
    download_location: str
    files_analyzed: bool
    license_concluded: str
    license_declared: str
    copyright_text: str
    supplier: str
    package_file_name: str | None = None
    primary_package_purpose: str | None = None
    comment: str | None = None
    checksums: tuple[_Checksum, ...] = ()
    external_refs: tuple[_Reference, ...] = ()


class _Relationship(_Struct, frozen=True):
    spdx_element_id: str
    relationship_type: str
    related_spdx_element: str


class _Creation(_Struct, frozen=True):
    created: str
    creators: tuple[str, ...]


class _Document(_Struct, frozen=True):
    spdx_version: str
    data_license: str
    spdx_id: str = msgspec.field(name="SPDXID")
    name: str
    document_namespace: str
    creation_info: _Creation
    packages: tuple[_Package, ...]
    relationships: tuple[_Relationship, ...]


def spdx(bill: Bill) -> dict[str, Any]:
    """Return the document. The same list always gives the same one."""
    image = _package(_IMAGE, bill.image, bill.lock_digest, purpose="CONTAINER")
    base = _package(
        _BASE, bill.base_name, bill.base_version, bill.base_digest,
        purpose="CONTAINER", comment=None if bill.listed else NOT_LISTED,
    )  # fmt: skip
    parts = {one: _of(one) for one in bill.components}
    relationships = [
        _relationship(_DOCUMENT, "DESCRIBES", _IMAGE),
        _relationship(_IMAGE, "DESCENDANT_OF", _BASE),
        *(
            _relationship(_BASE if one.in_base else _IMAGE, "CONTAINS", part.spdx_id)
            for one, part in parts.items()
        ),
    ]
    document = _Document(
        spdx_version="SPDX-2.3",
        data_license="CC0-1.0",
        spdx_id=_DOCUMENT,
        name=bill.image,
        document_namespace=f"{_NAMESPACE}/{bill.image}-{bill.serial}",
        creation_info=_Creation(
            created=f"{bill.created:%Y-%m-%dT%H:%M:%SZ}",
            creators=(f"Tool: {_PROJECT}-{bill.tool_version}",),
        ),
        packages=(image, base, *parts.values()),
        relationships=tuple(relationships),
    )
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(document))
    return found


def _of(one: Component) -> _Package:
    # An id may have only letters, digits, dots and dashes, and a name and version may differ only in others.
    identifier = f"SPDXRef-Package-{hashlib.sha256(one.purl.encode()).hexdigest()[:24]}"
    return _package(
        identifier, one.name, one.version, one.sha256,
        purpose="LIBRARY", file=one.file, purl=one.purl, license_=one.license,
    )  # fmt: skip


def _package(
    identifier: str,
    name: str,
    version: str,
    sha256: str | None = None,
    *,
    purpose: str,
    file: str | None = None,
    purl: str | None = None,
    comment: str | None = None,
    license_: str | None = None,
) -> _Package:
    return _Package(
        name=name,
        spdx_id=identifier,
        version_info=version,
        download_location=_UNKNOWN,
        files_analyzed=False,
        license_concluded=_UNKNOWN,
        license_declared=license_ or _UNKNOWN,
        copyright_text=_UNKNOWN,
        supplier=_UNKNOWN,
        package_file_name=file,
        primary_package_purpose=purpose,
        comment=comment,
        checksums=(_Checksum(algorithm="SHA256", checksum_value=sha256),) if sha256 else (),
        external_refs=(
            (_Reference(
                reference_category="PACKAGE-MANAGER", reference_type="purl", reference_locator=purl
            ),) if purl else ()
        ),
    )  # fmt: skip


def _relationship(one: str, kind: str, other: str) -> _Relationship:
    return _Relationship(spdx_element_id=one, relationship_type=kind, related_spdx_element=other)
