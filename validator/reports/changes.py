"""Render changes over time: differences and regressions for a terminal, and regressions as an issue."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..model.diagnosis import Cause, Diagnosis, shortened
from ..model.record import Record, Verdict
from ..records.history import Change, Decline, Difference, changed_checks, changes
from ..records.record_files import Merged, RefusedArtifact
from ..redaction.redact import Redaction
from .diagnosis import fenced, markdown
from .overview import code, table
from .printable import counted, one_line
from .terminal import rows_table, styled

#: The number of changes that a terminal shows. The JSON has all of them.
_SHOWN = 8
#: The number of hex digits that are shown of a digest or id.
_DIGITS = 12

CellDecline = Decline[Record]
Regression = tuple[CellDecline, Sequence[Cause]]


def differences_table(found: Iterable[Difference[Record]]) -> Table:
    """Return a table with one row per cell."""
    rows = []
    for difference in found:
        before, after = difference.before, difference.after
        changed = _first_changes(changes(before, after))
        rows.append((difference.either.cell, _verdict(before), _verdict(after), "; ".join(changed)))
    return rows_table(("cell", "A", "B", "what else changed"), rows)


def regressions_text(found: Sequence[Regression]) -> RenderableType:
    """Show one block per cell."""
    blocks = (decline_text(decline, causes) for decline, causes in found)
    return Group(*(part for block in blocks for part in (block, "")))


def decline_text(decline: CellDecline, causes: Iterable[Cause]) -> RenderableType:
    """Show a cell's last good and first bad record, and what changed between them."""
    good, bad, newest = decline.last_good, decline.first_bad, decline.newest
    facts = Table.grid(padding=(0, 2))
    # A cell that was only unproven was never good.
    best = "best so far" if good and good.verdict is Verdict.UNPROVEN else "last good"
    facts.add_row(best, _record(good) if good else Text("none: this cell was never good"))
    facts.add_row(
        "first bad", _record(bad) if bad else Text("none: the newest record is as good as the best one")
    )
    if good and bad:
        facts.add_row("between", Text(f"{counted(decline.between, 'record')}, neither good nor bad"))
    if newest is not bad and newest is not good:
        facts.add_row("newest", _record(newest))
    facts.add_row("why", Text(one_line(newest.reason)))
    for cause in causes:
        facts.add_row("cause", Text(f"{cause.code}: {one_line(cause.title)}"))
    if good and good.image_digest:
        facts.add_row("good image", Text(str(good.image_digest)))
    if good and bad:
        for line in _first_changes(changes(good, bad)) or ["nothing in the records"]:
            facts.add_row("changed", Text(line))
        for check in changed_checks(good, bad):
            outcomes = f"{check.before or 'not run'} -> {check.after or 'not run'}"
            facts.add_row("check", Text(f"{check.id}: {outcomes}"))
    verdicts = [_verdict(record) for record in (good, newest) if record]
    return Group(Text.assemble(f"{newest.cell}  ", Text(" -> ").join(verdicts)), facts)


def _verdict(record: Record | None) -> Text:
    return styled(record.verdict.value) if record else Text("none", style="dim")


def _record(record: Record) -> Text:
    return Text.assemble(record.id[:_DIGITS], "  ", record.finished[:19], "  ", styled(record.verdict.value))


def _first_changes(changed: Sequence[Change]) -> list[str]:
    """Describe the first few changes, and how many more there are."""

    def value(text: str | None) -> str:
        if text is not None and text.startswith("sha256:"):
            return text[: len("sha256:") + _DIGITS]
        return "none" if text is None else text

    lines = []
    for change in changed[:_SHOWN]:
        what = change.kind if change.name is None else f"{change.kind} {change.name}"
        lines.append(one_line(f"{what} {value(change.before)} -> {value(change.after)}"))
    return [*lines, f"and {len(changed) - _SHOWN} more"] if len(changed) > _SHOWN else lines


#: The greatest length of an issue on GitHub, in characters, minus room for its frame.
LIMIT = 60_000
#: The number of rows in the issue's table, and of changes for each cause.
_CELLS, _CHANGES = 100, 12
#: The characters of a reason that are read, and that are shown. More is read than shown, so that no secret is
#: cut in half before it is recognised.
_REASON_READ, _REASON = 4000, 500

Diagnose = Callable[[Record], Diagnosis | None]


def issue(found: Sequence[CellDecline], diagnose: Diagnose, refused: str = "") -> str:
    """Return the text of an issue: since when cells are worse, why, and the last good image.

    It is GitHub-flavoured Markdown, no longer than an issue may be.

    diagnose: returns the diagnosis of a record's report, or None if it has none that can be read.
    refused: the part about artifacts that were refused (`refused_part`), if any were.
    """
    # Group the cells with the same causes, the largest group first. The diagnosis is that of the first cell.
    by_codes: dict[tuple[str, ...], tuple[list[CellDecline], Diagnosis | None]] = {}
    for decline in found:
        diagnosis = diagnose(decline.newest)
        codes = tuple(cause.code for cause in diagnosis.causes) if diagnosis else ()
        by_codes.setdefault(codes, ([], diagnosis if codes else None))[0].append(decline)
    groups = sorted(by_codes.values(), key=lambda group: (group[1] is None, -len(group[0])))
    firsts = [members[0] for members, _ in groups]
    redact = Redaction(
        text for first in firsts for text in (first.newest.reason[:_REASON_READ], *_changed(first))
    )
    parts = ["\n".join(_head(found)) + "\n", *([refused] if refused else [])]
    left = LIMIT - sum(map(len, parts))
    for number, (members, diagnosis) in enumerate(groups):
        part = "\n".join(_group(members, diagnosis, redact)) + "\n"
        if len(part) > left:
            parts.append(
                f"{len(groups) - number} of {counted(len(groups), 'cause')} left out to save space.\n"
            )
            break
        parts.append(part)
        left -= len(part)
    return "\n".join(parts)


def _head(found: Sequence[CellDecline]) -> Iterator[str]:
    cells = {0: "No cell is", 1: "1 cell is"}.get(len(found), f"{len(found)} cells are")
    yield (
        f"{cells} worse than before. This text is updated every night. The issue is closed when no cell is"
        " worse and no artifact was refused."
    )
    yield ""
    if not found:
        return
    rows = [
        (
            code(decline.newest.cell),
            decline.last_good.verdict.value if decline.last_good else "",
            decline.newest.verdict.value,
            code((decline.first_bad or decline.newest).finished[:16]),
            code(decline.last_good.image_digest or "none") if decline.last_good else "",
        )
        for decline in found[:_CELLS]
    ]
    yield from table(("cell", "was", "is", "since", "last good image"), rows)
    if len(found) > _CELLS:
        yield ""
        yield f"And {len(found) - _CELLS} more."


def _group(members: Sequence[CellDecline], diagnosis: Diagnosis | None, redact: Redaction) -> Iterator[str]:
    names = ", ".join(code(decline.newest.cell) for decline in members[:_CELLS])
    codes = ", ".join(f"`{cause.code}`" for cause in diagnosis.causes) if diagnosis else "no known cause"
    yield f"## {codes}"
    yield ""
    yield names + (f" and {len(members) - _CELLS} more" if len(members) > _CELLS else "")
    yield ""
    first = members[0]
    yield from fenced([shortened(redact(one_line(first.newest.reason[:_REASON_READ])), _REASON)])
    yield ""
    if changed := [redact(one_line(line)) for line in _changed(first)]:
        yield "What changed since it was last good:"
        yield ""
        more = [f"and {len(changed) - _CHANGES} more"] if len(changed) > _CHANGES else []
        yield from fenced([*changed[:_CHANGES], *more])
        yield ""
    if diagnosis:
        yield markdown(diagnosis)


def _changed(decline: CellDecline) -> list[str]:
    changed = changes(decline.last_good, decline.first_bad or decline.newest)
    return [full_sentence(change) for change in changed]


def full_sentence(change: Change) -> str:
    what = f"{change.kind} {change.name}" if change.name else change.kind
    return f"{what}: {change.before or 'none'} -> {change.after or 'none'}"


# Render what a merge of artifacts refused, for the summary of a workflow's run and for its issue.


#: Rows of a table. More is counted.
_ARTIFACTS = 100
#: The characters of a name or reason that are shown.
_LENGTH = 300


def summary(merged: Merged, planned: Sequence[str]) -> str:
    """Return Markdown: the cells of the plan without a record, and the artifacts that were refused."""
    missing = [f"- {code(cell)}" for cell in planned if cell not in merged.cells]
    lines = ["### Cells without a record from tonight", "", *(missing or ["None."]), ""]
    if merged.refused:
        lines += ["### Artifacts that were refused", "", *_rows(merged.refused), ""]
    return "\n".join(lines) + "\n"


def refused_part(refused: Sequence[RefusedArtifact]) -> str:
    """Return the part of an issue about the artifacts that were refused."""
    artifacts = "1 artifact was" if len(refused) == 1 else f"{len(refused)} artifacts were"
    first = f"{artifacts} refused tonight, so the records in it were not merged."
    return "\n".join(["## Refused", "", first, "", *_rows(refused)]) + "\n"


def _rows(refused: Sequence[RefusedArtifact]) -> Iterator[str]:
    rows = [
        (code(shortened(each.artifact, _LENGTH)), code(shortened(each.reason, _LENGTH)))
        for each in refused[:_ARTIFACTS]
    ]
    yield from table(("artifact", "why it was refused"), rows)
    if len(refused) > _ARTIFACTS:
        yield ""
        yield f"And {counted(len(refused) - _ARTIFACTS, 'artifact')} more."
