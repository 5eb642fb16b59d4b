"""Render a diagnosis as Markdown for an issue tracker, without names of people and machines."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator

from ..model.diagnosis import WAYS, Cause, Diagnosis, Evidence
from ..redaction.redact import Redaction
from .printable import environment_facts, headline, missing_facts, one_line

#: Characters that are markup in Markdown.
_MARKUP = re.compile(r"([\\`*_\[\]<>|])")
#: Places where GitHub makes a mention, a reference or a link after it has parsed the Markdown, so a
#: backslash does not help.
_LINKED = re.compile(r"(?i)(?<=[@#])|(?<=www)(?=\.)|(?<=:)(?=//)")
_ADDRESS = re.compile(r"https://[\w./#?=&%~+-]+")
#: A space without width, which keeps GitHub from doing so.
_APART = "&#8203;"


def markdown(diagnosis: Diagnosis, names: Iterable[str] = ()) -> str:
    """Return GitHub-flavoured Markdown, ready to be pasted.

    names: to take out in addition to those that are found in the diagnosis.
    """
    return "\n".join(_lines(shareable(diagnosis, names))) + "\n"


def _lines(diagnosis: Diagnosis) -> Iterator[str]:
    if diagnosis.causes:
        for number, cause in enumerate(diagnosis.causes, start=1):
            yield from _cause(cause, number if len(diagnosis.causes) > 1 else None)
    else:
        yield f"**`validator doctor`: {headline(diagnosis)}**"
        yield ""
    if diagnosis.works:
        yield escaped(diagnosis.works, commands=True)
        yield ""
    missing = missing_facts(diagnosis)
    if missing:
        yield f"Not known: {', '.join(missing)}."
        yield ""
    if diagnosis.unknown:
        yield from _details("Lines that were not recognized", fenced(_quoted(diagnosis.unknown)))
    if diagnosis.harmless:
        lines = (f"- `{entry.code}`: {escaped(entry.says)}" for entry in diagnosis.harmless)
        yield from _details("Harmless messages", lines)
    facts = environment_facts(diagnosis)
    if facts:
        yield from _details("Environment", (f"- {escaped(fact)}" for fact in facts))
    end = ":" if diagnosis.next_command else "."
    yield f"Read: {escaped(diagnosis.read)}. Next: {escaped(diagnosis.next_step, commands=True)}{end}"
    if diagnosis.next_command:
        yield ""
        yield from fenced([diagnosis.next_command], "sh")


def _cause(cause: Cause, number: int | None) -> Iterator[str]:
    yield f"### {f'{number}. ' if number else ''}{escaped(cause.headline)}"
    yield ""
    yield f"`{cause.code}`: {escaped(cause.means)}"
    yield ""
    yield from _details("Evidence", fenced(_quoted(cause.evidence)))
    for reason in cause.reasons:
        yield f"- {escaped(reason.text)} ({_source(reason.source)})"
    if cause.reasons:
        yield ""
    for remedy in cause.remedies:
        way = WAYS.get(remedy.way, remedy.way)
        yield f"{f'**{way[:1].upper()}{way[1:]}:** ' if way else ''}{escaped(remedy.says)}"
        yield ""
        if remedy.commands:
            yield from fenced(remedy.commands, "sh")
            yield ""
    yield f"<sub>Sources: {'; '.join(_source(source) for source in cause.sources)}</sub>"
    yield ""


def _details(summary: str, lines: Iterable[str]) -> Iterator[str]:
    yield f"<details><summary>{summary}</summary>"
    yield ""
    yield from lines
    yield ""
    yield "</details>"
    yield ""


def _quoted(entries: Iterable[Evidence]) -> list[str]:
    return [
        f"{entry.where}{f' ({entry.count} times)' if entry.count > 1 else ''}: {entry.text}"
        for entry in entries
    ]


def fenced(lines: Iterable[str], language: str = "text") -> Iterator[str]:
    """Yield a code block that its content can't end: its fence is longer than any run of backticks inside."""
    content = [one_line(line) for line in lines]
    longest = max((len(run) for line in content for run in re.findall(r"`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    yield fence + language
    yield from content
    yield fence


def _source(source: str) -> str:
    """Return a source, which the project wrote itself. An address stays a link."""
    return source if _ADDRESS.fullmatch(source) else escaped(source)


def escaped(sentence: str, commands: bool = False) -> str:
    """Return a sentence with all markup escaped. With `commands`, text in backticks stays code."""
    sentence = one_line(sentence)
    if commands:
        return "`".join(
            part if position % 2 else escaped(part) for position, part in enumerate(sentence.split("`"))
        )
    return _LINKED.sub(_APART, _MARKUP.sub(r"\\\1", sentence))


# Take names of people and machines, and credentials, out of a diagnosis that will be published.


def shareable(diagnosis: Diagnosis, names: Iterable[str] = ()) -> Diagnosis:
    """Return the diagnosis with every text redacted, before markup makes names hard to find.

    names: to take out in addition to those that are found in the diagnosis.
    """
    redact = Redaction(_texts(diagnosis), names)

    def evidence(entries: Iterable[Evidence]) -> tuple[Evidence, ...]:
        return tuple(dataclasses.replace(entry, text=redact(entry.text)) for entry in entries)

    def cause(found: Cause) -> Cause:
        remedies = tuple(
            dataclasses.replace(
                remedy,
                says=redact(remedy.says),
                commands=tuple(redact(command) for command in remedy.commands),
            )
            for remedy in found.remedies
        )
        return dataclasses.replace(
            found,
            title=redact(found.title),
            evidence=evidence(found.evidence),
            remedies=remedies,
            reasons=tuple(dataclasses.replace(one, text=redact(one.text)) for one in found.reasons),
        )

    return dataclasses.replace(
        diagnosis,
        causes=tuple(cause(found) for found in diagnosis.causes),
        unknown=evidence(diagnosis.unknown),
        facts={name: redact(value) for name, value in diagnosis.facts.items()},
        read=redact(diagnosis.read),
        next_command=redact(diagnosis.next_command),
    )


def _texts(diagnosis: Diagnosis) -> Iterator[str]:
    """Yield every text that may contain a name."""
    for cause in diagnosis.causes:
        yield cause.title
        yield from (entry.text for entry in cause.evidence)
        yield from (reason.text for reason in cause.reasons)
    for harmless in diagnosis.harmless:
        yield from (entry.text for entry in harmless.evidence)
    yield from (entry.text for entry in diagnosis.unknown)
    yield from diagnosis.facts.values()
    yield diagnosis.next_command
