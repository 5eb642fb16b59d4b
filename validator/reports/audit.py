"""Show what an audit found: as a table, and as JSON."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from rich.table import Table

from ..audit.findings import Audit
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
            one_line(" ".join(one.ids)), one_line(one.summary)[:_LONGEST],
            style=_STYLES.get(one.rating.text),
        )  # fmt: skip
    return found


def document(audit: Audit, image: str, failed: bool, now: datetime) -> dict[str, Any]:
    """Return what is written as JSON (docs/reference/json.md). failed: what `--fail-on` names was found."""
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
