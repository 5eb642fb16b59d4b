"""The catalogue of messages: every row matches its examples, and a harmless one shows nothing else."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import re2

from validator.diagnosis import compile, patterns
from validator.diagnosis.catalogue import FAULT, UNRECOGNIZED, Catalogue, Message, catalogue, causes
from validator.diagnosis.patterns import (
    GrowingFinder,
    Pattern,
    Re2Finder,
    WordFinder,
    compiled_by_re,
    compiled_by_re2,
)

from .. import laws

REQUIRED = {"kind", "pattern", "examples", "seen", "source"}
OPTIONAL = {"values", "harmless", "fact", "wordless", "certainty"}
#: What a message says itself may be called as the cause that it names.
SAID_BY_THE_MESSAGE = {"cudnn_version_mismatch"}


@dataclass(frozen=True)
class Row:
    """A row of the catalogue: what its file says, and the message that is made from it."""

    name: str
    written: Mapping[str, Any]
    message: Message

    @property
    def examples(self) -> list[str]:
        """Return the real lines that show the message."""
        examples: list[str] = self.written["examples"]
        return examples


ROWS = [
    Row(f"{family}-{number}-{message.kind}", written, message)
    for number, ((family, written), message) in enumerate(
        zip(compile.messages(), catalogue().messages, strict=True), start=1
    )
]
FACTS = {row.message.kind for row in ROWS if row.message.fact}


@functools.cache
def seen(line: str) -> list[Message]:
    return catalogue().matches(line)


@functools.cache
def groups(pattern: str) -> set[str]:
    return set(re2.compile(pattern).groupindex)


def values(row: Message, line: str) -> list[Mapping[str, str]]:
    return list(catalogue().values(row, line))


def it_has_the_fields_of_the_format_and_no_others(row: Row) -> None:
    assert set(row.written) >= REQUIRED
    assert set(row.written) <= REQUIRED | OPTIONAL
    assert all(isinstance(value, str) for value in row.written.get("values", {}).values())
    assert all(isinstance(example, str) for example in row.written["examples"])


def it_shows_its_kind_and_values_in_each_of_its_examples(row: Row) -> None:
    message = row.message
    assert re.fullmatch(r"[a-z][a-z0-9_]*", message.kind)
    assert row.examples
    named = groups(message.pattern)
    given: set[str] = set()
    for example in row.examples:
        assert message in seen(example), example
        found = values(message, example)
        assert found
        for shown in found:
            assert message.values.items() <= shown.items() or set(shown) & named
            assert all(isinstance(value, str) for value in shown.values())
            given |= set(shown)
    assert given <= named | set(message.values)


def it_is_marked_as_wordless_when_its_pattern_needs_no_word(row: Row) -> None:
    """Without the mark it would be tried on every line. With it, a word that it has would not be used."""
    filter_ = re2.Filter()
    filter_.Add(f"(?m){row.message.pattern}")
    filter_.Compile()
    assert bool(filter_.Match("", potential=True)) == row.message.wordless


@functools.cache
def finders() -> tuple[Re2Finder, WordFinder, WordFinder]:
    given = [
        Pattern(row.message.pattern, row.message.wordless, row.message.words, row.message.needs)
        for row in ROWS
    ]
    return Re2Finder(given), WordFinder(given, compiled_by_re), WordFinder(given, compiled_by_re2)


def it_shows_the_same_in_a_short_text_and_without_re2(row: Row) -> None:
    all_at_once, *all_by_words = finders()
    by_words = laws.subjects_to_try(all_by_words)
    assert all(finder.may_match(row.examples[0].encode()) for finder in by_words)
    for example in row.examples:
        found = list(all_at_once.matching(example))
        expected = [list(all_at_once.groups(position, example)) for position in found]
        for finder in by_words:
            assert list(finder.matching(example)) == found, example
            for position, shown in zip(found, expected, strict=True):
                assert finder.has_groups(position) == all_at_once.has_groups(position)
                assert list(finder.groups(position, example)) == shown, (example, ROWS[position].name)


def a_block_shows_what_one_of_its_lines_shows(row: Row) -> None:
    """In a catalogue without other rows, a row is tried on the block as a whole: not only its words."""
    made = Catalogue((row.message,))
    for example in row.examples:
        block = f"1/200 - loss: 2.3\n{example}\n2/200 - loss: 2.2"
        assert made.may_show_anything(block.encode()), example
    assert not made.may_show_anything(b"1/200 - loss: 2.3\n2/200 - loss: 2.2")


def every_named_value_is_shown_by_an_example(row: Row) -> None:
    """A group that no example fills may be one that nothing ever fills."""
    message = row.message
    found = {name for example in row.examples for shown in values(message, example) for name in shown}
    assert groups(message.pattern) <= found


def a_line_as_it_is_pasted_shows_the_same(row: Row) -> None:
    """Try the line indented, as in a quoted block, unless the pattern is anchored."""
    if re.search(r"(?<!\[)\^", row.message.pattern):
        return
    for example in row.examples:
        assert row.message in seen(f"    worker-1 | {example}"), example


def a_harmless_line_shows_no_fault(row: Row) -> None:
    if row.message.harmless is None:
        return
    assert row.message.harmless.endswith(".")
    for example in row.examples:
        others = {other.kind for other in seen(example) if other.harmless is None} - FACTS
        assert not others, example


LAWS = (
    it_has_the_fields_of_the_format_and_no_others,
    it_shows_its_kind_and_values_in_each_of_its_examples,
    it_is_marked_as_wordless_when_its_pattern_needs_no_word,
    it_shows_the_same_in_a_short_text_and_without_re2,
    a_block_shows_what_one_of_its_lines_shows,
    every_named_value_is_shown_by_an_example,
    a_line_as_it_is_pasted_shows_the_same,
    a_harmless_line_shows_no_fault,
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row(row: Row) -> None:
    laws.check(LAWS, row)


@pytest.mark.parametrize(
    "line",
    [
        "Epoch 1/10",
        "469/469 [==============================] - 3s 5ms/step - loss: 0.2510 - accuracy: 0.9271",
        "x = [0] * 3  # nothing to see",
        "INFO:root:100% of the data read",
        "Downloading data from an archive",
        "I love Python and gardening.",
        "Model: sequential_1, Trainable params: 1,234 (4.82 KB)",
        "2024-05-01 10:00:00.123456: I tensorflow/core/some/file.cc:12] everything is well",
        "val_loss improved from 0.5 to 0.4, saving model to model.keras",
        "The batch has 0 errors and 10% of the rows are used",
    ],
)
def test_an_ordinary_line_shows_no_fault(line: str) -> None:
    assert {row.kind for row in seen(line)} <= FACTS


def test_a_line_is_unrecognized_only_if_it_shows_nothing_else() -> None:
    known = "2024-05-01 10:00:00.1: E tensorflow/x.cc:1] failed call to cuInit: CUDA_ERROR_NO_DEVICE"
    unknown = "2024-05-01 10:00:00.1: E tensorflow/x.cc:1] a thing that no row knows"
    assert {row.kind for row in seen(known)} == {"cuda_error", FAULT}
    assert {row.kind for row in seen(unknown)} == {UNRECOGNIZED}


def test_kinds_are_not_causes() -> None:
    kinds = {row.message.kind for row in ROWS}
    assert kinds & {cause.code for cause in causes()} <= SAID_BY_THE_MESSAGE


def test_messages_of_one_kind_are_all_harmless_or_none_is() -> None:
    harmless: dict[str, set[bool]] = {}
    for row in ROWS:
        harmless.setdefault(row.message.kind, set()).add(row.message.harmless is not None)
    mixed = {kind for kind, said in harmless.items() if len(said) > 1}
    assert not mixed


def test_patterns_are_unique() -> None:
    patterns = [row.message.pattern for row in ROWS]
    assert len(patterns) == len(set(patterns))


def test_a_long_text_is_matched_with_all_patterns_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Re2Finder] = []

    def making(given: Iterable[Pattern]) -> Re2Finder:
        made.append(Re2Finder(given))
        return made[-1]

    monkeypatch.setattr(patterns, "Re2Finder", making)
    finder = GrowingFinder([Pattern("zorked (?P<what>\\w+)", words=("zorked ",))])
    line = "it zorked everything"
    assert list(finder.matching(line)) == [0] and not made
    assert not finder.may_match(b"x" * 10_000) and made
    assert list(finder.matching(line)) == [0]
    assert list(finder.groups(0, line)) == [{"what": "everything"}] and len(made) == 1
