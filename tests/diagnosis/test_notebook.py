"""Notebooks: whole, pasted among words, cut off, and of any content."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validator.diagnosis import diagnose_file, notebook, text
from validator.diagnosis.messages import catalogue
from validator.diagnosis.observations import Observations
from validator.diagnosis.read_log import observe
from validator.errors import InputError

from .facts_read import facts_read

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


@given(st.lists(CELL | JSON, max_size=4), JSON, st.integers(0, 400))
def test_any_notebook_has_an_answer_or_a_clear_error(cells: list[Any], metadata: Any, cut: int) -> None:
    content = json.dumps({"cells": [*cells, {"cell_type": "raw"}], "metadata": metadata}).encode()
    for data in (content, content[:cut], content[: len(content) - cut]):
        try:
            diagnose_file(io.BytesIO(data), "x.ipynb")
        except InputError as error:
            assert str(error)


def test_the_lines_and_their_places_are_as_many() -> None:
    shown = notebook.render(json.dumps(NOTEBOOK))
    assert len(shown.lines) == len(shown.places)
    assert not any("iVBOR" in line for line in shown.lines)
