"""Write what is in an image as CycloneDX 1.6 (https://cyclonedx.org/docs/1.6/json/)."""

from __future__ import annotations

import json
from typing import Any

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component as Element
from cyclonedx.model.component import ComponentType
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

from .bill import Bill, Component

#: The predicate type that `cosign verify-attestation --type cyclonedx` asks for.
PREDICATE = "https://cyclonedx.org/bom"
#: The description of a base without a list of its packages.
NOT_LISTED = "The packages of this base are not listed."
_PROJECT = "tensorflow-gpu-matrix"


def cyclonedx(bill: Bill) -> dict[str, Any]:
    """Return the document. The same list always gives the same one."""
    image = Element(
        name=bill.image,
        type=ComponentType.CONTAINER,
        bom_ref="image",
        properties=[Property(name=f"{_PROJECT}:lock-digest", value=bill.lock_digest)],
    )
    base = Element(
        name=bill.base_name,
        version=bill.base_version,
        type=ComponentType.CONTAINER,
        bom_ref="base",
        hashes=_hashes(bill.base_digest),
        description=None if bill.listed else NOT_LISTED,
    )
    # Trivy reads the release of Debian packages only here:
    # https://github.com/aquasecurity/trivy/blob/main/pkg/sbom/io/decode.go
    system = Element(
        name=bill.distribution,
        version=bill.release,
        type=ComponentType.OPERATING_SYSTEM,
        bom_ref="operating-system",
    )
    systems = [system] if bill.distribution and bill.release else []
    elements = {one: _element(one) for one in bill.components}
    tool = Element(name=_PROJECT, version=bill.tool_version, type=ComponentType.APPLICATION, bom_ref="tool")
    document = Bom(
        serial_number=bill.serial,
        metadata=BomMetaData(
            component=image, timestamp=bill.created, tools=ToolRepository(components=[tool])
        ),
        components=[base, *systems, *elements.values()],
    )
    document.register_dependency(
        image, [base, *(made for one, made in elements.items() if not one.in_base)]
    )  # fmt: skip
    document.register_dependency(base, [*systems, *(made for one, made in elements.items() if one.in_base)])
    found: dict[str, Any] = json.loads(JsonV1Dot6(document).output_as_string())
    return found


def _element(one: Component) -> Element:
    return Element(
        name=one.name,
        version=one.version,
        type=ComponentType.LIBRARY,
        bom_ref=one.purl,
        purl=PackageURL.from_string(one.purl),
        hashes=_hashes(one.sha256),
        licenses=_licenses(one.license),
        properties=[Property(name=f"{_PROJECT}:file", value=one.file)] if one.file else (),
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
