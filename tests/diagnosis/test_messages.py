"""The catalogue of messages: every row says what its examples show; what is harmless shows nothing else."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import re2
import yaml

from validator.diagnosis import messages
from validator.diagnosis.causes import causes
from validator.diagnosis.messages import FAULT, UNRECOGNIZED, Message

DIRECTORY = messages.DATA / "messages"
FILES = sorted(DIRECTORY.glob("*.yaml"))
ROWS = [(path.stem, number, row) for path in FILES for number, row in enumerate(messages.read(path), start=1)]
FACTS = {row.kind for _, _, row in ROWS if row.fact}
#: What a message says itself may be called as the cause that it names.
SAID_BY_THE_MESSAGE = {"cudnn_version_mismatch"}

each_row = pytest.mark.parametrize(
    "row", [pytest.param(row, id=f"{file}-{number}-{row.kind}") for file, number, row in ROWS]
)


def seen(line: str) -> list[Message]:
    return messages.catalogue().matches(line)


def values(row: Message, line: str) -> list[Mapping[str, str]]:
    return list(messages.catalogue().values(row, line))


def test_the_catalogue_has_a_file_for_every_area() -> None:
    areas = (
        "loader driver machine gpu xla memory python container distributed performance facts harmless unknown"
    )
    assert {path.stem for path in FILES} == set(areas.split())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_rows_have_the_fields_of_the_format_and_no_others(path: Path) -> None:
    required = {"kind", "pattern", "examples", "seen", "source"}
    optional = {"values", "harmless", "fact", "wordless"}
    for row in yaml.safe_load(path.read_text()):
        assert required <= set(row) <= required | optional, row["kind"]
        assert all(isinstance(value, str) for value in row.get("values", {}).values()), row["kind"]
        assert all(isinstance(example, str) for example in row["examples"]), row["kind"]


@each_row
def test_a_row_shows_its_kind_and_values_in_each_of_its_examples(row: Message) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9_]*", row.kind)
    assert row.examples
    named = set(re2.compile(row.pattern).groupindex)
    given: set[str] = set()
    for example in row.examples:
        assert row in seen(example), example
        found = values(row, example)
        assert found
        for shown in found:
            assert row.values.items() <= shown.items() or set(shown) & named
            assert all(isinstance(value, str) for value in shown.values())
            given |= set(shown)
    assert given <= named | set(row.values)


@each_row
def test_a_row_is_marked_as_wordless_when_its_pattern_needs_no_word(row: Message) -> None:
    """Without the mark it would be tried on every line; with it, a word that it has would not be used."""
    alone = re2.Filter()
    alone.Add(f"(?m){row.pattern}")
    alone.Compile()
    assert bool(alone.Match("", potential=True)) == row.wordless


@each_row
def test_a_block_shows_what_one_of_its_lines_shows(row: Message) -> None:
    """Alone in its catalogue, a row is tried on the block as a whole: not its words only."""
    alone = messages.Catalogue((row,))
    for example in row.examples:
        block = f"1/200 - loss: 2.3\n{example}\n2/200 - loss: 2.2"
        assert alone.may_show_anything(block.encode()), example
    assert not alone.may_show_anything(b"1/200 - loss: 2.3\n2/200 - loss: 2.2")


@each_row
def test_every_named_value_is_shown_by_an_example(row: Message) -> None:
    """A group that no example fills may be one that nothing ever fills."""
    found = {name for example in row.examples for shown in values(row, example) for name in shown}
    assert set(re2.compile(row.pattern).groupindex) <= found


@each_row
def test_a_line_as_it_is_pasted_shows_the_same(row: Message) -> None:
    """Indented as in a quoted block, where the row does not stand for the whole line."""
    if re.search(r"(?<!\[)\^", row.pattern):
        return
    for example in row.examples:
        assert row in seen(f"    worker-1 | {example}"), example


@each_row
def test_a_harmless_line_shows_no_fault(row: Message) -> None:
    if row.harmless is None:
        return
    assert row.harmless.endswith(".")
    for example in row.examples:
        others = {other.kind for other in seen(example) if other.harmless is None} - FACTS
        assert not others, example


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


def test_what_is_not_recognized_counts_only_alone() -> None:
    known = "2024-05-01 10:00:00.1: E tensorflow/x.cc:1] failed call to cuInit: CUDA_ERROR_NO_DEVICE"
    unknown = "2024-05-01 10:00:00.1: E tensorflow/x.cc:1] a thing that no row knows"
    assert {row.kind for row in seen(known)} == {"cuda_error", "cuinit_failed", FAULT}
    assert {row.kind for row in seen(unknown)} == {UNRECOGNIZED}


def test_no_kind_is_a_cause() -> None:
    kinds = {row.kind for _, _, row in ROWS}
    assert kinds & {cause.code for cause in causes()} <= SAID_BY_THE_MESSAGE


def test_rows_of_one_kind_are_all_harmless_or_none() -> None:
    harmless: dict[str, set[bool]] = {}
    for _, _, row in ROWS:
        harmless.setdefault(row.kind, set()).add(row.harmless is not None)
    mixed = {kind for kind, said in harmless.items() if len(said) > 1}
    assert not mixed


def test_no_pattern_stands_twice() -> None:
    patterns = [row.pattern for _, _, row in ROWS]
    assert len(patterns) == len(set(patterns))
