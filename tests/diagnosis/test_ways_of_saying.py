"""The ways in which people say a thing: the cause that a text names, those that it rules out, the answer."""

from __future__ import annotations

from pathlib import Path

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


@pytest.mark.parametrize(("answer", "text"), texts("answers"))
def test_the_answer_where_a_text_shows_no_cause(answer: str, text: str) -> None:
    diagnosis = diagnose_log(text)
    assert (diagnosis.causes, diagnosis.answer) == ((), answer)
