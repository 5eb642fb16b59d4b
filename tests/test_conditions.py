"""The language of conditions: its laws, what it reads, and what it rejects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validator.conditions import AnyOf, Condition, ConditionError, Language, Named

FACTS = {"release": "version", "driver": "version", "system": "name"}
KINDS = ("seen", "printed", "failed", *FACTS)
NAMED = {
    "broken": {"any": ["failed", {"printed": {"code": "7"}}]},
    "modern": {"all": [{"release": ">=2.16"}, {"none": ["broken"]}]},
}
LANGUAGE = Language(FACTS, NAMED, KINDS)
parse = LANGUAGE.parse


@dataclass(frozen=True)
class Fact:
    """Something that was observed, or is known."""

    values: Mapping[str, str]


World = Mapping[str, Sequence[Fact]]


def finder(world: World) -> Callable[[str], Sequence[Fact] | None]:
    """Return how kinds are found in a world. A fact that is not in it is not known."""
    return lambda kind: world.get(kind, None if kind in FACTS else ())


def truth(written: Any, world: World) -> bool | None:
    return parse(written).evaluate(finder(world)).truth


def world(**kinds: Mapping[str, str] | list[Mapping[str, str]]) -> World:
    return {
        kind: [Fact(values) for values in (given if isinstance(given, list) else [given])]
        for kind, given in kinds.items()
    }


versions = st.sampled_from(["2.9", "2.15.1", "2.16.1", "2.21.0", "unreadable"])
ranges = st.sampled_from([">=2.16", "<2.16", ">=2.9,<2.16", "==2.16.1", "!=2.21.0", "2.21.0"])
codes = st.sampled_from(["7", "8"])
names = st.sampled_from(["linux", "windows"])
comparisons = st.one_of(
    st.sampled_from(["seen", "printed", "failed", "release", "broken", "modern"]),
    st.builds(lambda code: {"printed": {"code": code}}, st.one_of(codes, st.lists(codes, min_size=1))),
    st.builds(lambda wanted: {"release": wanted}, ranges),
    st.builds(lambda name: {"system": name}, names),
)
conditions = st.recursive(
    comparisons,
    lambda inner: st.builds(
        lambda name, parts: {name: parts},
        st.sampled_from(["all", "any", "none"]),
        st.lists(inner, max_size=3),
    ),
    max_leaves=8,
)
observed = st.lists(st.builds(lambda code: Fact({"code": code}), codes), max_size=2)
worlds = st.fixed_dictionaries(
    {},
    optional={
        "seen": observed,
        "printed": observed,
        "failed": observed,
        "release": st.builds(lambda version: [Fact({"version": version})], versions),
        "system": st.builds(lambda name: [Fact({"name": name})], names),
    },
)


@given(st.lists(conditions, max_size=3), worlds)
def test_none_is_not_any(parts: list[Any], known: World) -> None:
    any_, none = truth({"any": parts}, known), truth({"none": parts}, known)
    assert none is (None if any_ is None else not any_)


@given(st.lists(conditions, max_size=3), worlds)
def test_all_is_none_of_the_opposites(parts: list[Any], known: World) -> None:
    opposites = [{"none": [part]} for part in parts]
    assert truth({"all": parts}, known) is truth({"none": opposites}, known)


@given(conditions, conditions, conditions, worlds)
def test_parts_of_one_mapping_must_all_hold(a: Any, b: Any, c: Any, known: World) -> None:
    together = {"all": [a], "any": [b], "none": [c]}
    apart = {"all": [a, {"any": [b]}, {"none": [c]}]}
    assert parse(together).evaluate(finder(known)) == parse(apart).evaluate(finder(known))


@given(st.sampled_from(["all", "any"]), st.lists(conditions, max_size=2), conditions, worlds)
def test_nesting_and_order_do_not_matter(name: str, inner: list[Any], last: Any, known: World) -> None:
    assert truth({name: [{name: inner}, last]}, known) is truth({name: [last, *inner]}, known)


@given(conditions, worlds)
def test_one_part_is_the_same_as_the_condition(written: Any, known: World) -> None:
    expected = parse(written).evaluate(finder(known))
    assert parse({"all": [written]}).evaluate(finder(known)) == expected
    assert parse({"any": [written]}).evaluate(finder(known)) == expected


@given(st.sampled_from(sorted(NAMED)), worlds)
def test_a_name_is_the_same_as_its_condition(name: str, known: World) -> None:
    assert parse(name).evaluate(finder(known)) == parse(NAMED[name]).evaluate(finder(known))


def without(written: Any, kind: str) -> bool:
    """Return whether a condition asks nowhere just if a kind is known."""
    if isinstance(written, dict):
        return all(without(value, kind) for values in written.values() for value in _listed(values))
    return bool(written != kind)


def _listed(values: Any) -> list[Any]:
    return values if isinstance(values, list) else []


@given(conditions.filter(lambda written: without(written, "release")), worlds, versions, names)
def test_what_is_decided_stays_decided_when_more_is_known(
    written: Any, known: World, version: str, name: str
) -> None:
    before = truth(written, known)
    facts = {"release": [Fact({"version": version})], "system": [Fact({"name": name})]}
    after = truth(written, {**facts, **known})
    assert before is None or after is before


@given(conditions, worlds)
def test_evidence_is_of_the_world_and_only_of_true_conditions(written: Any, known: World) -> None:
    result = parse(written).evaluate(finder(known))
    facts = [fact for found in known.values() for fact in found]
    assert all(fact in facts for fact in result.evidence)
    assert not result.evidence or result.truth is True


@given(st.lists(comparisons, min_size=1, max_size=3), worlds)
def test_what_is_true_has_evidence(parts: list[Any], known: World) -> None:
    plain = [part for part in parts if part != "modern"]
    result = parse({"any": plain}).evaluate(finder(known))
    assert bool(result.evidence) is (result.truth is True)


@given(conditions, worlds)
def test_a_true_condition_holds_and_may_hold(written: Any, known: World) -> None:
    condition, find = parse(written), finder(known)
    answer = condition.evaluate(find).truth
    assert condition.holds(find) is (answer is True)
    assert condition.may_hold(find) or answer is not True
    assert not condition.may_hold(find) or answer is not False


@pytest.mark.parametrize(
    ("written", "known", "expected"),
    [
        ("seen", {}, False),
        ("seen", world(seen={}), True),
        ("release", {}, False),
        ("release", world(release={"version": "2.9"}), True),
        ({"release": ">=2.16"}, {}, None),
        ({"release": ">=2.16"}, world(release={"version": "2.18.0-3-g85c"}), True),
        ({"release": ">=2.16"}, world(release={"version": "2.9"}), False),
        ({"release": ">=2.16"}, world(release={"version": "nightly"}), None),
        ({"release": ">=2.16"}, world(release={}), None),
        ({"release": [">=2.16", "<2.9"]}, world(release={"version": "2.8.4"}), True),
        ({"release": [">=2.16", "2.9"]}, world(release={"version": "2.9"}), True),
        ({"release": "2.9"}, world(release={"version": "2.9.0"}), False),
        ({"release": "==2.9"}, world(release={"version": "2.9.3"}), True),
        ({"release": "==2.16.1"}, world(release={"version": "2.16"}), False),
        ({"release": "<2.16"}, world(release=[{"version": "2.18"}, {"version": "2.15"}]), True),
        ({"release": ">=2.22.0rc0"}, world(release={"version": "2.21.0"}), False),
        ({"release": ">=2.22.0rc0"}, world(release={"version": "2.22.0rc1"}), True),
        ({"driver": ">=535.183"}, world(driver={"version": "535"}), True),
        ({"driver": "<550"}, world(driver={"version": "535.183.01"}), True),
        ({"system": "linux"}, {}, None),
        ({"system": ["linux", "windows"]}, world(system={"name": "windows"}), True),
        ({"printed": {"code": "7"}}, {}, False),
        ({"printed": {"code": "7"}}, world(printed={}), False),
        ({"printed": {"code": "7", "name": "a"}}, world(printed=[{"code": "7"}, {"name": "a"}]), False),
        ({"printed": {"code": ["8", "7"], "name": "a"}}, world(printed={"code": "7", "name": "a"}), True),
        ({"printed": {"wheel": ">=1,<2"}}, world(printed={"wheel": "1.26.4"}), True),
        ({"all": []}, {}, True),
        ({"any": []}, {}, False),
        ({"none": [{"release": "<2.16"}]}, {}, None),
        ({"all": ["seen", {"release": "<2.16"}]}, {}, False),
        ({"any": ["seen", {"release": "<2.16"}]}, world(seen={}), True),
    ],
)
def test_a_condition_in_a_world(written: Any, known: World, expected: bool | None) -> None:
    assert truth(written, known) is expected


def test_the_evidence_is_what_made_it_true_in_order() -> None:
    known = world(printed=[{"code": "7"}, {"code": "8"}, {"code": "7", "name": "a"}], seen={"text": "x"})
    written = {"all": ["seen", {"any": [{"printed": {"code": "7"}}, "failed"]}], "none": ["failed"]}
    assert parse(written).evaluate(finder(known)).evidence == (
        Fact({"text": "x"}),
        Fact({"code": "7"}),
        Fact({"code": "7", "name": "a"}),
    )


@pytest.mark.parametrize(
    ("written", "may_hold"),
    [
        ({"release": ">=2.16"}, True),
        ({"release": "==2.16.1"}, False),
        ({"any": [{"release": "=2.9"}]}, False),
    ],
)
def test_what_is_not_known_may_hold_but_is_not_one_version(written: Any, may_hold: bool) -> None:
    assert parse(written).may_hold(finder({})) is may_hold
    assert not parse(written).holds(finder({}))


def test_the_comparisons_of_a_condition_are_listed() -> None:
    condition: Condition = parse({"all": ["modern", "seen"], "none": ["printed"]})
    assert [one.kind for one in condition.comparisons()] == [
        "release",
        "failed",
        "printed",
        "seen",
        "printed",
    ]


def test_a_name_is_kept() -> None:
    condition = LANGUAGE.any_of(["broken", "seen"])
    assert isinstance(condition, AnyOf)
    assert isinstance(condition.conditions[0], Named)
    assert condition.conditions[0].name == "broken"


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (7, r"^signs\[0\]: expected a name or a mapping, not 7$"),
        ({}, r"expected a name or a mapping, not \{\}"),
        ("sean", r"`sean` is not a kind or a named condition"),
        ({"sean": {"code": "7"}}, r"`sean` is not a kind or a named condition"),
        ({True: "x"}, r"`True` is not a kind"),
        ({"seen": {}, "failed": {}}, r"several kinds \(seen, failed\); put them under `all`"),
        ({"any": ["seen"], "failed": {}}, r"several kinds \(any, failed\)"),
        ({"any": "seen"}, r"^signs\[0\]\.any: expected a list of conditions, not 'seen'$"),
        ({"all": ["seen", {"none": [3]}]}, r"^signs\[0\]\.all\[1\]\.none\[0\]: "),
        ({"seen": "text"}, r"`seen` has no main value; write seen: \{name: value\}"),
        ({"broken": "7"}, r"`broken` is a named condition, which has no values"),
        ({"printed": {"code": False}}, r"^signs\[0\]\.printed\.code: False is not text; put it in quotes$"),
        ({"release": 2.16}, r"2\.16 is not text; put it in quotes"),
        ({"release": ">=new"}, r"^signs\[0\]\.release\.version: it is not a version"),
        ({"release": "=>2.16"}, r"does not begin with one of"),
        ({"driver": ">=12.2"}, r"is not a driver release"),
    ],
)
def test_a_condition_that_cannot_be_read_is_rejected(written: Any, message: str) -> None:
    with pytest.raises(ConditionError, match=message):
        parse(written, "signs[0]")


def test_a_single_comparison_is_read_with_the_default_main_value() -> None:
    language = Language({"release": "version"}, {"new": {"release": ">=2"}}, default_main="code")
    assert language.comparison({"memory": "7"}) == language.comparison({"memory": {"code": "7"}})
    assert set(language.comparison({"release": "<2"}).values) == {"version"}
    for written in ("new", {"any": ["memory"]}):
        with pytest.raises(ConditionError, match=r"^row: expected a kind with its values, not "):
            language.comparison(written, "row")


def test_a_condition_that_is_defined_by_itself_is_rejected() -> None:
    language = Language({}, {"a": {"any": ["b"]}, "b": {"none": ["a"]}})
    with pytest.raises(ConditionError, match=r"conditions\.b\.none\[0\]: the condition `a` refers to itself"):
        language.parse("a")
