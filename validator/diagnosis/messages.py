"""The catalogue of messages (`data/messages/`): which line of text shows which kind of thing.

Patterns are RE2's: however a line was made, matching takes time in proportion to its length. `re2.Filter`
looks for the words that patterns can't do without, for all of them at once, and tries only those whose words
are found. (`re2.Set` makes one automaton of its patterns; with all of them that takes 200 times as long on
random text, whose every character leads it into a new state. It serves for the few that have no word.)
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import re2

from ..compat import facts

DATA = Path(__file__).parent / "data"
#: Of lines that speak of a fault and match nothing else.
UNRECOGNIZED = "unrecognized"
#: Of lines that speak of a fault too, and matter only where no cause is found: what is known as a message, a
#: traceback's first line, the lines before a crash.
FAULT = "fault"
_FAULTS = (UNRECOGNIZED, FAULT)
#: So many patterns whose words are in a text are likely to be there by chance, and worth being tried.
_CHANCE = 4
#: The file all of whose messages tell of the environment alone.
_FACTS = "facts"


@dataclass(frozen=True)
class Message:
    """One family of messages.

    kind: what it shows. pattern: for one cleaned line; its named groups are values. values: fixed ones.
    harmless: one sentence, why it may be ignored; None for what may not.
    examples: real lines. seen, source: which software prints it, and where the wording was read.
    fact: it tells of the environment alone; a line that holds one is not understood by that.
    wordless: there is no word of three letters that its pattern can't do without.
    """

    kind: str
    pattern: str
    values: Mapping[str, str] = field(default_factory=dict)
    harmless: str | None = None
    examples: tuple[str, ...] = ()
    seen: str = ""
    source: str = ""
    fact: bool = False
    wordless: bool = False


class Catalogue:
    """All messages, to be asked about one line after another.

    outside: the kinds that make no line understood.
    """

    def __init__(self, messages: tuple[Message, ...]) -> None:
        self.messages = messages
        self.outside = {FAULT, *(message.kind for message in messages if message.fact)}
        # The filter would try what has no word on every line; of so few, one automaton is quicker.
        self._by_word, self._wordless = re2.Filter(), re2.Set.SearchSet()
        self._numbers: dict[bool, list[int]] = {False: [], True: []}
        self._indices: dict[str, int] = {}
        for number, message in enumerate(messages):
            # Line starts and ends are those of each line, so that several can be asked about at once.
            index = (self._wordless if message.wordless else self._by_word).Add(f"(?m){message.pattern}")
            self._numbers[message.wordless].append(number)
            if not message.wordless:
                self._indices[message.pattern] = index
        self._by_word.Compile()
        self._wordless.Compile()
        self._readers: dict[str, tuple[Any, tuple[tuple[str, int], ...]]] = {}
        faults = (message for message in messages if message.kind in _FAULTS)
        self._as_fault = {id(message): replace(message, kind=FAULT) for message in faults}

    def may_show_anything(self, data: bytes) -> bool:
        """Whether any of some lines, in UTF-8, may show something: one look at many is quicker than many."""
        words = self._by_word.Match(data, potential=True)
        if words and len(words) <= _CHANCE:
            words = self._by_word.Match(data)
        return bool(words or self._wordless.Match(data))

    def matches(self, line: str) -> list[Message]:
        """The messages that a line shows, in the catalogue's order, and then that it speaks of a fault: as
        what is not recognized only when it is nothing else, and not at all when it is harmless."""
        data = line.encode()
        wordless = self._wordless.Match(data)
        # Of a line that shows nothing this says so in half the time that an answer takes.
        if not wordless and not self._by_word.Match(data, potential=True):
            return []
        numbers = [self._numbers[False][index] for index in self._by_word.Match(data) or ()]
        numbers += [self._numbers[True][index] for index in wordless or ()]
        found = [self.messages[number] for number in sorted(numbers)]
        known = [message for message in found if message.kind not in _FAULTS]
        if len(known) == len(found):
            return known
        fault = next(message for message in found if message.kind in _FAULTS)
        telling = [message for message in known if not message.fact]
        if not telling:
            return [*known, fault]
        if any(message.harmless for message in telling):
            return known
        return [*known, self._as_fault[id(fault)]]

    def values(self, message: Message, line: str) -> Iterator[Mapping[str, str]]:
        """What a message says besides in a line that shows it, for each time that it says something else."""
        compiled, names = self._reader(message.pattern)
        if not names:
            # That it matches is known, and it says nothing else.
            yield message.values
            return
        seen = []
        # Given bytes the library does not count characters, which takes longer than the match.
        for match in compiled.finditer(line.encode()):
            found = ((name, match[index]) for name, index in names)
            groups = {name: value.decode().strip() for name, value in found if value is not None}
            if groups not in seen:
                seen.append(groups)
                yield MappingProxyType({**message.values, **groups})

    def _reader(self, pattern: str) -> tuple[Any, tuple[tuple[str, int], ...]]:
        """A pattern compiled, and name and number of each named group. The library looks them up anew at each
        call, which is slow."""
        reader = self._readers.get(pattern)
        if reader is None:
            index = self._indices.get(pattern)
            # What the filter has compiled is not compiled again; a set gives nothing of what it has.
            compiled = re2.compile(pattern) if index is None else self._by_word.re(index)
            reader = self._readers[pattern] = (compiled, tuple(compiled.groupindex.items()))
        return reader


@functools.cache
def catalogue() -> Catalogue:
    """The catalogue, read once."""
    return Catalogue(
        tuple(message for path in sorted((DATA / "messages").glob("*.yaml")) for message in read(path))
    )


def read(path: Path) -> Iterator[Message]:
    """The messages of one file."""
    for row in facts.read(path) or []:
        yield Message(
            kind=row["kind"],
            pattern=row["pattern"],
            values=MappingProxyType(row.get("values", {})),
            harmless=row.get("harmless"),
            examples=tuple(row.get("examples", ())),
            seen=row.get("seen", ""),
            source=row.get("source", ""),
            fact=row.get("fact", path.stem == _FACTS),
            wordless=row.get("wordless", False),
        )
