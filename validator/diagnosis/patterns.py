"""Find out which of many patterns match a text, with RE2 or with the standard library.

RE2 matches in time proportional to the length of the text, whatever the text is. `re2.Filter` looks for the
words that each pattern needs, for all patterns at once, and tries only the patterns whose words were found.
(`re2.Set` makes one automaton of its patterns. With all patterns in it, that takes 200 times as long on
random text, because every character leads to a new state. A few sets serve the patterns that need no word.)

Compiling all patterns takes longer than reading a short text. So a text is first matched with the patterns
whose words it has, which are looked up here, and with all at once when it turns out to be long.

Where RE2 can't be imported, as in a browser, `re` gives the same answers. `re` backtracks, so hostile input
can make a pattern take very long there: use it only on text that comes from the person who waits for the
answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Union

try:
    import re2
except ImportError:
    re2 = None

#: What a text has to contain: a word, or one of several alternatives.
Need = Union[str, "AnyOf"]
AllOf = Sequence[Need]
AnyOf = Sequence[str | AllOf]
#: The most bytes that the automaton of one pattern may take.
_MEMORY = 64 << 20
#: A text has the words of at most this many patterns by chance; it is worth trying so few on a whole block.
_CHANCE = 4
#: Characters by which the standard library's finder looks up words; no word is shorter.
_START = 3
#: The most patterns in one set. With more, it has more states than it can keep, so it is slow.
_TOGETHER = 12
#: From this many characters on, compiling all patterns is worthwhile. It takes a tenth of a second.
_FEW = 8192


@dataclass(frozen=True)
class Pattern:
    """One regular expression in the syntax that RE2 and `re` share.

    wordless: RE2 finds no word of three letters that every match contains.
    words: in lower case; every match contains at least one of them. Empty where there are none.
    needs: all that every match contains, in lower case. Empty if `words` already says it.
    """

    expression: str
    wordless: bool = False
    words: tuple[str, ...] = ()
    needs: AllOf = ()


class Finder(Protocol):
    """Match one text against many patterns. `^` and `$` are the start and the end of a line."""

    def may_match(self, block: bytes) -> bool:
        """Return False only if no pattern matches any line of a block of UTF-8 text."""

    def matching(self, line: str) -> Sequence[int]:
        """Return the positions of the patterns that match a line, in ascending order."""

    def groups(self, position: int, line: str) -> Iterator[Mapping[str, str]]:
        """Yield the named groups that took part, for each match of one pattern in a line."""

    def has_groups(self, position: int) -> bool:
        """Return whether a pattern has named groups."""


def finder(patterns: Iterable[Pattern]) -> Finder:
    """Return the fastest finder that is available here."""
    return WordFinder(patterns, compiled_by_re) if re2 is None else GrowingFinder(patterns)


def searcher(expression: str) -> Callable[[bytes], object]:
    """Return a function that says whether an expression matches anywhere in UTF-8 text."""
    if re2 is None:
        compiled = re.compile(expression, re.MULTILINE | re.ASCII)
        return lambda data: compiled.search(data.decode()) is not None
    # A set has the least overhead per call.
    one = re2.Set.SearchSet()
    one.Add(f"(?m){expression}")
    one.Compile()
    match: Callable[[bytes], object] = one.Match
    return match


class Re2Finder:
    """Match with RE2."""

    def __init__(self, patterns: Iterable[Pattern]) -> None:
        self._by_word = re2.Filter()
        self._patterns = tuple(patterns)
        self._positions_by_word: list[int] = []
        self._filter_index: dict[int, int] = {}
        wordless: list[int] = []
        for position, pattern in enumerate(self._patterns):
            if pattern.wordless:
                wordless.append(position)
            else:
                self._filter_index[position] = self._by_word.Add(f"(?m){pattern.expression}", _options())
                self._positions_by_word.append(position)
        self._by_word.Compile()
        # The filter would try the wordless patterns on every line, each by itself.
        several = [wordless[start : start + _TOGETHER] for start in range(0, len(wordless), _TOGETHER)]
        self._wordless = [(self._set(positions), positions) for positions in several]
        self._compiled: dict[int, tuple[Any, tuple[tuple[str, int], ...]]] = {}

    def may_match(self, block: bytes) -> bool:
        words = self._by_word.Match(block, potential=True)
        if words and len(words) <= _CHANCE:
            words = self._by_word.Match(block)
        return bool(words or any(one.Match(block) for one, _ in self._wordless))

    def matching(self, line: str) -> Sequence[int]:
        data = line.encode()
        found = [self._positions_by_word[index] for index in self._by_word.Match(data) or ()]
        for one, positions in self._wordless:
            found += [positions[index] for index in one.Match(data) or ()]
        return sorted(found)

    def groups(self, position: int, line: str) -> Iterator[Mapping[str, str]]:
        compiled, names = self._expression(position)
        # Given bytes, the library does not count characters, which takes longer than the match.
        for match in compiled.finditer(line.encode()):
            found = ((name, match[number]) for name, number in names)
            yield {name: value.decode() for name, value in found if value is not None}

    def has_groups(self, position: int) -> bool:
        return bool(self._expression(position)[1])

    def _set(self, positions: Sequence[int]) -> Any:
        one = re2.Set.SearchSet()
        for position in positions:
            one.Add(f"(?m){self._patterns[position].expression}")
        one.Compile()
        return one

    def _expression(self, position: int) -> tuple[Any, tuple[tuple[str, int], ...]]:
        """Return a compiled pattern with the names and numbers of its groups, which the library would look up
        again at each call."""
        found = self._compiled.get(position)
        if found is None:
            index = self._filter_index.get(position)
            # The filter returns the patterns that it has compiled; a set does not.
            compiled = (
                re2.compile(self._patterns[position].expression) if index is None else self._by_word.re(index)
            )
            found = self._compiled[position] = (compiled, tuple(compiled.groupindex.items()))
        return found


class GrowingFinder:
    """Match short texts with the few patterns whose words they have, and long texts with all at once."""

    def __init__(self, patterns: Iterable[Pattern]) -> None:
        self._patterns = tuple(patterns)
        self._by_words = WordFinder(self._patterns, compiled_by_re2)
        self._all: Re2Finder | None = None
        self._read = 0

    def may_match(self, block: bytes) -> bool:
        return self._finder(len(block)).may_match(block)

    def matching(self, line: str) -> Sequence[int]:
        return self._finder(len(line)).matching(line)

    def groups(self, position: int, line: str) -> Iterator[Mapping[str, str]]:
        return self._finder(0).groups(position, line)

    def has_groups(self, position: int) -> bool:
        return self._finder(0).has_groups(position)

    def _finder(self, size: int) -> Finder:
        self._read += size
        if self._all is None and self._read > _FEW:
            self._all = Re2Finder(self._patterns)
        return self._all or self._by_words


def _options() -> Any:
    """Return options with memory for large patterns. If it is not enough, RE2 searches in a slower way, and
    would tell that on stderr."""
    options = re2.Options()
    options.max_mem = _MEMORY
    options.log_errors = False
    return options


def compiled_by_re2(expression: str) -> Any:
    """Return an expression that RE2 has compiled."""
    return re2.compile(f"(?m){expression}", _options())


def compiled_by_re(expression: str) -> re.Pattern[str]:
    """Return an expression that the standard library has compiled."""
    # RE2's classes, such as \d, are those of ASCII.
    return re.compile(expression, re.MULTILINE | re.ASCII)


def _contains(text: str, needs: AllOf) -> bool:
    # Generators would take most of the time that this saves.
    for need in needs:
        if isinstance(need, str):
            if need not in text:
                return False
            continue
        for each in need:
            if each in text if isinstance(each, str) else _contains(text, each):
                break
        else:
            return False
    return True


class WordFinder:
    """Match the patterns whose words a text has. They are compiled when their words are first seen.

    compiled: returns a compiled expression, by RE2 or by the standard library.
    """

    def __init__(self, patterns: Iterable[Pattern], compiled: Callable[[str], Any]) -> None:
        self._patterns = tuple(patterns)
        self._compile = compiled
        self._compiled: dict[int, Any] = {}
        self._always: list[int] = []
        self._by_start: dict[str, dict[str, list[int]]] = {}
        for position, pattern in enumerate(self._patterns):
            if not pattern.words:
                self._always.append(position)
            for word in pattern.words:
                of_start = self._by_start.setdefault(word[:_START], {})
                of_start.setdefault(word, []).append(position)

    def may_match(self, block: bytes) -> bool:
        text = block.decode()
        return any(self._expression(position).search(text) for position in self._candidates(text))

    def matching(self, line: str) -> Sequence[int]:
        return sorted(
            position for position in self._candidates(line) if self._expression(position).search(line)
        )

    def groups(self, position: int, line: str) -> Iterator[Mapping[str, str]]:
        for match in self._expression(position).finditer(line):
            yield {name: value for name, value in match.groupdict().items() if value is not None}

    def has_groups(self, position: int) -> bool:
        return bool(self._expression(position).groupindex)

    def _candidates(self, text: str) -> list[int]:
        """Return the positions of the patterns whose required words are all in a text."""
        lowered = text.lower()
        starts = {lowered[place : place + _START] for place in range(len(lowered) - _START + 1)}
        found = set(self._always)
        for start in starts & self._by_start.keys():
            for word, positions in self._by_start[start].items():
                if word in lowered:
                    found.update(positions)
        return [position for position in found if _contains(lowered, self._patterns[position].needs)]

    def _expression(self, position: int) -> Any:
        found = self._compiled.get(position)
        if found is None:
            found = self._compiled[position] = self._compile(self._patterns[position].expression)
        return found
