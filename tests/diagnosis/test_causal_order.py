"""The causes that are the answer, and their order."""

from __future__ import annotations

from types import MappingProxyType

import pytest

from validator.conditions import AllOf, AnyOf, Comparison, NoneOf, Wanted
from validator.diagnosis import diagnose
from validator.diagnosis.catalogue import CauseEntry, RemedyEntry, Sign
from validator.diagnosis.diagnose import causes_in_order
from validator.diagnosis.observations import Observation, Observations
from validator.diagnosis.remedies import Reader
from validator.model.diagnosis import Cause

ANYBODY = Reader(frozenset())


def seen(kind: str, **values: str) -> Comparison:
    return Comparison(kind, {name: (Wanted(value),) for name, value in values.items()})


def entry(
    code: str, *signs: Sign, explains: tuple[str, ...] = (), out: tuple[Comparison, ...] = ()
) -> CauseEntry:
    remedies = (
        RemedyEntry("pip", "Install {tensorflow}.", ("pip install tensorflow=={tensorflow} {other}",)),
        RemedyEntry("docker", "Start anew.", ()),
    )
    return CauseEntry(code, f"{code}.", "It is so.", signs, AnyOf(out), explains, remedies, ("a source",))


def shown(kind: str, strength: str = "certain", title: str = "", **values: str) -> Sign:
    return Sign(seen(kind, **values), strength, title)


def observed(*kinds: str, **values: str) -> Observations:
    found = Observations()
    for number, kind in enumerate(kinds, start=1):
        found.add(Observation(kind, MappingProxyType(values), f"line about {kind}", f"line {number}"))
    return found


@pytest.fixture
def causes(monkeypatch: pytest.MonkeyPatch) -> list[CauseEntry]:
    known: list[CauseEntry] = []
    monkeypatch.setattr(diagnose, "causes", lambda: tuple(known))
    return known


def codes(found: tuple[Cause, ...]) -> list[str]:
    return [cause.code for cause in found]


def test_the_causal_chain_decides_the_order_not_the_lines(causes: list[CauseEntry]) -> None:
    causes += [entry("driver", shown("a")), entry("library", shown("b"))]
    assert codes(causes_in_order(observed("b", "a"), {}, ANYBODY)) == ["driver", "library"]


def test_a_consequence_is_named_with_its_cause(causes: list[CauseEntry]) -> None:
    causes += [
        entry("driver", shown("a"), explains=("library",)),
        entry("library", shown("b"), explains=("step",)),
    ]
    causes += [entry("step", shown("c"))]
    found = causes_in_order(observed("a", "b", "c"), {}, ANYBODY)
    assert codes(found) == ["driver"]
    assert set(found[0].explains) == {"library", "step"}


def test_a_cause_does_not_explain_a_surer_one(causes: list[CauseEntry]) -> None:
    causes += [entry("driver", shown("a", "likely"), explains=("library",)), entry("library", shown("b"))]
    assert codes(causes_in_order(observed("a", "b"), {}, ANYBODY)) == ["library", "driver"]


def test_a_possible_cause_is_named_only_if_there_is_nothing_better(causes: list[CauseEntry]) -> None:
    causes += [entry("guess", shown("a", "possible")), entry("library", shown("b", "likely"))]
    assert codes(causes_in_order(observed("a", "b"), {}, ANYBODY)) == ["library"]
    assert codes(causes_in_order(observed("a"), {}, ANYBODY)) == ["guess"]


def test_a_possible_sign_is_not_evidence_next_to_a_likely_one(causes: list[CauseEntry]) -> None:
    causes += [entry("library", shown("a", "possible"), shown("b", "likely"))]
    found = causes_in_order(observed("a", "b"), {}, ANYBODY)[0]
    assert [line.text for line in found.evidence] == ["line about b"]
    assert [line.text for line in causes_in_order(observed("a"), {}, ANYBODY)[0].evidence] == ["line about a"]


def test_observations_can_rule_out_a_cause_or_a_sign(causes: list[CauseEntry]) -> None:
    causes += [entry("driver", shown("a"), out=(seen("works"),))]
    causes += [entry("container", Sign(AllOf((seen("a"), NoneOf((seen("gpus"),))))))]
    assert codes(causes_in_order(observed("a"), {}, ANYBODY)) == ["driver", "container"]
    assert codes(causes_in_order(observed("a", "works"), {}, ANYBODY)) == ["container"]
    assert codes(causes_in_order(observed("a", "gpus"), {}, ANYBODY)) == ["driver"]


def test_all_parts_of_a_sign_are_needed_with_their_values(causes: list[CauseEntry]) -> None:
    causes += [entry("both", Sign(AllOf((seen("a"), seen("b", code="100")))))]
    assert codes(causes_in_order(observed("a"), {}, ANYBODY)) == []
    assert codes(causes_in_order(observed("a", "b", code="101"), {}, ANYBODY)) == []
    assert codes(causes_in_order(observed("a", "b", code="100"), {}, ANYBODY)) == ["both"]


def test_titles_and_remedies_contain_observed_values(causes: list[CauseEntry]) -> None:
    causes += [entry("library", shown("b", title="{library} of {tensorflow} is not there."))]
    found = causes_in_order(
        observed("b", library="libcudnn.so.9"), {"tensorflow": "2.18.0"}, Reader(frozenset({"docker"}))
    )[0]
    assert found.title == "libcudnn.so.9 of 2.18.0 is not there."
    assert [remedy.way for remedy in found.remedies] == ["docker", "pip"]
    assert found.remedies[1].commands == ("pip install tensorflow==2.18.0 OTHER",)
    assert [line.text for line in found.evidence] == ["line about b"]


def test_a_title_with_unknown_values_is_not_used(causes: list[CauseEntry]) -> None:
    causes += [entry("library", shown("b", title="{library} is not there."))]
    assert causes_in_order(observed("b"), {}, ANYBODY)[0].title == "library."


def test_the_title_comes_from_the_next_sign_that_is_as_sure(causes: list[CauseEntry]) -> None:
    named, number = shown("b", title="{library} is not there."), shown("b", title="Library {number} is not.")
    causes += [entry("library", shown("b", "likely", title="Perhaps."), named, number)]
    assert causes_in_order(observed("b", number="3"), {}, ANYBODY)[0].title == "Library 3 is not."
    assert causes_in_order(observed("b", number="3", library="x"), {}, ANYBODY)[0].title == "x is not there."
    assert causes_in_order(observed("b"), {}, ANYBODY)[0].title == "library."


def test_the_surest_sign_gives_the_title_and_all_give_evidence(causes: list[CauseEntry]) -> None:
    causes += [entry("library", shown("a", "likely", title="Perhaps."), shown("b", title="Surely."))]
    found = causes_in_order(observed("a", "b"), {}, ANYBODY)[0]
    assert found.title == "Surely."
    assert {line.text for line in found.evidence} == {"line about a", "line about b"}
