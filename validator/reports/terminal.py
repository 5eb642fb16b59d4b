"""Render plans, predictions, records and checks as tables for a terminal, with rich."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from ..compat.hardware import branches
from ..compat.predict import GpuSupport, ImageSupport
from ..model.prediction import EAGER, XLA, Outcome, PlannedCell, Prediction, Rank, Reason
from ..model.record import Record
from ..model.report import CheckDescription, CheckOutcome, CheckResult
from .overview import LIMITED, STYLES, Row, grid
from .printable import fact_names, printable

#: The width of output that is not for a terminal. No row is longer, so `grep` finds whole lines.
_UNBOUNDED = 2000
#: What the table of a release is about if it is only about one mode.
_MODES = {EAGER: "only eager operations", XLA: "only XLA"}
_CHECK_STYLES = {CheckOutcome.PASS: "green", CheckOutcome.SKIP: "yellow"}


def show(content: RenderableType) -> None:
    """Print to stdout: in colour on a terminal, otherwise as plain lines that are never wrapped."""
    # Without markup, brackets in a record or a requirement stay as they are.
    console = Console(highlight=False, markup=False, emoji=False)
    if console.is_terminal:
        console.print(_Printable(content))
        return
    plain = Console(file=io.StringIO(), width=_UNBOUNDED, highlight=False, markup=False, emoji=False)
    with plain.capture() as captured:
        plain.print(_Printable(content))
    for line in captured.get().splitlines():
        console.file.write(line.rstrip() + "\n")


@dataclass(frozen=True)
class _Printable:
    """Content that is made safe to print, because records and reports may come from anywhere."""

    content: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for segment in console.render(self.content, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def styled(text: str) -> Text:
    """Return an outcome or verdict in its colour."""
    return Text(text, style=STYLES.get(text, ""))


def rows_table(header: Sequence[str], rows: Iterable[Sequence[str | Text]], *, whole: bool = False) -> Table:
    """Return a plain table. whole: never wrap the first column."""
    table = Table(*header, box=None, pad_edge=False)
    table.columns[0].no_wrap = whole
    for row in rows:
        table.add_row(*row)
    return table


def plan_table(planned: Iterable[PlannedCell]) -> Table:
    """Return a table with one row per cell, with the deciding reason."""
    rows = []
    for cell in planned:
        modes = f"{cell.prediction.modes}: " if cell.prediction.modes else ""
        why = f"{modes}{cell.prediction.reasons[0].text}"
        rows.append((cell.cell.identifier, styled(cell.prediction.word), why))
    return rows_table(("cell", "predicted", "why"), rows, whole=True)


def prediction_text(prediction: Prediction) -> RenderableType:
    """Show the word, apart for eager and XLA where they differ, then the reasons with fact and source."""
    head: list[RenderableType] = [styled(prediction.word)]
    if prediction.modes:
        head.append(Text(prediction.modes))
    if prediction.missing and prediction.outcome is Outcome.UNKNOWN:
        head.append(Text(f"not known: {', '.join(fact_names(prediction.missing))}"))
    if prediction.evidence:
        head.append(Text(f"evidence: {evidence_words(prediction)}"))
    return Group(*head, reasons_table(prediction.reasons))


def evidence_words(prediction: Prediction) -> str:
    """Return what a prediction rests on, and the best that was tried besides. It needs some evidence."""
    best = prediction.evidence[0]
    where = f"{best.text}{f', {best.date}' if best.date else ''}"
    if prediction.rank is not Rank.DERIVED:
        weaker = f"; weaker, because it had {' and '.join(best.differs)}" if best.differs else ""
        return f"{best.rank.value} ({where}{weaker})"
    weaker = f" with {' and '.join(best.differs)}" if best.differs and best.rank is Rank.MEASURED else ""
    return f"derived from published facts; also {best.rank.value}{weaker} ({where})"


def reasons_table(reasons: Iterable[Reason]) -> Table:
    """Return a table of the reasons with fact and source."""
    table = Table.grid(padding=(0, 2))
    for reason in reasons:
        _add_reason(table, styled(reason.label), reason)
    return table


def _add_reason(table: Table, label: RenderableType, reason: Reason) -> None:
    table.add_row(label, Text(reason.sentence))
    table.add_row("", Text(f"{reason.fact} ({reason.status}): {reason.source}", style="dim"))


def records_table(records: Iterable[Record]) -> Table:
    """Return a table with one row per record."""
    rows = [
        (
            record.id[:12],
            record.cell,
            styled(record.verdict.value),
            "; limit: ".join([record.reason, *(limit.code for limit in record.limits)]),
            record.engine if record.origin.value == "here" else "imported report",
            record.finished[:19],
        )
        for record in records
    ]
    return rows_table(("id", "cell", "verdict", "why", "engine", "finished"), rows)


def record_text(record: Record) -> RenderableType:
    """Show a record without its raw report."""
    facts = Table.grid(padding=(0, 2))
    for name in (
        "cell", "engine", "base", "image_digest", "lock_digest", "probe_version", "started", "finished",
    ):  # fmt: skip
        if (value := getattr(record, name)) is not None:
            facts.add_row(name, Text(str(value)))
    facts.add_row("signed", "yes" if record.measurement else "no, so it can't be certified")
    for name, version in record.versions.items():
        facts.add_row(name, version)
    for limit in record.limits:
        facts.add_row(LIMITED, Text(limit.sentence))
    verdict = Text.assemble(styled(record.verdict.value), ": ", record.reason)
    return Group(Text(record.id), verdict, facts, "", checks_table(record.results))


def checks_table(checks: Iterable[CheckResult]) -> Table:
    """Return a table with one row per check."""
    rows = []
    for check in checks:
        outcome = Text(check.outcome.value, style=_CHECK_STYLES.get(check.outcome, "bold red"))
        rows.append((check.id, outcome, check.sentence, f"{check.duration_s:.1f}"))
    table = rows_table(("check", "outcome", "what was found", "s"), rows)
    table.columns[3].justify = "right"
    return table


def check_list(checks: Iterable[CheckDescription]) -> Table:
    """Return a table of the checks that the probe can run."""
    rows = []
    for check in checks:
        required, requires = "yes" if check.required else "no", ", ".join(check.requires)
        limit = f"{check.limit_s:g} s"
        rows.append((check.id, check.stage, check.depth, required, requires, limit, check.title))
    return rows_table(("check", "stage", "depth", "required", "requires", "limit", "asks"), rows)


def overview_text(rows: Sequence[Row]) -> RenderableType:
    """Show what was measured, then the grid of predictions."""
    parts: list[RenderableType] = []
    measured = [row for row in rows if row.record]
    if measured:
        table = Table("cell", "predicted", "measured", "why", box=None, pad_edge=False, title="Measured")
        for row in measured:
            table.add_row(row.cell, styled(row.predicted or ""), styled(row.verdict or ""), Text(row.why))
        parts += [table, ""]
    page = grid(rows)
    # The grid is split into strips, so that a narrow terminal does not cut it off.
    for start in range(0, len(page.columns), 8):
        columns = page.columns[start : start + 8]
        table = Table("host", box=None, pad_edge=False, title="Predicted" if start == 0 else None)
        for column in columns:
            table.add_column(f"{column.tensorflow}\n{column.detail}", no_wrap=True)
        for host in page.hosts:
            words = (page.entries.get((host, column), ()) for column in columns)
            table.add_row(host, *(Text(" ").join(map(styled, entry)) for entry in words))
        parts += [table, ""]
    return Group(*parts)


def image_support_text(support: ImageSupport) -> RenderableType:
    """Show the versions, what each GPU needs, then the reasons that apply to any machine."""
    facts = Table.grid(padding=(0, 2))
    facts.add_row("CUDA", support.cuda)
    facts.add_row("cuDNN", support.cudnn)
    facts.add_row("Python", ", ".join(support.pythons))
    facts.add_row("driver", f"{support.driver} or newer" if support.driver else "unknown")
    if support.mode is not None:
        facts.add_row("mode", _MODES[support.mode])
    needs = [(need.compute_capability, _drivers(need), ", ".join(need.gpus)) for need in support.gpus]
    table = rows_table(("capability", "driver", "GPUs"), needs)
    # Each reason why GPUs can't be used is shown once for all of them.
    grouped: dict[Reason, list[str]] = {}
    for need in support.gpus:
        if need.reason is not None:
            grouped.setdefault(need.reason, []).append(need.label)
    against = Table.grid(padding=(0, 2))
    against.add_column(max_width=32)
    against.add_column()
    for reason, labels in grouped.items():
        _add_reason(against, "; ".join(labels), reason)
    parts = (against, "") if grouped else ()
    return Group(facts, "", table, "", *parts, reasons_table(support.reasons))


def _drivers(need: GpuSupport) -> Text:
    """Return the drivers for a GPU, for each mode where they differ."""
    if need.reason is None:
        found = Text(driver_range(need.drivers))
    elif need.reason.outcome is Outcome.UNKNOWN:
        found = styled("unknown")
    else:
        found = Text("no driver works", style="red")
    if need.eager_drivers and need.eager_drivers != need.drivers:
        found = Text.assemble(f"eager: {driver_range(need.eager_drivers)}; with XLA: ", found)
    return Text.assemble(found, f", with {need.instead}") if need.instead else found


def driver_range(numbers: Sequence[int]) -> str:
    """Return driver branches as text: `R525 or newer`, `R525 to R580`, or a list if some are missing."""
    known = [branch.number for branch in branches()]
    first, last = known.index(numbers[0]), known.index(numbers[-1])
    if list(numbers) != known[first : last + 1]:
        return ", ".join(f"R{number}" for number in numbers)
    if numbers[-1] == known[-1]:
        return f"R{numbers[0]} or newer"
    return f"R{numbers[0]} to R{numbers[-1]}" if len(numbers) > 1 else f"R{numbers[0]}"
