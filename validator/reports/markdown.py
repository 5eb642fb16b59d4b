"""Render the overview as Markdown: what was measured, the grid of predictions, and why some fail."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ..model.prediction import Outcome
from ..redaction.identifiers import without_gpu_uuids
from .overview import Row, grid, nothing_measured
from .printable import counted, one_line, printable

_TAG = re.compile("<(?!br>)")


def markdown(rows: Sequence[Row], title: str) -> str:
    """Return the whole page, which ends with a newline. It has no UUIDs of GPUs."""
    parts = [f"# {title}", "", *_counts(rows), ""]
    parts += ["## Measured", "", *_measured(rows), "", "## Predicted", "", *_grid(rows), ""]
    parts += ["## Why some are predicted to fail", "", *_reasons(rows), ""]
    return without_gpu_uuids("\n".join(parts))


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table. The text of the cells is escaped."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return [*lines, *("| " + " | ".join(_escape(cell) for cell in row) + " |" for row in rows)]


def code(text: str) -> str:
    """Return a text as code, in which nothing is markup, a mention or a link."""
    return f"`{one_line(text).replace('`', chr(39)) or ' '}`"


def _counts(rows: Sequence[Row]) -> list[str]:
    planned = [row for row in rows if row.planned]
    measured = [row for row in rows if row.record]
    contradicted = [row for row in rows if row.agrees is False]
    lines = [f"{counted(len(planned), 'cell')} planned, {len(measured)} measured."]
    if contradicted:
        names = ", ".join(f"`{row.cell}`" for row in contradicted)
        lines += ["", f"**The measurement contradicts the prediction:** {names}"]
    return lines


def _measured(rows: Sequence[Row]) -> list[str]:
    found = [row for row in rows if row.record]
    if not found:
        return [nothing_measured()]
    return table(
        ("cell", "predicted", "verdict", "why", "engine", "finished"),
        (
            (
                f"`{row.cell}`",
                row.predicted or "",
                f"**{row.record.verdict.value}**",
                row.why,
                row.record.engine,
                row.record.finished,
            )
            for row in found
            if row.record
        ),
    )


def _grid(rows: Sequence[Row]) -> list[str]:
    page = grid(rows)
    if not page.columns:
        return ["No cells are planned."]
    header = ["host", *(f"{column.tensorflow}<br>{column.detail}" for column in page.columns)]
    return table(
        header,
        (
            (host, *("<br>".join(page.entries.get((host, column), ("",))) for column in page.columns))
            for host in page.hosts
        ),
    )


def _reasons(rows: Sequence[Row]) -> list[str]:
    """Return a table of the deciding reasons with their number of cells, the most frequent first."""
    cells: dict[tuple[str, str, str], int] = {}
    for row in rows:
        if row.planned and row.planned.prediction.outcome is Outcome.FAILS:
            reason = row.planned.prediction.reasons[0]
            key = (reason.sentence, reason.fact, reason.source)
            cells[key] = cells.get(key, 0) + 1
    if not cells:
        return ["No cell is predicted to fail."]
    ordered = sorted(cells.items(), key=lambda entry: (-entry[1], entry[0]))
    return table(
        ("cells", "reason", "fact", "source"),
        ((str(count), text, f"`{fact}`", source) for (text, fact, source), count in ordered),
    )


def _escape(text: str) -> str:
    """Escape text so that it has no markup and does not end its cell. `<br>` stays: only we write it."""
    return _TAG.sub("&lt;", printable(text)).replace("|", "\\|").replace("\n", " ")
