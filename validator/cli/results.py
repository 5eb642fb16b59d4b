"""The results of a run as a table and as one line."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from ..model.record import Verdict
from ..pipeline.work import Result, Status
from ..reports.terminal import word


def results_table(results: Sequence[Result]) -> Table:
    """One row an image."""
    table = Table("image", "result", "why", box=None, pad_edge=False)
    table.columns[0].no_wrap = True
    for result in results:
        record = result.record
        if record is None:
            table.add_row(result.spec.identifier, result.status.value, Text(result.detail))
        else:
            note = "" if result.status is Status.MEASURED else f" ({result.detail})"
            table.add_row(result.spec.identifier, word(record.verdict.value), Text(record.reason + note))
    return table


def totals(results: Sequence[Result]) -> str:
    """`1 built, 1 validated, 0 unchanged`, and what else there was: pushed, failed, refused, skipped…"""

    def count(status: Status) -> int:
        return sum(result.status is status for result in results)

    validated = sum(
        result.status is Status.MEASURED
        and result.record is not None
        and result.record.verdict is not Verdict.BROKEN
        for result in results
    )
    parts = [
        f"{sum(result.built for result in results)} built",
        f"{validated} validated",
        f"{count(Status.UNCHANGED)} unchanged",
    ]
    others = {
        "pushed": sum(result.published is not None and result.published.sent for result in results),
        "failed": sum(result.failed for result in results),
        "refused": count(Status.REFUSED),
        "skipped": count(Status.SKIPPED),
        "missing": count(Status.MISSING),
        "stopped": count(Status.STOPPED),
    }
    return ", ".join([*parts, *(f"{number} {name}" for name, number in others.items() if number)])
