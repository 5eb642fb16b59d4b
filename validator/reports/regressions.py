"""Cells that are worse than they were, as the text of an issue: since when, why, and the last good image.

Records and reports come from many machines, and whoever can write one could write anything into it. So
nothing out of them becomes markup, a mention or a link, and names of people and machines are taken out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from ..model.diagnosis import Diagnosis
from ..model.record import Record
from ..records.changes import Change, changes
from ..records.compared import Turned
from .issue import fenced, markdown
from .markdown import table
from .printable import one_line
from .redaction import Redaction

#: Characters that an issue may have (GitHub), less what its frame takes.
LIMIT = 60_000
#: Rows of the table, and lines of what changed, that are worth a reader's time.
_CELLS, _CHANGES = 100, 12
#: A longer reason is a log. More is read than shown, so that no secret is cut before it is known as one.
_REASON_READ, _REASON = 4000, 500

Diagnose = Callable[[Record], Diagnosis | None]


def issue(found: Sequence[Turned], diagnose: Diagnose) -> str:
    """GitHub-flavoured Markdown, no longer than an issue may be.

    diagnose: the causes that a record's report shows; None where it has no report that can be read.
    """
    groups = _by_cause(found, diagnose)
    redact = Redaction(text for members, _ in groups for text in _texts(members[0]))
    parts = ["\n".join(_head(found)) + "\n"]
    left = LIMIT - len(parts[0])
    for number, (members, diagnosis) in enumerate(groups):
        part = "\n".join(_group(members, diagnosis, redact)) + "\n"
        if len(part) > left:
            parts.append(f"There was no room for {len(groups) - number} more of {len(groups)} causes.\n")
            break
        parts.append(part)
        left -= len(part)
    return "\n".join(parts)


def _texts(turned: Turned) -> Iterator[str]:
    yield turned.newest.reason[:_REASON_READ]
    yield from _changed(turned)


def _head(found: Sequence[Turned]) -> Iterator[str]:
    cells = "1 cell is" if len(found) == 1 else f"{len(found)} cells are"
    yield f"{cells} worse than before. Every night updates this text; it closes the issue when none is left."
    yield ""
    yield from table(
        ("cell", "was", "is", "since", "last good image"),
        (
            (
                _code(turned.newest.cell),
                turned.last_good.verdict.value if turned.last_good else "",
                turned.newest.verdict.value,
                _code((turned.first_bad or turned.newest).finished[:16]),
                _code(turned.last_good.image_digest or "none") if turned.last_good else "",
            )
            for turned in found[:_CELLS]
        ),
    )
    if len(found) > _CELLS:
        yield ""
        yield f"And {len(found) - _CELLS} more."


def _by_cause(found: Iterable[Turned], diagnose: Diagnose) -> list[tuple[list[Turned], Diagnosis | None]]:
    """Cells with the same causes together, the largest group first; the diagnosis is the first cell's."""
    groups: dict[tuple[str, ...], tuple[list[Turned], Diagnosis | None]] = {}
    for turned in found:
        diagnosis = diagnose(turned.newest)
        codes = tuple(cause.code for cause in diagnosis.causes) if diagnosis else ()
        groups.setdefault(codes, ([], diagnosis if codes else None))[0].append(turned)
    return sorted(groups.values(), key=lambda group: (group[1] is None, -len(group[0])))


def _group(members: Sequence[Turned], diagnosis: Diagnosis | None, redact: Redaction) -> Iterator[str]:
    names = ", ".join(_code(turned.newest.cell) for turned in members[:_CELLS])
    codes = ", ".join(f"`{cause.code}`" for cause in diagnosis.causes) if diagnosis else "no known cause"
    yield f"## {codes}"
    yield ""
    yield names + (f" and {len(members) - _CELLS} more" if len(members) > _CELLS else "")
    yield ""
    first = members[0]
    yield from fenced([redact(one_line(first.newest.reason[:_REASON_READ]))[:_REASON]])
    yield ""
    if changed := [redact(one_line(line)) for line in _changed(first)]:
        yield "Since it was last good, there changed:"
        yield ""
        more = [f"and {len(changed) - _CHANGES} more"] if len(changed) > _CHANGES else []
        yield from fenced([*changed[:_CHANGES], *more])
        yield ""
    if diagnosis:
        yield markdown(diagnosis)


def _changed(turned: Turned) -> list[str]:
    bad = turned.first_bad or turned.newest
    return [_sentence(change) for change in changes(turned.last_good, bad)] if turned.last_good else []


def _sentence(change: Change) -> str:
    what = f"{change.kind} {change.name}" if change.name else change.kind
    return f"{what}: {change.before or 'none'} -> {change.after or 'none'}"


def _code(text: str) -> str:
    """Text as code, in which nothing is markup, a mention or a link."""
    return f"`{re.sub('`', chr(39), one_line(text)) or ' '}`"
