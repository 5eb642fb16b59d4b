"""Finds known names in a text, in time proportional to its length, however many names there are."""

from __future__ import annotations

import re
from collections.abc import Iterable

#: Names have at least this many characters, and are looked up by their first ones.
SHORTEST = 3
#: No name of a person or a machine is longer.
_LONGEST = 255
_BEGINNING = re.compile(r"(?<![A-Za-z0-9])(?=\S)")


class KnownNames:
    """Replaces names wherever they are whole words, in upper or lower case. The longer of two names counts.

    A pattern with an alternative for each name would try all of them at each place.
    """

    def __init__(self, names: Iterable[str]) -> None:
        #: The names by their first characters, then by their length, longest first.
        self._names: dict[str, dict[int, set[str]]] = {}
        for name in sorted(map(_lowered, names), key=len, reverse=True):
            if SHORTEST <= len(name) <= _LONGEST:
                self._names.setdefault(name[:SHORTEST], {}).setdefault(len(name), set()).add(name)

    def replaced(self, text: str, instead: str) -> str:
        """Return the text with `instead` in the place of each name."""
        if not self._names:
            return text
        lowered = _lowered(text)
        parts, end = [], 0
        for match in _BEGINNING.finditer(lowered):
            start = match.start()
            lengths = self._names.get(lowered[start : start + SHORTEST])
            if lengths is None or start < end:
                continue
            for length, names in lengths.items():
                stop = start + length
                if lowered[start:stop] in names and not _continues(lowered, stop):
                    parts += [text[end:start], instead]
                    end = stop
                    break
        return "".join([*parts, text[end:]])


def _lowered(text: str) -> str:
    """Return the text in lower case, with as many characters as before."""
    lowered = text.lower()
    if len(lowered) == len(text):
        return lowered
    return "".join(low if len(low := character.lower()) == 1 else character for character in text)


def _continues(text: str, position: int) -> bool:
    """Return True if a word goes on at a position."""
    following = text[position : position + 1]
    return following.isascii() and following.isalnum()
