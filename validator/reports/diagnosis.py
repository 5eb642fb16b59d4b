"""Render a diagnosis: the sentence that says why, the lines that prove it, and how to fix it.

A terminal gets plain lines with click's styles, which click drops where there is no terminal: the import of
rich would take longer than reading a log. An issue tracker gets Markdown, and a notebook HTML.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
from markupsafe import Markup

from ..model.diagnosis import GPU_USED, NO_FAULT, WAYS, Cause, Diagnosis, Evidence
from ..model.prediction import EAGER, EAGER_ONLY, XLA
from .printable import environment_facts, fact_names, headline, one_line, printable, wrapped
from .printable import headline as answer_without_cause

if TYPE_CHECKING:
    from jinja2 import Environment, Template

    from ..model.spec import Lock


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
        missing = fact_names(diagnosis.missing)
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
                count = sum(evidence.count for evidence in entry.evidence)
                lines = "1 line" if count == 1 else f"{count} lines"
                yield from self._wrapped(f"{entry.code} ({lines}): {entry.says}", "  ", "    ")
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
            way = WAYS.get(remedy.way, remedy.way)
            says = f"{way[:1].upper()}{way[1:]}: {remedy.says}" if way else remedy.says
            yield from self._wrapped(says, "  ")
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

    def _wrapped(self, prose: str, indent: str = "", following: str | None = None) -> list[str]:
        return wrapped(prose, self._width, indent, following)


def _heading(words: str) -> str:
    return click.style(words, bold=True)


# Render a diagnosis as Markdown for an issue tracker, without names of people and machines.


#: Characters that are markup in Markdown.
_MARKUP = re.compile(r"([\\`*_\[\]<>|])")
#: Places where GitHub makes a mention, a reference or a link after it has parsed the Markdown, so a
#: backslash does not help.
_LINKED = re.compile(r"(?i)(?<=[@#])|(?<=www)(?=\.)|(?<=:)(?=//)")
_ADDRESS = re.compile(r"https://[\w./#?=&%~+-]+")
#: A zero-width space, which keeps GitHub from making a link there.
_APART = "&#8203;"


def markdown(diagnosis: Diagnosis, names: Iterable[str] = ()) -> str:
    """Return GitHub-flavoured Markdown, ready to be pasted.

    names: to take out in addition to those that are found in the diagnosis.
    """
    return "\n".join(_markdown_lines(shareable(diagnosis, names))) + "\n"


def _markdown_lines(diagnosis: Diagnosis) -> Iterator[str]:
    if diagnosis.causes:
        for number, cause in enumerate(diagnosis.causes, start=1):
            yield from _cause(cause, number if len(diagnosis.causes) > 1 else None)
    else:
        yield f"**`validator doctor`: {headline(diagnosis)}**"
        yield ""
    if diagnosis.works:
        yield escaped(diagnosis.works, commands=True)
        yield ""
    missing = fact_names(diagnosis.missing)
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
    # Most answers are only printed, and start faster without this.
    from ..redaction.redact import Redaction

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


# Render a diagnosis as the output of a notebook's cell: HTML, and text where that can't be shown.


TEMPLATES = Path(__file__).parent / "templates"


def cell_text(headline: str, notes: Sequence[str], diagnosis: Diagnosis) -> str:
    """Return the answer as text. headline, notes: sentences to put before it; the headline may be empty."""
    before = "".join(f"{printable(line)}\n" for line in (headline, *notes) if line)
    return f"{before}\n{click.unstyle(text(diagnosis))}" if before else click.unstyle(text(diagnosis))


def cell_html(headline: str, notes: Sequence[str], diagnosis: Diagnosis) -> str:
    """Return the answer as HTML in which every text is escaped."""
    html: str = _template().render(
        headline=one_line(headline),
        notes=[one_line(note) for note in notes],
        diagnosis=diagnosis,
        ways=WAYS,
        answer="" if diagnosis.causes else answer_without_cause(diagnosis),
        missing=fact_names(diagnosis.missing),
        read="; ".join(filter(None, (diagnosis.read, ", ".join(environment_facts(diagnosis))))),
    )
    return html.strip()


def templates() -> Environment:
    """Return the templates of this package. They escape every value that they are given."""
    # Loading the extension must not delay a notebook; only showing a cell needs the template engine.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@functools.cache
def _template() -> Template:
    environment = templates()
    environment.filters["shown"] = one_line

    def code_in_backticks(sentence: str) -> Markup:
        return Markup().join(
            Markup("<code>{}</code>").format(part) if position % 2 else part
            for position, part in enumerate(sentence.split("`"))
        )

    environment.filters["code_in_backticks"] = code_in_backticks
    environment.filters["capitalize_first"] = lambda words: words[:1].upper() + words[1:]
    return environment.get_template("diagnosis.html.j2")


# Render which releases work on a machine, from the answer of `answers.what_works`, for a terminal.


_MODE_NAMES = {EAGER: "eager operations", XLA: "functions that XLA compiles"}
_WAYS = {"image": "In an image", "pip": "With pip"}


def what_works_text(answer: Mapping[str, Any], width: int) -> str:
    """Return the headline, the newest release for each mode, and each way of getting one.

    A way comes with its commands and the reasons why no newer release is chosen.
    """
    return "".join(f"{line}\n" for line in _what_works_lines(answer, width))


def _what_works_lines(answer: Mapping[str, Any], width: int) -> Iterator[str]:
    yield from wrapped(answer["headline"], width)
    for remark in answer["remarks"]:
        yield from wrapped(remark, width)
    yield from wrapped(answer["basis"], width)
    yield from wrapped(f"For {', '.join(answer['machine'])}.", width)
    yield ""
    for mode in answer["modes"]:
        yield from wrapped(f"{_MODE_NAMES[mode['mode']]}: {mode['shown']}", width, "  ", "    ")
    for way in answer["ways"]:
        only = ", only for eager operations" if way["modes"] == EAGER_ONLY else ""
        yield ""
        yield f"{_WAYS[way['way']]}: TensorFlow {way['release']}, Python {way['python']}{only}"
        for note in way["notes"]:
            yield from wrapped(note, width, "  ")
        yield from (f"      {one_line(command)}" for command in way["commands"])
        if way["newer"]:
            yield "  Why no newer release:"
            # Neighbors with the same deciding reason are shown together.
            for _, same in itertools.groupby(way["newer"], _deciding):
                first, *others = same
                newest = first["releases"].split(" to ")[-1]
                oldest = (others or [first])[-1]["releases"].split(" to ")[0]
                span = newest if oldest == newest else f"{oldest} to {newest}"
                yield from wrapped(f"{span}: {_reason(first['reasons'][0])}", width, "  - ", "    ")
    if not answer["ways"]:
        latest = answer["releases"][0]
        yield ""
        yield f"Why TensorFlow {latest['release']} does not work:"
        for reason in latest["reasons"]:
            yield from wrapped(_reason(reason), width, "  - ", "    ")


def _deciding(group: Mapping[str, Any]) -> str:
    """Return the deciding reason without the release that it names."""
    own = f"tensorflow {group['releases'].split(' to ')[-1]}"
    return str(group["reasons"][0]["text"]).replace(own, "tensorflow")


def _reason(reason: Mapping[str, str]) -> str:
    return f"{reason['text']} ({reason['fact']})" if reason["fact"] else reason["text"]


# Compare an image that was derived from one of this project with the lock of that image.


#: Files that the text names for a package.
_SHOWN = 3


@dataclass(frozen=True)
class Changes:
    """The changes of a derived image against its base."""

    image: Annotated[str, "The image spec that it was derived from."]
    lock_digest: Annotated[str, "The digest of the lock of that image."]
    base: Annotated[str | None, "The digest of that image, or null if the engine does not have it."]
    commands: Annotated[tuple[str, ...], "What was done to it, oldest first, as the builder wrote it down."]
    compared: Annotated[bool, "Whether the lock was found here, so that the packages could be compared."]
    added: Annotated[dict[str, str], "The version by package."]
    removed: Annotated[dict[str, str], "The version by package."]
    upgraded: Annotated[dict[str, tuple[str, str]], "The versions before and after, by package."]
    files: Annotated[
        dict[str, list[str]], "Changed or missing files of TensorFlow's and NVIDIA's packages, by package."
    ]


def packages_changed(
    lock: Lock, installed: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str], dict[str, tuple[str, str]]]:
    """Return the packages that were added, removed and changed; see `Changes`. installed: as in a report."""
    locked = {wheel.name: wheel.version for wheel in lock.wheels}
    added = {name: version for name, version in sorted(installed.items()) if name not in locked}
    removed = {name: version for name, version in sorted(locked.items()) if name not in installed}
    upgraded = {
        name: (version, installed[name])
        for name, version in sorted(locked.items())
        if name in installed and installed[name] != version
    }
    return added, removed, upgraded


def derived_text(changes: Changes) -> str:
    """Return the comparison for people, in a few lines."""
    base = f" ({changes.base})" if changes.base else ""
    lines = [f"This image was derived from {changes.image}{base}:"]
    if not changes.compared:
        lines.append(f"  packages: not compared, because the lock {changes.lock_digest} is not here")
    else:
        told = {
            "added": [f"{name} {version}" for name, version in changes.added.items()],
            "removed": [f"{name} {version}" for name, version in changes.removed.items()],
            "changed": [f"{name} {old} to {new}" for name, (old, new) in changes.upgraded.items()],
        }
        lines += [f"  packages {how}: {', '.join(entries)}" for how, entries in told.items() if entries]
        if not any(told.values()):
            lines.append("  the packages are those of its lock")
    for name, files in changes.files.items():
        more = f" and {len(files) - _SHOWN} more" if len(files) > _SHOWN else ""
        lines.append(f"  files of {name} changed: {', '.join(files[:_SHOWN])}{more}")
    if not changes.files:
        lines.append("  no file of TensorFlow's or NVIDIA's packages changed")
    lines.append(
        f"A certificate of {changes.image} is about that image's digest. It says nothing about this image."
    )
    return "\n".join(lines)
