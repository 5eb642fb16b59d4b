"""The renderer of cases: always the same text, of the facts alone, in every form, without the answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from .collection import HELD_OUT, PUBLIC
from .rendering import FORMS, facts_of, form_of, render
from .wording import WORDING


def words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9_.]+", text.lower())


def runs(text: str, length: int) -> set[tuple[str, ...]]:
    found = words(text)
    return {tuple(found[start : start + length]) for start in range(len(found) - length + 1)}


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_the_text_is_of_the_facts_alone(name: str) -> None:
    case = PUBLIC[name]
    hidden = {**case, "cause": "another", "confirmed": "Something else.", "harmless": []}
    assert render(hidden) == render(case) == render(case)


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_the_text_does_not_hold_the_answer(name: str) -> None:
    text = render(PUBLIC[name])
    assert PUBLIC[name]["cause"] not in text
    assert not runs(text, 6) & runs(PUBLIC[name]["confirmed"], 6)


@pytest.mark.parametrize("name", sorted(HELD_OUT))
def test_a_pasted_text_does_not_hold_the_answer(name: str) -> None:
    case = HELD_OUT[name]
    text = case["text"]
    assert case["cause"] is None or case["cause"] not in text
    assert not runs(text, 8) & runs(case["confirmed"], 8)


def test_every_observed_kind_has_a_wording_and_none_is_idle() -> None:
    observed = {seen["kind"] for case in PUBLIC.values() for seen in case["observed"]}
    assert observed == set(WORDING)


def test_each_form_is_used() -> None:
    used = {form_of(case["source"]) for case in PUBLIC.values()}
    assert used == set(FORMS)


def test_the_forms_differ_in_looks_but_not_in_content() -> None:
    def bare(text: str) -> str:
        text = re.sub(r"\x1b\[[0-9;]*m|^> ?|^>$|^2024-05-17T\S+ ?|^```\w*$", "", text, flags=re.MULTILINE)
        return re.sub(r"\s", "", text)

    case = PUBLIC["13-driver_library_mismatch"]
    assert {bare(render(case, form)) for form in FORMS} == {bare(render(case, "typed"))}
    assert len({render(case, form) for form in FORMS}) == len(FORMS)


@pytest.mark.parametrize(
    ("facts", "release"),
    [
        ({"reported": "2017-07", "context": {}}, (1, 2)),
        ({"reported": "2021-11", "context": {"image": "tensorflow/tensorflow:2.6.0-gpu"}}, (2, 6)),
        ({"reported": "2019-09", "context": {"image": "nvcr.io/nvidia/tensorflow:19.08-py3"}}, (1, 14)),
        ({"reported": "2022-12", "context": {"tensorflow": "2.11"}}, (2, 11)),
    ],
)
def test_the_release_is_the_one_told_or_the_newest_of_that_month(
    facts: Mapping[str, Any], release: tuple[int, int]
) -> None:
    assert facts_of({"source": "a/b#1", "observed": [], **facts}).release == release
