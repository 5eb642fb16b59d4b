"""A diagnosis as a block of Markdown for an issue tracker: without names of people and machines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ..model.diagnosis import Cause, Diagnosis, Evidence
from .diagnosis import WAYS, told_facts
from .printable import printable
from .redaction import PLACEHOLDER, redacted

#: What Markdown would read as its own in a sentence.
_MARKUP = re.compile(r"([\\`*_\[\]<>|#@])")


def markdown(diagnosis: Diagnosis, names: Iterable[str] = ()) -> str:
    """GitHub-flavoured Markdown, ready to be pasted. names: to be taken out besides those that are found."""
    # All at once: a name that one line gives away goes from every other line too.
    text = redacted("\n".join(_lines(diagnosis)), names)
    return "\n".join(_shown(text.split("\n"))) + "\n"


def _shown(lines: Iterable[str]) -> Iterator[str]:
    """What stands in place of a name, written so that Markdown does not take it for HTML outside of code."""
    fence = ""
    for line in lines:
        if line.startswith("```") and not fence:
            fence = line.rstrip("abcdefghijklmnopqrstuvwxyz")
        elif line == fence:
            fence = ""
        elif not fence:
            line = PLACEHOLDER.sub(r"\\<\1\\>", line)
        yield line


def _lines(diagnosis: Diagnosis) -> Iterator[str]:
    if diagnosis.causes:
        for number, cause in enumerate(diagnosis.causes, start=1):
            yield from _cause(cause, number if len(diagnosis.causes) > 1 else None)
    else:
        what = "no known cause fits" if diagnosis.unknown else "no fault was found in"
        yield f"**`validator doctor`: {what} what was read.**"
        yield ""
    if diagnosis.unknown:
        yield from _details("Lines that were not understood", _fenced(_quoted(diagnosis.unknown)))
    if diagnosis.harmless:
        says = (f"- `{entry.code}`: {_escaped(entry.says)}" for entry in diagnosis.harmless)
        yield from _details("Harmless messages", says)
    facts = told_facts(diagnosis)
    if facts:
        yield from _details("Environment", (f"- {_escaped(fact)}" for fact in facts))
    yield f"Read: {_escaped(diagnosis.read)}. Next: {_escaped(diagnosis.next_step, commands=True)}."


def _cause(cause: Cause, number: int | None) -> Iterator[str]:
    yield f"### {f'{number}. ' if number else ''}{_escaped(cause.title)}"
    yield ""
    yield f"`{cause.code}`: {_escaped(cause.means)}"
    yield ""
    yield from _details("Evidence", _fenced(_quoted(cause.evidence)))
    for remedy in cause.remedies:
        way = WAYS.get(remedy.way, remedy.way)
        yield f"{f'**{way[:1].upper()}{way[1:]}:** ' if way else ''}{_escaped(remedy.says)}"
        yield ""
        if remedy.commands:
            yield from _fenced(remedy.commands, "sh")
            yield ""
    yield f"<sub>Sources: {'; '.join(_escaped(source) for source in cause.sources)}</sub>"
    yield ""


def _details(summary: str, lines: Iterable[str]) -> Iterator[str]:
    yield f"<details><summary>{summary}</summary>"
    yield ""
    yield from lines
    yield ""
    yield "</details>"
    yield ""


def _quoted(entries: Iterable[Evidence]) -> list[str]:
    return [f"{entry.where}: {entry.text}" for entry in entries]


def _fenced(lines: Iterable[str], language: str = "text") -> Iterator[str]:
    """A code block that nothing in it can end: its fence is longer than any run of backticks inside."""
    content = [printable(line) for line in lines]
    longest = max((len(run) for line in content for run in re.findall(r"`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    yield fence + language
    yield from content
    yield fence


def _escaped(sentence: str, commands: bool = False) -> str:
    """A sentence in which nothing is markup; with `commands`, what stands in backticks stays code."""
    sentence = printable(sentence).replace("\n", " ")
    if sentence.startswith("https://"):
        return sentence
    if commands:
        return "`".join(
            part if position % 2 else _escaped(part) for position, part in enumerate(sentence.split("`"))
        )
    return _MARKUP.sub(r"\\\1", sentence)
