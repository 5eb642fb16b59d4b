"""Render plans, predictions, records and checks as tables for a terminal, with rich."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from ..compat.drivers import branches
from ..compat.predict import GpuSupport, ImageSupport
from ..model.prediction import EAGER, XLA, Outcome, PlannedCell, Prediction, Rank, Reason
from ..model.record import Record
from ..model.report import CheckDescription, CheckOutcome, CheckResult, Report
from .diagnosis_words import fact_names
from .overview import LIMITED, STYLES, Row, grid
from .printable import printable

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


def plan_table(planned: Iterable[PlannedCell]) -> Table:
    """Return a table with one row per cell, with the deciding reason."""
    table = Table("cell", "predicted", "why", box=None, pad_edge=False)
    table.columns[0].no_wrap = True
    for cell in planned:
        reason = cell.prediction.reasons[0]
        modes = f"{cell.prediction.modes}: " if cell.prediction.modes else ""
        table.add_row(cell.cell.identifier, styled(cell.prediction.word), f"{modes}{reason.text}")
    return table


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
    table = Table("id", "cell", "verdict", "why", "engine", "finished", box=None, pad_edge=False)
    for record in records:
        table.add_row(
            record.id[:12],
            record.cell,
            styled(record.verdict.value),
            Text("; limit: ".join([record.reason, *(limit.code for limit in record.limits)])),
            record.engine if record.origin.value == "here" else "imported report",
            record.finished[:19],
        )
    return table


def record_text(record: Record) -> RenderableType:
    """Show a record without its raw report."""
    facts = Table.grid(padding=(0, 2))
    described = (
        "cell",
        "engine",
        "base",
        "image_digest",
        "lock_digest",
        "probe_version",
        "started",
        "finished",
    )
    for name in described:
        if (value := getattr(record, name)) is not None:
            facts.add_row(name, Text(str(value)))
    facts.add_row("signed", "yes" if record.measurement else "no, so it can't be certified")
    for name, version in record.versions.items():
        facts.add_row(name, version)
    for limit in record.limits:
        facts.add_row(LIMITED, Text(limit.sentence))
    verdict = Text.assemble(styled(record.verdict.value), ": ", record.reason)
    return Group(Text(record.id), verdict, facts, "", _checks(record.results))


def checks_table(report: Report) -> Table:
    """Return a table with one row per check."""
    return _checks(report.checks)


def _checks(checks: Iterable[CheckResult]) -> Table:
    table = Table("check", "outcome", "what was found", "s", box=None, pad_edge=False)
    table.columns[3].justify = "right"
    for check in checks:
        table.add_row(
            check.id,
            Text(check.outcome.value, style=_CHECK_STYLES.get(check.outcome, "bold red")),
            Text(check.sentence),
            f"{check.duration_s:.1f}",
        )
    return table


def check_list(checks: Iterable[CheckDescription]) -> Table:
    """Return a table of the checks that the probe can run."""
    table = Table(
        "check", "stage", "depth", "required", "requires", "limit", "asks", box=None, pad_edge=False
    )
    for check in checks:
        table.add_row(
            check.id,
            check.stage,
            check.depth,
            "yes" if check.required else "no",
            ", ".join(check.requires),
            f"{check.limit_s:g} s",
            check.title,
        )
    return table


def overview_text(rows: Sequence[Row]) -> RenderableType:
    """Show what was measured, then the grid of predictions."""
    parts: list[RenderableType] = []
    measured = [row for row in rows if row.record]
    if measured:
        table = Table("cell", "predicted", "measured", "why", box=None, pad_edge=False, title="Measured")
        for row in measured:
            assert row.record is not None
            predicted = styled(row.predicted or "")
            table.add_row(row.cell, predicted, styled(row.record.verdict.value), Text(row.why))
        parts += [table, ""]
    page = grid(rows)
    # The grid is split into strips, so that a narrow terminal does not cut it off.
    for start in range(0, len(page.columns), 8):
        columns = page.columns[start : start + 8]
        table = Table("host", box=None, pad_edge=False, title="Predicted" if start == 0 else None)
        for column in columns:
            table.add_column(f"{column.tensorflow}\n{column.detail}", no_wrap=True)
        for host in page.hosts:
            table.add_row(host, *(_entry(page.entries.get((host, column), ())) for column in columns))
        parts += [table, ""]
    return Group(*parts)


def _entry(words: Sequence[str]) -> Text:
    return Text(" ").join(styled(entry) for entry in words)


def image_support_text(support: ImageSupport) -> RenderableType:
    """Show the versions, what each GPU needs, then the reasons that apply to any machine."""
    facts = Table.grid(padding=(0, 2))
    facts.add_row("CUDA", support.cuda)
    facts.add_row("cuDNN", support.cudnn)
    facts.add_row("Python", ", ".join(support.pythons))
    facts.add_row("driver", f"{support.driver} or newer" if support.driver else "unknown")
    if support.mode is not None:
        facts.add_row("mode", _MODES[support.mode])
    table = Table("capability", "driver", "GPUs", box=None, pad_edge=False)
    for need in support.gpus:
        table.add_row(need.compute_capability, _drivers(need), Text(", ".join(need.gpus)))
    return Group(facts, "", table, "", *_reasons_against(support.gpus), reasons_table(support.reasons))


def _reasons_against(gpus: Sequence[GpuSupport]) -> Iterator[RenderableType]:
    """Show the reasons why some GPUs can't be used, each one once for all GPUs that it applies to."""
    grouped: dict[Reason, list[str]] = {}
    for need in gpus:
        if need.reason is not None:
            grouped.setdefault(need.reason, []).append(need.label)
    table = Table.grid(padding=(0, 2))
    table.add_column(max_width=32)
    table.add_column()
    for reason, labels in grouped.items():
        _add_reason(table, "; ".join(labels), reason)
    if grouped:
        yield table
        yield ""


def _drivers(need: GpuSupport) -> Text:
    """Return the drivers for a GPU, for each mode where they differ."""
    if not need.eager_drivers or need.eager_drivers == need.drivers:
        return _driver(need)
    return Text.assemble(f"eager: {driver_range(need.eager_drivers)}; with XLA: ", _driver(need))


def _driver(need: GpuSupport) -> Text:
    if need.reason is None:
        return Text(driver_range(need.drivers))
    return (
        styled("unknown") if need.reason.outcome is Outcome.UNKNOWN else Text("no driver works", style="red")
    )


def driver_range(numbers: Sequence[int]) -> str:
    """Return driver branches as text: `R525 or newer`, `R525 to R580`, or a list if some are missing."""
    known = [branch.number for branch in branches()]
    first, last = known.index(numbers[0]), known.index(numbers[-1])
    if list(numbers) != known[first : last + 1]:
        return ", ".join(f"R{number}" for number in numbers)
    if numbers[-1] == known[-1]:
        return f"R{numbers[0]} or newer"
    return f"R{numbers[0]} to R{numbers[-1]}" if len(numbers) > 1 else f"R{numbers[0]}"
