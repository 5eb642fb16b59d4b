"""The page's question: why is a GPU not used? The answer is that of `doctor`."""

from __future__ import annotations

import dataclasses
import io
import json
from typing import Any

import click
import pytest

from validator.answers import ask, limits
from validator.diagnosis import diagnose_file
from validator.diagnosis import text as text_module
from validator.reports import diagnosis as rendered
from validator.reports.printable import clean

from ..corpus import reader

FAULT = b"Could not load dynamic library 'libcudart.so.11.0'; dlerror: libcudart.so.11.0: cannot open\n"


def why(
    content: bytes, name: str = "the text", last: bytes = b"", total: int | None = None
) -> dict[str, Any]:
    question = json.dumps({"kind": "why", "name": name})
    found: dict[str, Any] = json.loads(ask(question, content, last, len(content) if total is None else total))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pasted", "captured"])
def test_the_answer_is_that_of_doctor(kind: str) -> None:
    for entry in list(reader.entries(kind))[::60]:
        native = diagnose_file(io.BytesIO(entry.content()), entry.name)
        answer = why(entry.content(), entry.name)
        assert answer["diagnosis"] == clean(dataclasses.asdict(native))
        shown = " ".join(click.unstyle(rendered.text(native)).split())
        words = answer["words"]
        for line in (
            words["headline"],
            *words["headlines"],
            *(way for ways in words["ways"] for way in ways),
        ):
            assert " ".join(line.split()) in shown


@pytest.mark.slow
def test_a_long_text_is_read_at_both_ends() -> None:
    for content in (FAULT + b"nothing\n" * (5 << 18), b"nothing\n" * (5 << 18) + FAULT):
        diagnosis = why(content, "big.log")["diagnosis"]
        assert diagnosis["read"] == "the first and the last 4 MiB of 10 MiB"
        assert diagnosis["answer"] == "cause_found"
    inside = b"nothing\n" * (5 << 17) + FAULT + b"nothing\n" * (5 << 17)
    assert why(inside)["diagnosis"]["answer"] == "not_shown"


def test_a_log_of_a_few_mib_is_read_whole() -> None:
    content = b"nothing\n" * (1 << 18) + FAULT + b"nothing\n" * (1 << 18)
    diagnosis = why(content, "big.log")["diagnosis"]
    assert diagnosis["read"] == "524,289 lines" and diagnosis["answer"] == "cause_found"


def test_of_so_many_bytes_in_few_lines_only_the_ends_are_read() -> None:
    content = FAULT + (b"nothing " * 100 + b"\n") * 5000
    diagnosis = why(content, "big.log")["diagnosis"]
    assert diagnosis["read"] == "the first and the last 1 MiB of 4 MiB"
    assert diagnosis["answer"] == "cause_found"


def test_what_the_page_leaves_out_of_a_long_text_is_not_missed() -> None:
    half = b"nothing\n" * (1 << 19)
    diagnosis = why(half, "big.log", half, 50 << 20)["diagnosis"]
    assert diagnosis["read"] == "the first and the last 4 MiB of 50 MiB"


def test_a_long_notebook_is_read_whole() -> None:
    picture = {"output_type": "display_data", "data": {"image/png": "A" * (3 << 20)}}
    fault = {
        "output_type": "stream",
        "text": ["ImportError: libcudart.so.11.0: cannot open shared object file"],
    }
    cell = {"cell_type": "code", "source": ["import tensorflow"], "outputs": [picture, fault]}
    notebook = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    diagnosis = why(json.dumps(notebook).encode(), "train.ipynb")["diagnosis"]
    assert diagnosis["read"].endswith("of a notebook")
    assert diagnosis["answer"] == "cause_found"


def test_the_limits_are_those_of_doctor() -> None:
    assert json.loads(limits()) == {"whole": text_module.LIMIT, "each": text_module.LIMIT // 2}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"  \n", "is empty"),
        (b"\x1f\x8b\x08", "compressed (gzip)"),
        (b"a\0\2b" * 9000, "is binary"),
        (b'{"format": 1, "probe": 2}', "a report"),
    ],
)
def test_what_is_not_a_log_is_refused_as_doctor_does(content: bytes, words: str) -> None:
    error = why(content)["error"]
    assert words in error["message"]
    assert error["hint"] and "--report" not in error["hint"]
    assert error["field"] == "text"
