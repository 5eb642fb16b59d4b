"""Turn the facts of a case into the text that a person would paste, in one of the usual forms."""

from __future__ import annotations

import random
import textwrap
import zlib
from collections.abc import Callable, Mapping

from .console import Console, Facts
from .surroundings import commands, form, noise, sentences
from .wording import WORDING


def as_typed(lines: list[str]) -> list[str]:
    return lines


def fenced(lines: list[str]) -> list[str]:
    return ["```shell", *lines, "```"]


def quoted(lines: list[str]) -> list[str]:
    """Quote lines as in an answer by mail or in a tracker."""
    return [f"> {line}".rstrip() for line in lines]


def wrapped(lines: list[str]) -> list[str]:
    """Cut lines in the middle of words, as when copied from a terminal of 80 columns."""
    return [line[start : start + 80] for line in lines for start in range(0, max(len(line), 1), 80)]


def folded(lines: list[str]) -> list[str]:
    """Fold lines as a mail program does: at blanks, before column 80."""
    out: list[str] = []
    for line in lines:
        out += textwrap.wrap(
            line, 80, break_long_words=False, break_on_hyphens=False, drop_whitespace=True
        ) or [""]
    return out


def coloured(lines: list[str]) -> list[str]:
    """Colour errors and warnings as in `script` or a CI log, with a reset at each end."""
    colours = {" E ": "\x1b[31m", " W ": "\x1b[33m", "Error": "\x1b[1;31m"}
    return [
        next((f"{code}{line}\x1b[0m" for mark, code in colours.items() if mark in line), f"{line}\x1b[0m")
        for line in lines
    ]


def ci(lines: list[str]) -> list[str]:
    """Add timestamps as a CI service or `kubectl logs --timestamps` does."""
    return [
        f"2024-05-17T09:{(index // 60) % 60:02d}:{index % 60:02d}.1234567Z {line}"
        for index, line in enumerate(lines)
    ]


FORMS: Mapping[str, Callable[[list[str]], list[str]]] = {
    "typed": as_typed,
    "fenced": fenced,
    "quoted": quoted,
    "wrapped": wrapped,
    "folded": folded,
    "coloured": coloured,
    "ci": ci,
}


def form_of(source: str) -> str:
    """Return the form in which this case is pasted: fixed by its source, all of them used over the cases."""
    return sorted(FORMS)[zlib.crc32(source.encode()) % len(FORMS)]


def render(facts: Facts, pasted_as: str | None = None) -> str:
    """Return the text of a case. The same facts always give the same text.

    pasted_as: a name in FORMS; by default the one of this source
    """
    seed = zlib.crc32(facts.source.encode())
    console = Console(facts, random.Random(seed))
    chance = random.Random(seed + 1)
    console.say(*noise(console, chance), *commands(facts))
    for seen in facts.observed:
        WORDING[seen["kind"]](console, seen)
    console.say(*noise(console, chance))
    pasted = FORMS[pasted_as or form_of(facts.source)](console.lines)
    return "\n".join([*form(facts), *sentences(facts), "", *pasted]) + "\n"
