"""The catalogue of messages (`data/messages/`): which line of text shows which kind of thing.

Patterns are RE2's: however a line was made, matching takes time in proportion to its length. All of them are
tried at once (`re2.Set`), and only those that match are asked for their values.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import re2
import yaml

DATA = Path(__file__).parent / "data"
#: Of lines that speak of a fault and match nothing else.
UNRECOGNIZED = "unrecognized"

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
#: Room for the automaton of all patterns together. With RE2's 8 MB it is thrown away and built again.
_AUTOMATON_BYTES = 64 << 20


@dataclass(frozen=True)
class Message:
    """One family of messages.

    kind: what it shows. pattern: for one cleaned line; its named groups are values. values: fixed ones.
    harmless: one sentence, why it may be ignored; None for what may not.
    examples: real lines. seen, source: which software prints it, and where the wording was read.
    """

    kind: str
    pattern: str
    values: Mapping[str, str] = field(default_factory=dict)
    harmless: str | None = None
    examples: tuple[str, ...] = ()
    seen: str = ""
    source: str = ""

    def read(self, line: str) -> Mapping[str, str]:
        """The values in a line that matches."""
        match = _compiled(self.pattern).search(line)
        groups = match.groupdict() if match else {}
        found = {name: value.strip() for name, value in groups.items() if value is not None}
        return MappingProxyType({**self.values, **found})


class Catalogue:
    """All messages, to be asked about one line after another."""

    def __init__(self, messages: tuple[Message, ...]) -> None:
        self.messages = messages
        options = re2.Options()
        options.max_mem = _AUTOMATON_BYTES
        options.never_capture = True
        self._set = re2.Set.SearchSet(options)
        for message in messages:
            self._set.Add(message.pattern)
        self._set.Compile()

    def matches(self, line: str) -> Iterator[Message]:
        """The messages that a line shows, in the catalogue's order; what is not recognized only when it
        is nothing else."""
        numbers = self._set.Match(line)
        if not numbers:
            return
        found = [self.messages[number] for number in sorted(numbers)]
        known = [message for message in found if message.kind != UNRECOGNIZED]
        yield from known or found[:1]


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
        )


@functools.cache
def _compiled(pattern: str) -> Any:
    return re2.compile(pattern)
