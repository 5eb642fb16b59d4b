"""Find the packages to audit in a list of what is in an image, in CycloneDX."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
from packageurl import PackageURL

from .._vendor.packaging.utils import canonicalize_name
from ..errors import ValidatorError
from ..model import codec
from ..model.codec import DocumentError

PYPI, DEBIAN = "PyPI", "Debian"


@dataclass(frozen=True, order=True)
class Audited:
    """A package in a database's terms.

    ecosystem: `PyPI`, or `Debian:12`. name, version: of the source package, for Debian.
    shown: the name of the installed package.
    """

    ecosystem: str
    name: str
    version: str
    shown: str
    purl: str


@dataclass(frozen=True)
class Listed:
    """The packages of an image: those to audit, and the names of those that no database covers."""

    audited: tuple[Audited, ...]
    others: tuple[str, ...]

    @property
    def has_system_packages(self) -> bool:
        """True if the packages of the base are listed."""
        return any(one.ecosystem != PYPI for one in self.audited)


class _Component(msgspec.Struct, frozen=True):
    name: str
    purl: str | None = None


class _Document(msgspec.Struct, frozen=True, rename="camel"):
    bom_format: str
    components: tuple[_Component, ...] = ()


def listed_packages(document: dict[str, Any]) -> Listed:
    """Return the packages in a CycloneDX document. Raises ValidatorError if it is not one."""
    try:
        found = codec.convert(document, _Document, "the list of packages")
        if found.bom_format != "CycloneDX":
            raise DocumentError(f"its format is {found.bom_format!r}, not CycloneDX")
        audited, others = set(), []
        for component in found.components:
            if component.purl is None:
                continue
            one = _audited(component.purl)
            if one is None:
                others.append(component.name)
            else:
                audited.add(one)
    except (DocumentError, ValueError) as error:
        raise ValidatorError(f"the image's list of packages can't be read: {error}") from None
    return Listed(tuple(sorted(audited)), tuple(sorted(others)))


def _audited(text: str) -> Audited | None:
    """Return a package in a database's terms, or None if its ecosystem is not one of those audited."""
    purl = PackageURL.from_string(text)
    if not purl.version:
        return None
    if purl.type == "pypi":
        return Audited(PYPI, canonicalize_name(purl.name), purl.version, purl.name, text)
    qualifiers = purl.qualifiers if isinstance(purl.qualifiers, dict) else {}
    distribution, _, release = str(qualifiers.get("distro", "")).partition("-")
    if purl.type != "deb" or distribution != "debian" or not release:
        return None
    # Debian's advisories are about source packages.
    name, at, version = str(qualifiers.get("upstream", "")).partition("@")
    return Audited(
        f"{DEBIAN}:{release}", name or purl.name, version if at else purl.version, purl.name, text
    )  # fmt: skip
