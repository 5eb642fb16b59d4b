"""The diagnosis over real public cases: 45 told as facts and rendered, and more with the text as pasted.

A known miss is listed with its reason; one that is right by now fails its test, so that the list stays true.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from validator.diagnosis import diagnose_log

from .collection import HELD_OUT, PUBLIC
from .rendering import FORMS, render

ALL: Mapping[str, Mapping[str, Any]] = {**PUBLIC, **HELD_OUT}

# The bar: of the 45 public cases so many name the right cause first.
PUBLIC_FLOOR = 43
# Of the other cases so many did when this was last raised. What they say of cases never seen is their score
# when they were first tried: 104 of the first 120, 38 of the 44 after those. Since then messages were
# catalogued with them in sight, so that the present count is no estimate of anything but themselves.
HELD_OUT_FLOOR = 161

# Case to the reason why the diagnosis doesn't name its cause first.
NO_DEVICE_ALONE = "CUDA_ERROR_NO_DEVICE alone doesn't tell what hides the GPU, and a cause is claimed for it"
KNOWN_MISSES: Mapping[str, str] = {
    "116-unknown": NO_DEVICE_ALONE,
    "158-workload_too_small": "told in prose alone",
    "163-unknown": NO_DEVICE_ALONE,
}


def wanted(case: Mapping[str, Any]) -> set[str | None]:
    """The answers that count as right: the confirmed cause, or one that the text allows; None: no cause."""
    cause = None if case["cause"] == "benign_only" else case["cause"]
    return {cause, *case.get("accept", ())}


def text_of(name: str) -> str:
    return render(PUBLIC[name]) if name in PUBLIC else HELD_OUT[name]["text"]


def first_cause(text: str) -> str | None:
    causes = diagnose_log(text).causes
    return causes[0].code if causes else None


def score(cases: Mapping[str, Mapping[str, Any]]) -> int:
    """How many are right; the others are printed, as case, wanted and got."""
    wrong = {}
    for name, case in cases.items():
        got = first_cause(text_of(name))
        if got not in wanted(case):
            wrong[name] = (case["cause"], got)
    for name, (cause, got) in wrong.items():
        print(f"{name:<48} wanted {cause or 'no cause':<40} got {got or 'no cause'}")
    right = len(cases) - len(wrong)
    print(f"{right} of {len(cases)} right first")
    return right


@pytest.mark.parametrize("name", list(ALL))
def test_the_confirmed_cause_comes_first(name: str) -> None:
    case = ALL[name]
    right = first_cause(text_of(name)) in wanted(case)
    if name in KNOWN_MISSES:
        assert not right, f"{name} is right now: take it off the known misses"
    else:
        assert right, f"wanted {wanted(case)}, got {first_cause(text_of(name))}: {case['source']}"


def test_enough_of_the_public_cases_are_right() -> None:
    assert score(PUBLIC) >= PUBLIC_FLOOR


def test_enough_of_the_held_out_cases_are_right() -> None:
    assert score(HELD_OUT) >= HELD_OUT_FLOOR


def test_known_misses_are_cases() -> None:
    assert set(KNOWN_MISSES) <= set(ALL)


@pytest.mark.parametrize("name", [name for name, case in ALL.items() if case["harmless"]])
def test_harmless_lines_are_named(name: str) -> None:
    case = ALL[name]
    assert set(case["harmless"]) <= {line.code for line in diagnose_log(text_of(name)).harmless}


@pytest.mark.parametrize("form", sorted(FORMS))
@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_the_form_in_which_text_is_pasted_does_not_matter(name: str, form: str) -> None:
    assert first_cause(render(PUBLIC[name], form)) == first_cause(render(PUBLIC[name], "typed"))


def test_harmless_lines_together_are_no_cause() -> None:
    texts = [text_of(name) for name, case in ALL.items() if case["cause"] == "benign_only"]
    assert len(texts) >= 10
    assert diagnose_log("\n".join(texts)).causes == ()
