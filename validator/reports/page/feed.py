"""Make the feed of what changed: an Atom document (RFC 4287) with an entry for each new result.

An entry is about a record whose verdict differs from the one before, or that is the first of its cell. Its id
is made from the record's id, so it stays the same however often the page is written, and wherever it is.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from ...model.codec import NEVER, parse_timestamp
from ...model.diagnosis import shortened
from ...model.record import Record
from ...records.comparison import changed_checks, changes
from ...redaction.redact import Redaction
from ..changes import full_sentence
from ..printable import printable
from .layout import Layout
from .measurements import Past

#: The most entries of the feed, and the most changes that one entry names.
ENTRIES, _CHANGES = 50, 20
#: The characters of a reason that are shown.
_REASON = 500
#: The ids are UUIDs of version 5 in this namespace, which is random and never changes.
_NAMESPACE = uuid.UUID("5d5f3a0e-7c0b-4b1e-9d57-9a3c4b0f6e21")
#: What XML 1.0 can't express and `printable` does not replace.
_NOT_XML = re.compile("[\ufffe\uffff]")


Fetch = Callable[[Iterable[str]], Mapping[str, Record]]


@dataclass(frozen=True)
class Step:
    """A result that differs from the one before. before: None for the first result of a cell."""

    cell: str
    before: Past | None
    after: Past

    @property
    def when(self) -> datetime:
        return parse_timestamp(self.after.finished) or NEVER

    @property
    def also(self) -> str:
        """Name what else changed: `lock, image`."""
        return ", ".join(self.after.changed_since(self.before)) or "nothing" if self.before else ""

    @property
    def records(self) -> tuple[str, ...]:
        """Return the ids of its records."""
        return (self.before.record, self.after.record) if self.before else (self.after.record,)


@dataclass(frozen=True)
class Entry:
    """An entry of the feed, as text. updated: as RFC 3339 writes it."""

    identifier: str
    title: str
    updated: str
    cell: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Feed:
    identifier: str
    updated: str
    entries: tuple[Entry, ...]


def steps(cells: Iterable[str], history: Mapping[str, Sequence[Past]]) -> list[Step]:
    """Return every new result of the cells, the newest first."""
    found = []
    for cell in cells:
        past = [past for past in history.get(cell, ()) if past.credible and parse_timestamp(past.finished)]
        pairs = zip([None, *past], past, strict=False)
        found += [
            Step(cell, before, after)
            for before, after in pairs
            if before is None or before.verdict != after.verdict
        ]
    return sorted(found, key=lambda step: (step.when, step.after.record), reverse=True)


def feed(name: str, layout: Layout, found: Sequence[Step], fetch: Fetch) -> Feed:
    """Return the feed of the newest steps.

    name: what tells this feed from others. fetch: returns records by id; a step whose records it does not
    have is described without what changed between them.
    """
    numbers = {row.cell: number for number, row in enumerate(layout.rows)}
    shown = found[:ENTRIES]
    records = fetch([identifier for step in shown if step.before for identifier in step.records])
    told = [(step, _lines(step, records)) for step in shown]
    redact = Redaction(line for _, lines in told for line in lines)
    entries = tuple(
        Entry(
            _identifier("record", step.after.record),
            _xml(_title(step, layout, numbers[step.cell])),
            _rfc3339(step.when),
            step.cell,
            tuple(_xml(redact(line)) for line in lines),
        )
        for step, lines in told
    )
    newest = shown[0].when if shown else datetime.fromtimestamp(0, timezone.utc)
    return Feed(_identifier("feed", name), _rfc3339(newest), entries)


def _title(step: Step, layout: Layout, number: int) -> str:
    verdict = step.after.verdict
    now = verdict if step.before is None else f"{step.before.verdict}, now {verdict}"
    return f"{now}: {layout.name(number)}"


def _lines(step: Step, records: Mapping[str, Record]) -> list[str]:
    before, after = (records.get(step.before.record) if step.before else None), records.get(step.after.record)
    lines = [shortened(step.after.reason, _REASON)]
    if before is None or after is None:
        return lines
    changed = [
        *(f"check {check.id}: {check.before or 'not run'} -> {check.after or 'not run'}" for check in
          changed_checks(before, after)),
        *(full_sentence(change) for change in changes(before, after)),
    ]  # fmt: skip
    more = [f"and {len(changed) - _CHANGES} more changes"] if len(changed) > _CHANGES else []
    return [*lines, *changed[:_CHANGES], *more]


def _identifier(kind: str, name: str) -> str:
    return f"urn:uuid:{uuid.uuid5(_NAMESPACE, f'{kind}:{name}')}"


def _rfc3339(when: datetime) -> str:
    return when.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _xml(text: str) -> str:
    """Return text that XML can express."""
    return _NOT_XML.sub("\ufffd", printable(text))
