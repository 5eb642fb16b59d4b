"""The renderer of told cases. `tests/diagnosis/test_corpus.py` has the laws about each text."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from . import reader
from .rendering.console import Facts
from .rendering.forms import FORMS, form_of, render
from .rendering.wording import WORDING

TOLD = {entry.name: entry.facts for entry in reader.entries("told") if entry.facts}


def test_every_observed_kind_has_a_wording_and_none_is_idle() -> None:
    observed = {seen["kind"] for facts in TOLD.values() for seen in facts.observed}
    assert observed == set(WORDING)


def test_each_form_is_used() -> None:
    used = {form_of(facts.source) for facts in TOLD.values()}
    assert used == set(FORMS)


def test_the_forms_differ_in_looks_but_not_in_content() -> None:
    def bare(text: str) -> str:
        text = re.sub(r"\x1b\[[0-9;]*m|^> ?|^>$|^2024-05-17T\S+ ?|^```\w*$", "", text, flags=re.MULTILINE)
        return re.sub(r"\s", "", text)

    case = TOLD["told/13-driver_library_mismatch"]
    assert {bare(render(case, form)) for form in FORMS} == {bare(render(case, "typed"))}
    assert len({render(case, form) for form in FORMS}) == len(FORMS)


@pytest.mark.parametrize(
    ("reported", "context", "release"),
    [
        ("2017-07", {}, (1, 2)),
        ("2021-11", {"image": "tensorflow/tensorflow:2.6.0-gpu"}, (2, 6)),
        ("2019-09", {"image": "nvcr.io/nvidia/tensorflow:19.08-py3"}, (1, 14)),
        ("2022-12", {"tensorflow": "2.11"}, (2, 11)),
    ],
)
def test_the_release_is_the_stated_one_or_the_newest_of_that_month(
    reported: str, context: Mapping[str, str], release: tuple[int, int]
) -> None:
    assert Facts("a/b#1", reported, (), context).release == release
