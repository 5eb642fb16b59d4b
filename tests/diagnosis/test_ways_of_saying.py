"""The ways in which people say a thing: the cause that a text names, those that it rules out, the answer."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from validator.diagnosis import diagnose_log

TEXTS = yaml.safe_load(Path(__file__).with_name("ways_of_saying.yaml").read_text(encoding="utf-8"))


def texts(section: str) -> list[tuple[str, str]]:
    return [(code, text) for code, ways in TEXTS[section].items() for text in ways]


@pytest.mark.parametrize(("code", "text"), texts("named"))
def test_the_first_cause_is_the_one_that_the_text_names(code: str, text: str) -> None:
    assert [cause.code for cause in diagnose_log(text).causes][:1] == [code]


@pytest.mark.parametrize(("code", "text"), texts("ruled_out"))
def test_a_text_rules_a_cause_out(code: str, text: str) -> None:
    codes = [cause.code for cause in diagnose_log(text).causes]
    assert codes == [] if code == "every_cause" else code not in codes


@pytest.mark.parametrize("case", TEXTS["remedies"], ids=lambda case: case["text"].splitlines()[0])
def test_the_remedies_fit_what_the_text_says(case: dict[str, Any]) -> None:
    remedies = [one for cause in diagnose_log(case["text"]).causes for one in cause.remedies]
    said = "\n".join(line for one in remedies for line in (one.says, *one.commands))
    assert [words for words in case["says"] if words not in said] == []
    assert [pattern for pattern in case["never"] if re.search(pattern, said)] == []


@pytest.mark.parametrize("case", TEXTS["asked"], ids=lambda case: case["text"].splitlines()[0])
def test_a_question_is_answered(case: dict[str, str]) -> None:
    assert case["says"] in diagnose_log(case["text"]).works


@pytest.mark.parametrize("text", TEXTS["explained"])
def test_a_version_in_an_explanation_is_not_that_of_the_person(text: str) -> None:
    assert "cudnn" not in diagnose_log(text).facts


@pytest.mark.parametrize(("answer", "text"), texts("answers"))
def test_the_answer_where_a_text_shows_no_cause(answer: str, text: str) -> None:
    diagnosis = diagnose_log(text)
    assert (diagnosis.causes, diagnosis.answer) == ((), answer)
