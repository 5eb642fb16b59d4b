"""`report --html`: from the overview to files in a directory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from ..diagnosis.diagnose import diagnose_report
from ..errors import InputError
from ..model.certificate import Certificate
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
    certificate_files: Sequence[Path],
) -> None:
    """Write the page, or bring one that is there up to date."""
    sources = Sources(
        rows=rows,
        measurements=measurements,
        profile=profile,
        certificates=_certificates(certificate_files),
        diagnose=_diagnose,
        registry=registry,
    )
    done = publish(directory, site(sources), entry=ENTRY, mark=MARK.encode(), folders=FOLDERS)
    say(
        f"written: {directory / ENTRY}"
        f" ({done.written} files written, {done.unchanged} unchanged, {done.removed} removed)"
    )


def _certificates(files: Sequence[Path]) -> dict[str, list[Certificate]]:
    """By image digest, newest measurement first; whoever wrote the files has verified them."""
    by_digest: dict[str, list[Certificate]] = {}
    for certificate in [certificate for path in files for certificate in _certificates_in(path)]:
        known = by_digest.setdefault(certificate.image_digest, [])
        if certificate not in known:
            known.append(certificate)
    for known in by_digest.values():
        known.sort(key=lambda each: (each.measured, each.issued, each.signer), reverse=True)
    return by_digest


def _certificates_in(path: Path) -> list[Certificate]:
    try:
        document = json.loads(path.read_bytes())
        return [Certificate.from_json(entry) for entry in document["certificates"]]
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(
            f"{path}: holds no certificates ({error})",
            hint="write it with `python -m validator verify --format json`",
        ) from error


def _diagnose(record: Record) -> Diagnosis | None:
    if record.verdict is Verdict.CERTIFIED or record.report is None:
        return None
    try:
        return diagnose_report(Report.from_json(record.report))
    except ReportError:
        # Of an older format: its checks are shown all the same.
        return None
