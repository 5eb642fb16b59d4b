"""The page of causes: current, and complete."""

from __future__ import annotations

import re

import pytest

from validator.diagnosis import CauseEntry, causes, diagnose_log
from validator.diagnosis.document import PATH, text


def test_the_page_that_is_checked_in_is_current() -> None:
    hint = "run python -m validator.diagnosis.document"
    assert PATH.read_text(encoding="utf-8") == text(), hint


def section(code: str) -> str:
    found = re.search(rf"^## `{code}`\n(.*?)(?=^## |\Z)", text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("entry", causes(), ids=lambda entry: entry.code)
def test_a_cause_has_its_meaning_signs_remedies_and_sources(entry: CauseEntry) -> None:
    page = section(entry.code)
    assert entry.title in page.replace("\\", "")
    assert all(f"`{sign.kind}`" in page for signature in entry.signatures for sign in signature.all)
    assert all(f"`{sign.kind}`" in page for sign in entry.ruled_out_by)
    assert all(f"(#{code})" in page for code in entry.explains)
    assert page.count("```sh") == sum(bool(remedy.commands) for remedy in entry.remedies)
    assert all(source in page.replace("\\", "") for source in entry.sources)


def test_every_link_leads_to_a_cause() -> None:
    page = text()
    assert set(re.findall(r"\(#(\w+)\)", page)) == {entry.code for entry in causes()}
    assert re.findall(r"^## `(\w+)`$", page, re.MULTILINE) == [entry.code for entry in causes()]


@pytest.mark.parametrize("entry", causes(), ids=lambda entry: entry.code)
def test_lines_that_are_said_to_show_a_cause_do(entry: CauseEntry) -> None:
    block = re.search(r"among others:\n\n```text\n(.*?)\n```", section(entry.code), re.DOTALL)
    for line in block[1].splitlines() if block else ():
        found = diagnose_log(line.removesuffix(" …")).causes
        named = {cause.code for cause in found} | {code for cause in found for code in cause.explains}
        assert entry.code in named, line
