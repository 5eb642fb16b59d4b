"""Reading pasted text of any size and kind."""

from __future__ import annotations

import gzip
import io
import itertools
import json
import os
import tracemalloc
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validator.diagnosis import diagnose_file, text
from validator.diagnosis.catalogue import catalogue
from validator.diagnosis.observations import Observations
from validator.diagnosis.observe import observe
from validator.errors import InputError

from .facts_read import facts_read


def clean_lines(data: bytes) -> list[str]:
    return [line.text for line in text.read(io.BytesIO(data), "log")]


def test_lines_are_numbered_from_one_and_counted() -> None:
    pasted = text.read_text("one\ntwo\n")
    assert [(line.number, line.text) for line in pasted] == [(1, "one"), (2, "two")]
    assert pasted.read == "2 lines"


@pytest.mark.parametrize(
    ("raw", "cleaned"),
    [
        (b"\x1b[1;31mE\x1b[0m tensorflow", "E tensorflow"),
        (b"\x1b]8;;https://example.org\x1b\\link\x1b]8;;\x1b\\", "link"),
        (b"\x1b]0;title\x07text", "text"),
        (b"> > quoted", "quoted"),
        (b">>> import tensorflow", "import tensorflow"),
        (b"a\x00".replace(b"\x00", b"\x01") + b"b", "ab"),
        (b"a &gt; b &quot;c&quot;", 'a > b "c"'),
        (b"trailing  \t", "trailing"),
        # Python converts no number of so many digits.
        (b"a &#" + b"1" * 5000 + b"; b &gt; c", "a \ufffd b > c"),
        (b"&#x" + b"1" * 5000 + b";", "\ufffd"),
        (b'{"log":"a","b":' + b"[" * 3000, '{"log":"a","b":' + "[" * 3000),
        ("é ü".encode(), "é ü"),
        (b"\xff\xfeab".replace(b"\xfe", b"\xfd"), "��ab"),
    ],
)
def test_a_line_is_cleaned(raw: bytes, cleaned: str) -> None:
    assert clean_lines(raw) == [cleaned]


#: What decides how lines are cleaned, and what surrounds it.
PIECES = st.sampled_from(
    [
        *("a", "é", " ", "\t", "\u3000", "\u2028", "\n", "\r\n", "\r", ">", "> ", "&", "&amp;"),
        *(
            "\x1b[1m",
            "\x1b",
            "\x1b]0;x",
            "[",
            "\x07",
            "\x08",
            "\x0b",
            "\x85",
            "\xa0",
            "\ufeff",
            "\udcff",
            '{"log":"x\\n"}',
            '{"log"',
            "x" * 300,
        ),
        *("2024-05-01T10:00:00Z x", "\ufeff2024-05-01T10:00:00Zx", "2024-05-01 10:00:00 x"),
    ]
)


@given(st.lists(PIECES, max_size=40).map("".join))
def test_lines_are_the_same_cleaned_together_or_one_by_one(pasted: str) -> None:
    data = b"first\n" + pasted.encode("utf-8", errors="surrogateescape")
    with mock.patch.object(text, "_clean_together", return_value=None):
        cleaned = list(text.read(io.BytesIO(data), "log"))
    assert list(text.read(io.BytesIO(data), "log")) == cleaned


def test_each_state_of_a_progress_bar_is_a_line() -> None:
    assert clean_lines(b"1/2\r2/2\r\nnext") == ["1/2", "2/2", "next"]


def test_the_states_of_a_long_progress_bar_have_the_number_of_its_line() -> None:
    states = [f"\x1b[1m{step}/500\x1b[0m {'━' * 20}" for step in range(500)]
    data = "first\r\n" + "".join(f"{state}\x08\x08 \r" for state in states) + "\r\nlast\n"
    found = [(line.number, line.text) for line in text.read_text(data)]
    assert found == [(1, "first"), *((2, f"{step}/500 {'━' * 20}") for step in range(500)), (3, "last")]


def test_a_long_line_is_one_line_with_either_line_end() -> None:
    for end in ("\n", "\r\n"):
        found = [(line.number, line.text) for line in text.read_text(f"first{end}{'x' * 9000}{end}last{end}")]
        assert found == [(1, "first"), (2, "x" * 9000), (3, "last")]


def test_a_coloured_prompt_is_a_question() -> None:
    coloured, plain = (text.read_text(f"{prompt} nvidia-smi\nx") for prompt in ("\x1b[32m$\x1b[0m", "$"))
    assert [line.asks for line in coloured] == [line.asks for line in plain] == [True, False]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_text_with_a_byte_order_mark_is_read(encoding: str) -> None:
    assert clean_lines("failed call to cuInit\r\nnext".encode(encoding)) == ["failed call to cuInit", "next"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is empty"),
        (b" \n\n\t", "is empty"),
        (b"\x7fELF\x02\x01\x00\x00", "is binary"),
        (gzip.compress(b"failed call to cuInit", mtime=0), r"is compressed \(gzip\)"),
    ],
)
def test_input_that_is_not_text_is_rejected_with_its_name(data: bytes, said: str) -> None:
    with pytest.raises(InputError, match=f"^log {said}"):
        clean_lines(data)


def test_an_endless_line_is_read_in_pieces_that_overlap() -> None:
    word = b"failed call to cuInit: CUDA_ERROR_NO_DEVICE"
    for start in range(text.PIECE - len(word), text.PIECE + 1, 7):
        data = b"x" * start + word + b"x" * 50_000
        assert any(word.decode() in line for line in clean_lines(data)), start


class Pipe(io.RawIOBase):
    """A stream that can't seek, and whose content is never completely in memory."""

    def __init__(self, first: bytes, filling: bytes, count: int, last: bytes) -> None:
        self._parts = itertools.chain([first], itertools.repeat(filling, count), [last])
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if not self._rest:
            self._rest = next(self._parts, b"")
        taken = self._rest[: len(buffer)]
        self._rest = self._rest[len(taken) :]
        buffer[: len(taken)] = taken
        return len(taken)


@pytest.mark.slow
def test_only_the_first_and_last_part_of_a_huge_pipe_are_read() -> None:
    filling = b"x" * 99 + b"\n"
    stream = io.BufferedReader(Pipe(b"first\n", filling * 10_000, 100, b"last\n"), 1 << 20)
    pasted = text.read(stream, "log")
    found = list(pasted)
    assert (found[0].text, found[-1].text) == ("first", "last")
    assert [line.number for line in found[:3]] == [1, 2, 3]
    assert {line.number for line in found[-30:]} == {0}
    assert pasted.read == "the first and the last 16 MiB of 95 MiB"
    assert sum(len(line.text) for line in found) < text.LIMIT


@pytest.mark.slow
def test_a_huge_pipe_is_never_completely_in_memory() -> None:
    filling = (b"x" * 99 + b"\n") * 10_000
    stream = io.BufferedReader(Pipe(b"first\n", filling, 300, b"last\n"), 1 << 20)
    tracemalloc.start()
    try:
        assert [line.text for line in text.read(stream, "log") if line.text[:1] != "x"] == ["first", "last"]
        assert tracemalloc.get_traced_memory()[1] < 4 * text.LIMIT
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_only_the_first_and_last_part_of_a_huge_file_are_read(tmp_path: os.PathLike[str]) -> None:
    path = os.path.join(tmp_path, "log")
    with open(path, "wb") as file:
        file.write(b"first\n" + b"x" * 99 + b"\n")
        file.seek(1 << 30)
        file.write(b"\nlast\n")
    with open(path, "rb") as file:
        # The zeros of a hole are left out.
        assert [line.text for line in text.read(file, "log")][-1] == "last"
    with open(path, "r+b") as file:
        for _ in range(text.LIMIT // 100_000 + 1):
            file.write((b"x" * 99 + b"\n") * 1000)
    with open(path, "rb") as file:
        pasted = text.read(file, "log")
        found = [line.text for line in pasted]
    assert (found[0][:3], found[-1]) == ("xxx", "last")
    assert pasted.read.endswith("of 1,024 MiB")


def test_wrapped_lines_are_joined_with_and_without_a_blank() -> None:
    given_lines = [
        text.Line(1, "x" * 40 + " Could not find"),
        text.Line(2, "cuda drivers"),
        text.Line(3, "on your"),
    ]
    found = [joined for joined, _ in text.unwrapped(given_lines)]
    assert "x" * 40 + " Could not find cuda drivers on your" in found
    assert "x" * 40 + " Could not findcuda drivers" in found


@pytest.mark.parametrize(
    "beginning",
    ["2024-05-01 10:00:00", "E0000 00:00:17", "Traceback (most", "[INFO]", "ValueError: x", '  File "a.py"'],
)
def test_the_start_of_a_log_line_does_not_continue_another_line(beginning: str) -> None:
    assert list(text.unwrapped([text.Line(1, "y" * 80), text.Line(2, beginning)])) == []


@given(st.binary(max_size=400))
def test_any_bytes_are_read_or_rejected(data: bytes) -> None:
    try:
        found = clean_lines(data)
    except InputError:
        return
    assert all(not any(character in line for character in "\x1b\r\n\0\x07") for line in found)


@pytest.mark.parametrize(
    ("asked", "put_together"),
    [
        (">>> tf.test.is_built_with_cuda()\nFalse", "tf.test.is_built_with_cuda(): False"),
        ("### TensorFlow version\n\n2.16.1", "TensorFlow version: 2.16.1"),
        ("**TensorFlow version:**\n2.16.1", "TensorFlow version: 2.16.1"),
        ("> >>> tf.config.list_physical_devices('GPU')\n> []", "tf.config.list_physical_devices('GPU'): []"),
        ("In [3]: tf.__version__\n'2.6.0'", "In [3]: tf.__version__: '2.6.0'"),
    ],
)
def test_a_prompt_or_a_heading_is_joined_to_its_answer(asked: str, put_together: str) -> None:
    assert [joined for joined, _ in text.answers(list(text.read_text(asked)))] == [put_together]


@pytest.mark.parametrize(
    "asked",
    [">>> a = 1\n>>> b = 2", "### Heading\n\n### Another", "### Heading\n\n\n\n\nlate", "> quoted\nx"],
)
def test_a_question_without_an_answer_is_not_joined(asked: str) -> None:
    assert list(text.answers(list(text.read_text(asked)))) == []


def test_half_a_surrogate_pair_in_an_entry_of_dockers_log_is_replaced() -> None:
    entry = rb'{"log":"\ud800 failed call to cuInit\n"}'
    (line,) = clean_lines(entry)
    assert line.encode() == b"? failed call to cuInit"


def test_entries_of_dockers_log_files_are_unpacked() -> None:
    pasted = r'{"log":"env: CUDA_VISIBLE_DEVICES=\"-1\"\n","stream":"stderr","time":"2025-03-03T03:03:03Z"}'
    other = '{"log":"cut off'
    assert [line.text for line in text.read_text(f"{pasted}\n{other}\n")] == [
        'env: CUDA_VISIBLE_DEVICES="-1"',
        other,
    ]


# Notebooks: whole, pasted among words, cut off, and of any content.


CUINIT = "2024-05-01 10:00:00.1: E cuda_driver.cc:1] failed call to cuInit: CUDA_ERROR_NO_DEVICE: no device\n"


def code(source: list[str], *outputs: dict[str, Any]) -> dict[str, Any]:
    return {"cell_type": "code", "execution_count": 1, "metadata": {}, "source": source, "outputs": outputs}


FAILED = {"output_type": "error", "ename": "ValueError", "traceback": ["\x1b[0;31mValueError\x1b[0m: no"]}
NOTEBOOK = {
    "cells": [
        {"cell_type": "markdown", "metadata": {}, "source": ["# No GPU\n", "It has an RTX 3090."]},
        code(
            ["!pip install tensorflow\n", "import tensorflow as tf\n", "tf.__version__"],
            {"output_type": "stream", "name": "stderr", "text": [CUINIT]},
            {"output_type": "execute_result", "data": {"text/plain": ["'2.16.1'"]}, "metadata": {}},
        ),
        code(["train()"], {"output_type": "display_data", "data": {"image/png": "iVBOR" * 500}}, FAILED),
    ],
    "metadata": {"language_info": {"name": "python", "version": "3.11.8"}, "colab": {}},
    "nbformat": 4,
    "nbformat_minor": 5,
}


def seen(content: str) -> Observations:
    return observe(text.read_text(content), catalogue())


def places(found: Observations, kind: str) -> list[str]:
    return sorted({one.where for one in found.of(kind)})


@pytest.mark.parametrize("indent", [None, 1])
def test_a_notebook_is_read_cell_by_cell(indent: int | None) -> None:
    found = seen(json.dumps(NOTEBOOK, indent=indent))
    known = facts_read(found)
    assert (known.tensorflow, known.python, known.gpu) == ("2.16.1", "3.11.8", "RTX 3090")
    assert places(found, "cuda_error") == ["cell 2, output line 1"]
    assert places(found, "pip_install") == ["cell 2, line 1"]
    assert found.has("hosted_notebook")
    assert "ValueError: no" in {one.text for one in found}


def test_a_notebook_among_words_keeps_the_lines_around_it() -> None:
    pasted = f"My notebook, driver 535.104:\n```\n{json.dumps(NOTEBOOK, indent=1)}\n```\nUbuntu 22.04\n"
    found = seen(pasted)
    assert places(found, "cuda_error") == ["cell 2, output line 1"]
    assert places(found, "os") == [f"line {pasted.count(chr(10))}"]
    assert facts_read(found).driver == "535.104"


@pytest.mark.parametrize("indent", [None, 1])
def test_a_notebook_that_is_cut_off_is_still_read(indent: int | None) -> None:
    content = json.dumps(NOTEBOOK, indent=indent)
    found = seen(content[: content.index("iVBOR")])
    assert facts_read(found).gpu == "RTX 3090"
    assert found.has("cuda_error") and found.has("pip_install")


def test_a_notebook_without_text_is_an_error_that_says_what_to_do() -> None:
    empty = {**NOTEBOOK, "cells": [{"cell_type": "code", "source": [], "outputs": []}], "metadata": {}}
    with pytest.raises(InputError, match="is a notebook without text"):
        text.read_text(json.dumps(empty))


def test_a_log_that_mentions_a_cell_is_not_a_notebook() -> None:
    line = '{"cell_type": "code"} in the log\n'
    assert [one.text for one in text.read_text(line)] == [line.strip()]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
OUTPUT = st.fixed_dictionaries(
    {"output_type": st.sampled_from(["error", "stream", "execute_result"])},
    optional={"text": JSON, "data": JSON, "traceback": JSON, "evalue": JSON},
)
CELL = st.fixed_dictionaries(
    {"cell_type": JSON | st.just("code")},
    optional={"source": JSON, "outputs": JSON | st.lists(OUTPUT, max_size=3)},
)


@pytest.mark.slow
@given(st.lists(CELL | JSON, max_size=4), JSON, st.integers(0, 400))
def test_any_notebook_has_an_answer_or_a_clear_error(cells: list[Any], metadata: Any, cut: int) -> None:
    content = json.dumps({"cells": [*cells, {"cell_type": "raw"}], "metadata": metadata}).encode()
    for data in (content, content[:cut], content[: len(content) - cut]):
        try:
            diagnose_file(io.BytesIO(data), "x.ipynb")
        except InputError as error:
            assert str(error)


def test_the_lines_and_their_places_are_as_many() -> None:
    shown = text.render(json.dumps(NOTEBOOK))
    assert len(shown.lines) == len(shown.places)
    assert not any("iVBOR" in line for line in shown.lines)
