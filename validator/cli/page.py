"""`report --html`: from the overview to files in a directory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..diagnosis.diagnose import diagnose_report
from ..model.diagnosis import Diagnosis
from ..model.record import Record, Verdict
from ..model.report import Report, ReportError
from ..reports.overview import Row
from ..reports.page.measurements import Measurements
from ..reports.page.site import ENTRY, FOLDERS, MARK, Sources, site
from ..system.publish import publish
from .options import say


def write_page(
    directory: Path,
    rows: Sequence[Row],
    measurements: Measurements,
    profile: str,
    registry: str | None,
    certificates_path: Path | None,
) -> None:
    """Write the page, or bring one that is there up to date."""
    sources = Sources(
        rows=rows,
        measurements=measurements,
        profile=profile,
        certificates={},
        diagnose=_diagnose,
        registry=registry,
    )
    done = publish(directory, site(sources), entry=ENTRY, mark=MARK.encode(), folders=FOLDERS)
    say(
        f"written: {directory / ENTRY}"
        f" ({done.written} files written, {done.unchanged} unchanged, {done.removed} removed)"
    )


def _diagnose(record: Record) -> Diagnosis | None:
    if record.verdict is Verdict.CERTIFIED or record.report is None:
        return None
    try:
        return diagnose_report(Report.from_json(record.report))
    except ReportError:
        # Of an older format: its checks are shown all the same.
        return None
