"""Show what an audit found: as a table, and as JSON."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, TypedDict

from rich.table import Table

from ..audit.findings import Audit
from ..model.diagnosis import shortened
from .printable import one_line

#: Characters of a summary in the table.
_LONGEST = 100
_STYLES = {"critical": "bold red", "high": "red", "medium": "yellow"}


def table(audit: Audit) -> Table:
    """Return a table with a row for each finding, the most severe first."""
    found = Table(
        "severity", "package", "version", "fixed in", "vulnerability", "summary", box=None, pad_edge=False
    )
    for one in audit.findings:
        found.add_row(
            one.rating.text, one_line(one.name), one_line(one.version), one_line(one.fixed or "no fix yet"),
            one_line(" ".join(one.ids)), shortened(one_line(one.summary), _LONGEST),
            style=_STYLES.get(one.rating.text),
        )  # fmt: skip
    return found


class DatabaseDocument(TypedDict):
    """The database that was read, as JSON."""

    entries: Annotated[int, "How many were read."]
    newest: Annotated[str, "When the last of them was changed."]
    age_days: Annotated[int, "How many days ago that was."]
    unreadable: Annotated[int, "Files that are not entries."]
    undecided: Annotated[list[str], "Ids of entries whose versions can't be compared with an installed one."]


class AuditedDocument(TypedDict):
    """The packages that were audited, as JSON."""

    audited: Annotated[int, "Their number."]
    system: Annotated[bool, "False if the packages of the base are not listed."]
    not_audited: Annotated[list[str], "Their names."]


class VulnerabilityDocument(TypedDict):
    """A vulnerability of a package, as JSON."""

    ecosystem: Annotated[str, "Such as `PyPI` or `Debian:12`."]
    name: Annotated[str, "The package; for Debian, the source package."]
    version: Annotated[str, "Its version."]
    packages: Annotated[list[str], "The installed packages."]
    ids: Annotated[list[str], "All names of the vulnerability: CVE, GHSA, PYSEC, DSA."]
    severity: Annotated[str, "`critical`, `high`, `medium`, `low`, or `unknown` if no database says."]
    fixed: Annotated[str | None, "The first version with a fix, or null."]
    summary: Annotated[str, "One sentence."]


class AuditDocument(TypedDict):
    """The output of `audit --json`."""

    image: Annotated[str, "The image or lock, as it was named."]
    failed: Annotated[bool, "True if there is a finding that `--fail-on` names; then the exit code is 1."]
    database: Annotated[DatabaseDocument, "The database; its fields are below."]
    packages: Annotated[AuditedDocument, "The packages; their fields are below."]
    findings: Annotated[list[VulnerabilityDocument], "The most severe first; the fields of each are below."]


def document(audit: Audit, image: str, failed: bool, now: datetime) -> AuditDocument:
    """Return what is written as JSON. failed: what `--fail-on` names was found."""
    return {
        "image": image,
        "failed": failed,
        "database": {
            "entries": audit.read,
            "newest": audit.newest.isoformat(),
            "age_days": (now - audit.newest).days,
            "unreadable": audit.unreadable,
            "undecided": list(audit.undecided),
        },
        "packages": {
            "audited": len(audit.listed.audited),
            "system": audit.listed.has_system_packages,
            "not_audited": list(audit.listed.others),
        },
        "findings": [
            {
                "ecosystem": one.ecosystem,
                "name": one.name,
                "version": one.version,
                "packages": list(one.packages),
                "ids": list(one.ids),
                "severity": one.rating.text,
                "fixed": one.fixed,
                "summary": one.summary,
            }
            for one in audit.findings
        ],
    }
