"""What changed over time, for a terminal: differences of two states, regressions, where a cell turned bad."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..model.diagnosis import Cause
from ..model.record import Record
from ..records.changes import Change, changed_checks, changes
from ..records.compared import Difference, Turned
from .printable import one_line
from .terminal import word

#: More of them are counted; the JSON has them all.
_SHOWN = 8
#: Hex digits of a digest that tell it apart from others.
_DIGITS = 12

Regression = tuple[Turned, Sequence[Cause]]


def differences_table(found: Iterable[Difference]) -> Table:
    """One row a cell."""
    table = Table("cell", "A", "B", "what else changed", box=None, pad_edge=False)
    for difference in found:
        before, after = difference.before, difference.after
        shown = after or before
        assert shown is not None
        changed = changes(before, after) if before and after else ()
        table.add_row(shown.cell, _verdict(before), _verdict(after), "; ".join(_some(changed)))
    return table


def regressions_text(found: Sequence[Regression]) -> RenderableType:
    """One block a cell."""
    blocks = (turned_text(turned, causes) for turned, causes in found)
    return Group(*(part for block in blocks for part in (block, "")))


def turned_text(turned: Turned, causes: Iterable[Cause]) -> RenderableType:
    """A cell's last good and first bad record, and what lies between."""
    good, bad, newest = turned.last_good, turned.first_bad, turned.newest
    facts = Table.grid(padding=(0, 2))
    facts.add_row("last good", _told(good) if good else Text("none: this cell never was good"))
    facts.add_row(
        "first bad", _told(bad) if bad else Text("none: the newest record is as good as the cell ever was")
    )
    if good and bad:
        facts.add_row("between", Text(f"{turned.between} records, neither good nor bad"))
    if newest is not bad and newest is not good:
        facts.add_row("newest", _told(newest))
    facts.add_row("why", Text(one_line(newest.reason)))
    for cause in causes:
        facts.add_row("cause", Text(f"{cause.code}: {one_line(cause.title)}"))
    if good and good.image_digest:
        facts.add_row("good image", Text(str(good.image_digest)))
    if good and bad:
        for line in _some(changes(good, bad)) or ["nothing that the records tell"]:
            facts.add_row("changed", Text(line))
        for check in changed_checks(good, bad):
            outcomes = f"{check.before or 'not made'} -> {check.after or 'not made'}"
            facts.add_row("check", Text(f"{check.id}: {outcomes}"))
    verdicts = [_verdict(record) for record in (good, newest) if record]
    return Group(Text.assemble(f"{newest.cell}  ", Text(" -> ").join(verdicts)), facts)


def _verdict(record: Record | None) -> Text:
    return word(record.verdict.value) if record else Text("none", style="dim")


def _told(record: Record) -> Text:
    return Text.assemble(record.id[:_DIGITS], "  ", record.finished[:19], "  ", word(record.verdict.value))


def _some(changed: Sequence[Change]) -> list[str]:
    """The first few, and how many more there are."""
    more = [f"and {len(changed) - _SHOWN} more"] if len(changed) > _SHOWN else []
    return [*(_sentence(change) for change in changed[:_SHOWN]), *more]


def _sentence(change: Change) -> str:
    what = change.kind if change.name is None else f"{change.kind} {change.name}"
    return one_line(f"{what} {_value(change.before)} -> {_value(change.after)}")


def _value(text: str | None) -> str:
    if text is None:
        return "none"
    algorithm, colon, digits = text.partition(":")
    return f"{algorithm}:{digits[:_DIGITS]}" if colon and algorithm == "sha256" else text
