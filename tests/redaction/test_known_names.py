"""Known names are found as whole words, as a pattern with an alternative for each name would find them."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from validator.redaction.redact import KnownNames

LETTERS = st.sampled_from("abAB1_-. \nüß")
NAME = st.text(LETTERS, min_size=3, max_size=6).filter(lambda name: name.strip() == name)
NAMES = st.lists(NAME, max_size=5)


@given(names=NAMES, text=st.text(LETTERS, max_size=60))
def test_a_pattern_would_find_the_same(names: list[str], text: str) -> None:
    either = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    pattern = re.compile(rf"(?i)(?<![A-Za-z0-9])(?:{either})(?![A-Za-z0-9])")
    expected = pattern.sub("<name>", text) if names else text
    assert KnownNames(names).replaced(text, "<name>") == expected


def test_the_longer_of_two_names_counts() -> None:
    names = KnownNames(["anna", "anna-maria", "maria"])
    assert names.replaced("Anna-Maria, anna-mari, ANNAMARIA", "<name>") == "<name>, <name>-mari, ANNAMARIA"


def test_letters_whose_lower_case_is_longer_move_nothing() -> None:
    assert KnownNames(["anna"]).replaced("\u0130 anna \u0130", "<name>") == "\u0130 <name> \u0130"
