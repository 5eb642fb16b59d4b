"""The catalogue of messages (`data/messages/`): which line of text shows which kind of thing.

Patterns are RE2's: however a line was made, matching takes time in proportion to its length. `re2.Filter`
looks for the words that patterns can't do without, for all of them at once, and tries only those whose words
are found. (`re2.Set` makes one automaton of all patterns; that is quicker on the text of logs, and takes 200
times as long on random text, whose every character leads it into a new state.)
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import re2
import yaml

DATA = Path(__file__).parent / "data"
#: Of lines that speak of a fault and match nothing else.
UNRECOGNIZED = "unrecognized"
#: Of lines that speak of a fault too, and matter only where no cause is found: what is known as a message, a
#: traceback's first line, the lines before a crash.
FAULT = "fault"
#: The file all of whose messages tell of the environment alone.
_FACTS = "facts"

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Message:
    """One family of messages.

    kind: what it shows. pattern: for one cleaned line; its named groups are values. values: fixed ones.
    harmless: one sentence, why it may be ignored; None for what may not.
    examples: real lines. seen, source: which software prints it, and where the wording was read.
    fact: it tells of the environment alone; a line that holds one is not understood by that.
    """

    kind: str
    pattern: str
    values: Mapping[str, str] = field(default_factory=dict)
    harmless: str | None = None
    examples: tuple[str, ...] = ()
    seen: str = ""
    source: str = ""
    fact: bool = False

    def read(self, line: str) -> Iterator[Mapping[str, str]]:
        """The values in a line that matches, for each time that it says something else."""
        names = _groups(self.pattern)
        if not names:
            # That it matches is known, and it says nothing else.
            yield self.values
            return
        seen = []
        for match in _compiled(self.pattern).finditer(line):
            found = ((name, match[index]) for name, index in names)
            groups = {name: value.strip() for name, value in found if value is not None}
            if groups not in seen:
                seen.append(groups)
                yield MappingProxyType({**self.values, **groups})


class Catalogue:
    """All messages, to be asked about one line after another."""

    def __init__(self, messages: tuple[Message, ...]) -> None:
        self.messages = messages
        self._filter = re2.Filter()
        for message in messages:
            # Line starts and ends are those of each line, so that several can be asked about at once.
            self._filter.Add(f"(?m){message.pattern}")
        self._filter.Compile()

    def shows_anything(self, lines: Iterable[str]) -> bool:
        """Whether any of the lines may show something; one look at many is quicker than many looks."""
        return bool(self._filter.Match("\n".join(lines)))

    def matches(self, line: str) -> Iterator[Message]:
        """The messages that a line shows, in the catalogue's order, and then that it speaks of a fault: as
        what is not recognized only when it is nothing else, and not at all when it is harmless."""
        numbers = self._filter.Match(line)
        if not numbers:
            return
        found = [self.messages[number] for number in sorted(numbers)]
        known = [message for message in found if message.kind not in (UNRECOGNIZED, FAULT)]
        yield from known
        faults = [message for message in found if message.kind in (UNRECOGNIZED, FAULT)]
        telling = [message for message in known if not message.fact]
        if faults and not telling:
            yield faults[0]
        elif faults and not any(message.harmless for message in telling):
            yield replace(faults[0], kind=FAULT)


@functools.cache
def catalogue() -> Catalogue:
    """The catalogue, read once."""
    return Catalogue(
        tuple(message for path in sorted((DATA / "messages").glob("*.yaml")) for message in read(path))
    )


def read(path: Path) -> Iterator[Message]:
    """The messages of one file."""
    for row in yaml.load(path.read_bytes(), Loader=_LOADER) or []:
        yield Message(
            kind=row["kind"],
            pattern=row["pattern"],
            values=MappingProxyType(row.get("values", {})),
            harmless=row.get("harmless"),
            examples=tuple(row.get("examples", ())),
            seen=row.get("seen", ""),
            source=row.get("source", ""),
            fact=row.get("fact", path.stem == _FACTS),
        )


@functools.cache
def _compiled(pattern: str) -> Any:
    return re2.compile(pattern)


@functools.cache
def _groups(pattern: str) -> tuple[tuple[str, int], ...]:
    """Name and number of each named group. The library looks them up anew at each call, which is slow."""
    return tuple(_compiled(pattern).groupindex.items())
