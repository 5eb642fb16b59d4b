"""The catalogue of the diagnosis as rows: messages, the causes that they show, and the fixes."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

from ..conditions import AllOf, AnyOf, Comparison, Condition, Named
from ..diagnosis import compiled
from ..diagnosis.causes import CauseEntry, causes
from ..diagnosis.messages import Message, catalogue
from .digests import digest_of
from .tables import CauseRow, FixRow, MessageRow


def message_rows() -> Iterator[MessageRow]:
    """Yield every message, in the order in which they are tried."""
    for message in catalogue().messages:
        yield MessageRow(
            id=f"{message.kind}/{digest_of(message.pattern)}",
            kind=message.kind,
            pattern=message.pattern,
            values=dict(message.values),
            harmless=message.harmless,
            describes=message.fact,
            certainty=message.certainty,
            causes=_causes_of(message),
        )


def cause_rows() -> Iterator[CauseRow]:
    """Yield every cause, in the order of the causal chain."""
    for position, (entry, row) in enumerate(_entries(), start=1):
        yield CauseRow(
            id=entry.code,
            position=position,
            title=entry.title,
            means=entry.means,
            signs=row["signs"],
            ruled_out_by=row.get("ruled_out_by", []),
            kinds=tuple(sorted({comparison.kind for comparison in _asked_for(entry)})),
            explains=entry.explains,
            sources=entry.sources,
        )


def fix_rows() -> Iterator[FixRow]:
    """Yield the fixes of every cause, in the order of the data."""
    for entry, row in _entries():
        for position, (remedy, written) in enumerate(
            zip(entry.remedies, row["remedies"], strict=True), start=1
        ):
            when = [written["when"]] if "when" in written else []
            yield FixRow(
                id=f"{entry.code}/{remedy.way}/{digest_of(remedy.says, remedy.commands, when)}",
                cause=entry.code,
                position=position,
                way=remedy.way,
                says=remedy.says,
                commands=remedy.commands,
                when=when,
                interrupts=remedy.interrupts or None,
            )


def _entries() -> Iterator[tuple[CauseEntry, Mapping[str, Any]]]:
    """Yield each cause with the row of the data that it was read from."""
    yield from zip(causes(), compiled.section("causes"), strict=True)


def _causes_of(message: Message) -> tuple[str, ...]:
    """Return the codes of the causes with a comparison in a sign that the message does not contradict."""
    return tuple(
        dict.fromkeys(
            code
            for code, comparison in _comparisons_by_kind().get(message.kind, ())
            if all(
                name not in message.values or any(one.accepts(message.values[name]) for one in wanted)
                for name, wanted in comparison.values.items()
            )
        )
    )


@functools.cache
def _comparisons_by_kind() -> Mapping[str, list[tuple[str, Comparison]]]:
    found: dict[str, list[tuple[str, Comparison]]] = {}
    for entry in causes():
        for comparison in _asked_for(entry):
            found.setdefault(comparison.kind, []).append((entry.code, comparison))
    return found


def _asked_for(entry: CauseEntry) -> Iterator[Comparison]:
    for sign in entry.signs:
        yield from _positive(sign.when)


def _positive(condition: Condition) -> Iterator[Comparison]:
    """Yield the comparisons of a condition, without those that must not hold."""
    if isinstance(condition, Comparison):
        yield condition
    elif isinstance(condition, Named):
        yield from _positive(condition.condition)
    elif isinstance(condition, AllOf | AnyOf):
        for part in condition.conditions:
            yield from _positive(part)
