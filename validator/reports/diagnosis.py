"""Render a diagnosis for a terminal: the sentence that says why, the lines that prove it, and how to fix it.

Plain lines with click's styles, which click drops where there is no terminal. The import of rich would take
longer than reading a log.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

import click

from ..model.diagnosis import GPU_USED, NO_FAULT, WAYS, Cause, Diagnosis, Evidence, Harmless, Remedy
from .diagnosis_words import environment_facts, headline, missing_facts
from .printable import one_line, wrapped

#: Columns at which prose is wrapped, in a file and on a terminal that is at least as wide.
WIDTH = 80
#: Lines of evidence that are shown for a cause, and lines that are shown as not recognized.
_EVIDENCE, _UNKNOWN = 5, 10


def text(diagnosis: Diagnosis, columns: int | None = None) -> str:
    """Return the whole answer with styles, which `click.echo` drops where there is no terminal.

    columns: the terminal's width. Without one, lines of evidence are never broken, so that `grep` finds them.
    """
    return "\n".join(_Page(columns).lines(diagnosis)) + "\n"


class _Page:
    """Render a diagnosis for one width."""

    def __init__(self, columns: int | None) -> None:
        self._columns = columns
        self._width = min(WIDTH, columns or WIDTH)

    def lines(self, diagnosis: Diagnosis) -> Iterator[str]:
        several = len(diagnosis.causes) > 1
        if several:
            yield f"{len(diagnosis.causes)} causes, in the order to fix them."
            yield ""
        for number, cause in enumerate(diagnosis.causes, start=1):
            yield from self._cause(cause, f"{number}. " if several else "")
            yield ""
        if not diagnosis.causes:
            colour = "green" if diagnosis.answer in (GPU_USED, NO_FAULT) else "yellow"
            yield from (
                click.style(line, bold=True, fg=colour) for line in self._wrapped(headline(diagnosis))
            )
            yield ""
        if diagnosis.works:
            yield from self._wrapped(diagnosis.works, "  ")
            yield ""
        missing = missing_facts(diagnosis)
        if missing:
            yield from self._wrapped(f"Not known: {', '.join(missing)}.", "  ")
            yield ""
        if diagnosis.unknown:
            yield _heading("Not recognized")
            yield from self._evidence(diagnosis.unknown, _UNKNOWN)
            yield ""
        if diagnosis.harmless:
            yield _heading("Harmless")
            for entry in diagnosis.harmless:
                yield from self._harmless(entry)
            yield ""
        facts = ", ".join(environment_facts(diagnosis))
        yield from self._wrapped(f"Read: {'; '.join(filter(None, (diagnosis.read, facts)))}.")
        yield from self._wrapped(f"Next: {diagnosis.next_step}{':' if diagnosis.next_command else '.'}")
        if diagnosis.next_command:
            yield click.style(f"      {one_line(diagnosis.next_command)}", fg="cyan")

    def _cause(self, cause: Cause, number: str) -> Iterator[str]:
        title = self._wrapped(number + cause.headline, "", " " * len(number)) or [cause.code]
        yield from (click.style(line, bold=True, fg="red") for line in title)
        yield click.style(" " * len(number) + cause.code, dim=True)
        yield ""
        yield from self._wrapped(cause.means, "  ")
        yield ""
        yield _heading("Evidence")
        yield from self._evidence(cause.evidence, _EVIDENCE)
        for reason in cause.reasons:
            yield from self._wrapped(f"{reason.text} ({reason.fact}).", "  predict: ", "      ")
        if cause.explains:
            yield from self._wrapped(f"This also explains {', '.join(cause.explains)}.", "  ")
        yield ""
        yield _heading("How to fix it")
        for remedy in cause.remedies:
            yield from self._remedy(remedy)

    def _remedy(self, remedy: Remedy) -> Iterator[str]:
        way = WAYS.get(remedy.way, remedy.way)
        yield from self._wrapped(f"{way[:1].upper()}{way[1:]}: {remedy.says}" if way else remedy.says, "  ")
        for command in remedy.commands:
            yield click.style(f"      {one_line(command)}", fg="cyan")

    def _evidence(self, entries: Sequence[Evidence], most: int) -> Iterator[str]:
        for entry in entries[:most]:
            times = f" ({entry.count} times)" if entry.count > 1 else ""
            place, line = f"  {one_line(entry.where)}{times}: ", one_line(entry.text)
            if self._columns is None:
                yield click.style(place, dim=True) + line
                continue
            first, *others = textwrap.wrap(
                place + line, self._columns, subsequent_indent="      ", break_on_hyphens=False
            )
            dimmed = len(place) if first.startswith(place) else 0
            yield click.style(first[:dimmed], dim=True) + first[dimmed:]
            yield from others
        if len(entries) > most:
            yield click.style(f"  and {len(entries) - most} more, which --json lists", dim=True)

    def _harmless(self, entry: Harmless) -> Iterable[str]:
        count = sum(evidence.count for evidence in entry.evidence)
        lines = "1 line" if count == 1 else f"{count} lines"
        return self._wrapped(f"{entry.code} ({lines}): {entry.says}", "  ", "    ")

    def _wrapped(self, prose: str, indent: str = "", following: str | None = None) -> list[str]:
        return wrapped(prose, self._width, indent, following)


def _heading(words: str) -> str:
    return click.style(words, bold=True)
