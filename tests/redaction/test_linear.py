"""Every pattern takes time proportional to the length of the text, for any text.

The texts are made from the patterns themselves: long runs of what each part of a pattern matches, after and
between the words in it. A pattern that tries each of n places and reads up to n characters there takes a
million steps for a line of a thousand characters.
"""

from __future__ import annotations

import re
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from validator.redaction import identifiers, personal_names, redact
from validator.redaction.identifiers import IDENTIFIERS
from validator.redaction.personal_names import ALWAYS, COLOURS, MOSTLY, PROMPT, ROWS, SHELL
from validator.redaction.redact import redacted
from validator.system import package_sources

from ..laws import subjects_to_try

if sys.version_info >= (3, 11):
    from re import _constants, _parser  # type: ignore[attr-defined]
else:
    import sre_constants as _constants
    import sre_parse as _parser

_REPEATS = tuple(
    getattr(_constants, name)
    for name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")
    if hasattr(_constants, name)
)
PATTERNS = {
    pattern.pattern: pattern
    for pattern in (
        *(pattern for pattern, _ in (*IDENTIFIERS, *ALWAYS, *MOSTLY)),
        *ROWS,
        *(COLOURS, PROMPT, SHELL),
        # Patterns that stand for themselves.
        *(
            value
            for module in (identifiers, personal_names, redact, package_sources)
            for value in vars(module).values()
            if isinstance(value, re.Pattern)
        ),
    )
}
#: Characters for the classes of a pattern: one of each kind that patterns tell apart.
_KINDS = "aAz0_-. \t\n:/@=\"',;[(%+~<"
#: Characters of a text. A pattern that takes more than `_SUSPICIOUS_S` for it is tried with a longer one.
_SHORT, _FACTOR = 1500, 4
_SUSPICIOUS_S = 0.004


def parts(tree: Any, flags: int) -> Iterator[tuple[str, str]]:
    """Yield the words of a pattern (`word`), and the characters that its repeated parts match (`run`)."""
    word = ""
    for operator, argument in tree:
        if operator is _constants.LITERAL:
            word += chr(argument)
            continue
        if word:
            yield "word", word
            word = ""
        if operator in _REPEATS:
            _, high, inner = argument
            if high > 1:
                yield from (("run", kind) for kind in _KINDS if _matches(inner, kind, flags))
                yield from (("run", found) for what, found in parts(inner, flags) if what == "word")
            yield from parts(inner, flags)
        elif operator is _constants.SUBPATTERN:
            yield from parts(argument[-1], flags)
        elif operator is _constants.BRANCH:
            for branch in argument[1]:
                yield from parts(branch, flags)
        elif operator in (_constants.ASSERT, _constants.ASSERT_NOT):
            yield from parts(argument[1], flags)
        elif operator is getattr(_constants, "ATOMIC_GROUP", None):
            yield from parts(argument, flags)
        elif operator is _constants.IN:
            yield from (("word", kind) for kind in _KINDS if _in(argument, kind))
    if word:
        yield "word", word


def _matches(tree: Any, kind: str, flags: int) -> bool:
    return any(
        (operator is _constants.LITERAL and chr(argument) == kind)
        or (operator is _constants.NOT_LITERAL and chr(argument) != kind)
        or operator is _constants.ANY
        or (operator is _constants.IN and _in(argument, kind))
        for operator, argument in tree
    )


def _in(items: Any, kind: str) -> bool:
    """Return True if a character class contains a character."""
    negated, found, code = False, False, ord(kind)
    for operator, argument in items:
        if operator is _constants.NEGATE:
            negated = True
        elif operator is _constants.LITERAL:
            found |= argument == code
        elif operator is _constants.RANGE:
            found |= argument[0] <= code <= argument[1]
        elif operator is _constants.CATEGORY:
            found |= {
                _constants.CATEGORY_DIGIT: kind.isdigit(),
                _constants.CATEGORY_NOT_DIGIT: not kind.isdigit(),
                _constants.CATEGORY_SPACE: kind.isspace(),
                _constants.CATEGORY_NOT_SPACE: not kind.isspace(),
                _constants.CATEGORY_WORD: kind.isalnum() or kind == "_",
                _constants.CATEGORY_NOT_WORD: not (kind.isalnum() or kind == "_"),
            }[argument]
    return found != negated


def samples(tree: Any, flags: int) -> Iterator[tuple[str, str]]:
    """Yield for each repeated part a text that matches everything before it, and a character of the part."""
    before = ""
    for element in tree:
        operator, argument = element
        if operator in _REPEATS:
            yield from (
                (before, kind) for kind in _KINDS if argument[1] > 1 and _matches(argument[2], kind, flags)
            )
        for inner in _inside(operator, argument):
            yield from ((before + text, kind) for text, kind in samples(inner, flags))
        before += _sample(element, flags)


def _inside(operator: Any, argument: Any) -> list[Any]:
    if operator in _REPEATS:
        return [argument[2]]
    if operator is _constants.SUBPATTERN:
        return [argument[-1]]
    if operator is _constants.BRANCH:
        return list(argument[1])
    return [argument[1]] if operator is _constants.ASSERT and argument[0] > 0 else []


def _sample(element: Any, flags: int) -> str:
    """Return a short text that a part of a pattern matches."""
    operator, argument = element
    if operator is _constants.LITERAL:
        return chr(argument)
    if operator in (_constants.IN, _constants.ANY, _constants.NOT_LITERAL):
        kinds: Iterator[str] = (kind for kind in _KINDS if _matches([element], kind, flags))
        return next(kinds, "b")
    if operator in _REPEATS:
        return "".join(_sample(inner, flags) for inner in argument[2]) * int(argument[0])
    if operator is _constants.SUBPATTERN:
        return "".join(_sample(inner, flags) for inner in argument[-1])
    if operator is _constants.BRANCH:
        return "".join(_sample(inner, flags) for inner in argument[1][0])
    return ""


def hostile_texts(pattern: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """Yield texts to try a pattern with: a beginning, and what is repeated after it."""
    tree = _parser.parse(pattern.pattern, pattern.flags & ~re.UNICODE)
    found = list(dict.fromkeys(parts(tree, pattern.flags)))
    runs = list(dict.fromkeys(text for what, text in found if what == "run"))[:12]
    words = list(dict.fromkeys(text for what, text in found if what == "word" and len(text) < 40))[:25]
    for before, kind in dict.fromkeys(samples(tree, pattern.flags)):
        yield from ((before, kind), ("", before + kind), ("", before + kind * 50))
    for run in runs:
        yield from (("", run), ("", f"{run}\n"))
        for word in words:
            yield from ((word, run), ("", word + run), ("", run + word))
        for other in runs:
            yield ("", run + other)


def seconds(work: Callable[[str], object], text: str, enough: float = 0.0) -> float:
    """Return the time of the processor that the work takes: the best of three, or one below `enough`."""
    best = float("inf")
    for _ in range(3):
        began = time.thread_time()
        work(text)
        best = min(best, time.thread_time() - began)
        if best < enough:
            break
    return best


def is_linear(
    work: Callable[[str], object], head: str, unit: str, tail: str = "", shortest: int = _SHORT
) -> bool:
    """Return True if four times the text takes far less than sixteen times as long."""

    def text(length: int) -> str:
        return head + unit * (length // len(unit)) + tail

    short = seconds(work, text(shortest), _SUSPICIOUS_S)
    bound = short * _FACTOR * 2
    return short < _SUSPICIOUS_S or seconds(work, text(shortest * _FACTOR), bound) < bound


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=range(len(PATTERNS)))
def test_a_pattern_takes_time_in_proportion_to_the_length_of_the_text(pattern: re.Pattern[str]) -> None:
    def work(text: str) -> None:
        deque(pattern.finditer(text), maxlen=0)

    for head, unit in subjects_to_try(list(dict.fromkeys(hostile_texts(pattern)))):
        assert is_linear(work, head, unit), (pattern.pattern, head, unit)


def test_a_pattern_with_a_longer_time_is_found() -> None:
    """The pattern for serial numbers was once like this. A line of 16,000 blanks took 14 seconds."""
    pattern = re.compile(r"\bserial\s*(?:[:=#]|(?=[ \t]+[\w-]*\d)[ \t]+)x")
    assert ("serial", " ") in set(hostile_texts(pattern))
    assert not is_linear(lambda text: deque(pattern.finditer(text), maxlen=0), "serial", " ", shortest=750)


@pytest.mark.parametrize(
    ("head", "unit"),
    [
        ("", "/home/user{} "),
        ("", "u{0}@h{0}:~$ "),
        ("Serial", " "),
        ("", "10.1.2.3 "),
        ("", "token=a{} "),
        ("", "https://u{}:p@h "),
        ("", "x{}.corp.example.com "),
        ("", "-----BEGIN PRIVATE KEY-----"),
        ("mysql ", "-q "),
    ],
)
def test_redaction_takes_time_in_proportion_to_the_length_of_a_line(head: str, unit: str) -> None:
    """Thousands of names that are learned from a text are not looked for one by one."""

    def text(count: int) -> str:
        return head + "".join(unit.format(number) for number in range(count))

    # Most take so little that there is no need to know more exactly.
    long = seconds(redacted, text(2000), 0.1)
    assert long < 0.1 or long < seconds(redacted, text(500)) * 10


@pytest.mark.parametrize(
    "unit",
    [
        "a-",
        "--a",
        "a.",
        "a.-1",
        "-",
        "A_",
        "token",
        "/afs/a",
        "/home/a/",
        "/scratch/a/",
        "nodelist=a[",
        "a,[",
        "\n",
        " ",
        " \n",
        "1 a b ",
        "1 ",
        "-----BEGIN PRIVATE KEY-----",
    ],
)
def test_all_patterns_together_take_time_in_proportion_to_the_length_of_a_text(unit: str) -> None:
    def work(text: str) -> None:
        assert "hunter2" not in redacted(text)

    assert is_linear(work, "", unit, " password=hunter2")


def test_a_long_line_is_redacted_quickly() -> None:
    line = "serial" + " " * 16_000 + "x"
    assert seconds(redacted, line, 1) < 1
