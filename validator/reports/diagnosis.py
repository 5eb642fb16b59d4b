"""A diagnosis for a terminal: first the sentence that says why, the lines that prove it, what mends it.

Plain lines with styles of click, which drops them where no terminal is; rich would take longer to import than
a log takes to read.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

import click

from ..model.diagnosis import Cause, Diagnosis, Evidence, Harmless, Remedy
from .printable import printable

#: Columns that prose is wrapped at; lines of evidence and commands are never broken.
WIDTH = 88
#: Characters shown of a line of evidence.
_LINE = 200
#: Names of the facts, in the order in which they are told.
_FACTS = {
    "tensorflow": "TensorFlow",
    "python": "Python",
    "keras": "Keras",
    "cuda": "CUDA",
    "cudnn": "cuDNN",
    "driver": "driver",
    "driver_cuda": "CUDA of the driver",
    "gpu": "GPU",
    "os": "on",
    "image": "image",
}
#: How ways of installing are called.
WAYS = {
    "any": "",
    "host": "on the machine",
    "pip": "with pip",
    "conda": "with conda",
    "docker": "with Docker",
    "wsl": "in WSL2",
}


def text(diagnosis: Diagnosis) -> str:
    """The whole answer. Styled; `click.echo` drops the styles where no terminal is."""
    return "\n".join(_lines(diagnosis)) + "\n"


def _lines(diagnosis: Diagnosis) -> Iterator[str]:
    if diagnosis.causes:
        first, *others = diagnosis.causes
        yield from _cause(first)
        for number, cause in enumerate(others, start=2):
            yield ""
            yield from _cause(cause, f"{number}. ")
    elif diagnosis.unknown:
        yield click.style("Unknown: no known cause fits what was read.", bold=True, fg="yellow")
    else:
        yield click.style("No fault in what was read.", bold=True, fg="green")
    if diagnosis.unknown:
        yield ""
        yield _heading("Not understood")
        yield from _evidence(diagnosis.unknown)
    if diagnosis.harmless:
        yield ""
        yield _heading("Harmless")
        for entry in diagnosis.harmless:
            yield from _harmless(entry)
    yield ""
    yield from _facts(diagnosis)
    yield from _wrapped(f"Next: {diagnosis.next_step}.", "")


def _cause(cause: Cause, number: str = "") -> Iterator[str]:
    title = textwrap.wrap(printable(number + cause.title), WIDTH) or [cause.code]
    yield from (click.style(line, bold=True, fg="red") for line in title)
    yield click.style(f"[{cause.code}]", dim=True)
    yield ""
    yield from _wrapped(cause.means, "  ")
    yield ""
    yield _heading("Shown by")
    yield from _evidence(cause.evidence)
    if cause.explains:
        yield from _wrapped(f"It explains {', '.join(cause.explains)} too.", "  ")
    yield ""
    yield _heading("Mend it")
    for remedy in cause.remedies:
        yield from _remedy(remedy)


def _remedy(remedy: Remedy) -> Iterator[str]:
    way = WAYS.get(remedy.way, remedy.way)
    yield from _wrapped(f"{way[:1].upper()}{way[1:]}: {remedy.says}" if way else remedy.says, "  ")
    for command in remedy.commands:
        yield click.style(f"      {printable(command)}", fg="cyan")


def _evidence(entries: Iterable[Evidence]) -> Iterator[str]:
    for entry in entries:
        times = f" ({entry.count} times)" if entry.count > 1 else ""
        yield f"  {click.style(entry.where + times + ':', dim=True)} {shortened(printable(entry.text))}"


def _harmless(entry: Harmless) -> Iterator[str]:
    count = sum(seen.count for seen in entry.evidence)
    lines = "1 line" if count == 1 else f"{count} lines"
    yield from _wrapped(f"{entry.code} ({lines}): {entry.says}", "  ", "    ")


def _facts(diagnosis: Diagnosis) -> Iterator[str]:
    told = told_facts(diagnosis)
    about = f"; {', '.join(told)}" if told else ""
    yield from _wrapped(f"Read: {diagnosis.read}{about}.", "")


def told_facts(diagnosis: Diagnosis) -> Sequence[str]:
    """What was recognized of the environment: `TensorFlow 2.18.0`, `driver 535.183.01`."""
    return [
        f"{_FACTS[name]} {printable(diagnosis.facts[name])}" for name in _FACTS if name in diagnosis.facts
    ]


def shortened(line: str) -> str:
    """The line, its middle left out where it is long."""
    return line if len(line) <= _LINE else f"{line[: _LINE - 60]} … {line[-57:]}"


def _heading(words: str) -> str:
    return click.style(words, bold=True)


def _wrapped(prose: str, indent: str, following: str | None = None) -> list[str]:
    return textwrap.wrap(
        printable(prose),
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent if following is None else following,
        break_long_words=False,
        break_on_hyphens=False,
    )
