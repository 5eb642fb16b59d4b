"""The list of causes fits the catalogue of messages, the fields of the report, its page, and itself."""

from __future__ import annotations

import functools
import inspect
import itertools
import re
import string
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from docs import causes as document
from validator.compat.known_issues import by_kind
from validator.conditions import AllOf, AnyOf, Comparison, Condition, ConditionError, Named, NoneOf
from validator.diagnosis import causes, commands, compile, conclusions, diagnose_log
from validator.diagnosis.catalogue import (
    DATA,
    FACTS,
    SAID,
    STRENGTHS,
    UNRECOGNIZED,
    CauseEntry,
    answers,
    catalogue,
    language,
    law,
)
from validator.diagnosis.combination import FAILS
from validator.diagnosis.observe import field_rows, problem_rows
from validator.diagnosis.remedies import filled_in
from validator.model.diagnosis import WAYS
from validator.versions import leading_numbers

from .. import laws

#: Values that are facts of the whole text, whatever the sign (`diagnose._facts`).
FACTS_IN_TITLES = {"tensorflow", "python", "keras", "cuda", "cudnn", "driver", "gpu", "os", "image"}
#: Kinds of every check in a report that passed, and that did not.
CHECKS = ("check_passed", "check_not_passed")
#: The end of a line that is wholly part of a value.
WHOLE = 1_000_000


def names(template: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(template) if name}


@functools.cache
def derived() -> set[str]:
    """Return the kinds that the rules of conclusions.py add."""
    return set(re.findall(r'"([a-z0-9_]+)"', inspect.getsource(conclusions)))


@functools.cache
def values_of(kind: str) -> list[set[str]]:
    """Return the values that a kind has, for each way in which it is seen."""
    rows = [
        set(message.values) | set(re.findall(r"\(\?P<(\w+)>", message.pattern))
        for message in catalogue().messages
        if message.kind == kind
    ]
    rows += [
        set(row.values) | set(re.findall(r"\(\?P<(\w+)>", row.pattern)) | ({row.key} - {""})
        for row in field_rows()
        if row.kind == kind
    ]
    rows += [
        set(row.values) | set(row.fields) | {"problem", "severity", "sentence"}
        for row in problem_rows()
        if row.kind == kind
    ]
    rows += [set(names) for name, names in commands.KINDS.items() if name == kind]
    rows += [{"rule", "mode", "fact", "text", "source", "sentence"}] if kind == FAILS else []
    rows += [{"check", "outcome"}] if kind in CHECKS else []
    fact = by_kind().get(kind)
    if fact is not None:
        rows.append({"holds", "sentence", *(one.kind for one in fact.when.comparisons())})
    return rows


def it_is_whole(entry: CauseEntry) -> None:
    assert re.fullmatch(r"[a-z0-9_]+", entry.code)
    assert entry.title.endswith(".") and entry.means.endswith(".")
    assert entry.signs and entry.remedies and entry.sources
    assert {remedy.way for remedy in entry.remedies} <= set(WAYS)
    assert any(remedy.commands for remedy in entry.remedies)
    assert all(remedy.says.endswith((".", ")")) for remedy in entry.remedies)
    assert all(sign.strength in STRENGTHS for sign in entry.signs)
    assert all(
        source.startswith(("https://", "NVIDIA", "tensorflow", "Tensor")) or " " in source
        for source in entry.sources
    )


@functools.cache
def visible() -> set[str]:
    """Return every kind of observation that there is."""
    messages = {message.kind for message in catalogue().messages}
    rows = {row.kind for row in field_rows()} | {row.kind for row in problem_rows()}
    return messages | rows | set(commands.KINDS) | derived() | {FAILS, *CHECKS} | set(by_kind())


def conditions_of(entry: CauseEntry) -> list[Condition]:
    """Return every condition of a cause."""
    return [
        *(sign.when for sign in entry.signs),
        entry.ruled_out_by,
        *(remedy.when for remedy in entry.remedies),
    ]


def positive(condition: Condition) -> Iterator[Comparison]:
    """Yield the comparisons that can be evidence for a condition."""
    if isinstance(condition, Comparison):
        yield condition
    elif isinstance(condition, Named):
        yield from positive(condition.condition)
    elif isinstance(condition, AllOf | AnyOf):
        for part in condition.conditions:
            yield from positive(part)


def every_sign_has_evidence(entry: CauseEntry) -> None:
    assert all(any(positive(sign.when)) for sign in entry.signs)


def every_kind_in_its_conditions_can_be_seen(entry: CauseEntry) -> None:
    asked = {one.kind for condition in conditions_of(entry) for one in condition.comparisons()}
    assert asked <= visible() | set(FACTS)


def every_value_that_a_condition_or_a_title_names_is_one_that_the_kind_has(entry: CauseEntry) -> None:
    for condition in conditions_of(entry):
        for one in condition.comparisons():
            rows = [*values_of(one.kind), *([{FACTS[one.kind]}] if one.kind in FACTS else [])]
            assert one.kind in derived() or any(set(one.values) <= row for row in rows), f"{one}: {rows}"
    for sign in entry.signs:
        kinds = {one.kind for one in positive(sign.when)}
        if not kinds & derived():
            available = FACTS_IN_TITLES.union(*(row for kind in kinds for row in values_of(kind)))
            assert names(sign.title) <= available, sign.title


def a_sign_that_stands_twice_has_another_title(entry: CauseEntry) -> None:
    # Where the values of the first title are not known; without a title it would say nothing new.
    for position, sign in enumerate(entry.signs):
        before = entry.signs[:position]
        again = any((one.when, one.strength) == (sign.when, sign.strength) for one in before)
        assert not again or (sign.title and sign.title not in {one.title for one in before}), sign


def signs_that_differ_in_one_part_are_one(entry: CauseEntry) -> None:
    """Two signs with the same strength and title must differ in more than one part.

    What people say is a sign of every cause that has words for it, which no file writes.
    """
    written = [sign for sign in entry.signs if SAID not in {one.kind for one in sign.when.comparisons()}]
    for one, other in itertools.combinations(written, 2):
        if (one.strength, one.title) == (other.strength, other.title):
            assert len(parts(one.when) ^ parts(other.when)) != 2, (one, other)


def parts(condition: Condition) -> set[str]:
    """Return the parts that must all hold, as text."""
    if isinstance(condition, AllOf):
        return set().union(*(parts(part) for part in condition.conditions))
    return {repr(condition)}


def only_the_system_has_names_and_other_facts_have_ranges(entry: CauseEntry) -> None:
    for condition in conditions_of(entry):
        for one in condition.comparisons():
            texts = {wanted.text for wanted in one.values.get(FACTS.get(one.kind, ""), ())}
            if one.kind == "system":
                assert texts <= {"linux", "windows", "macos"}
            elif one.kind in ("tensorflow", "capability"):
                assert all(leading_numbers(text.lstrip("<>=!")) for text in texts)


@functools.cache
def page() -> str:
    return document.text()


@functools.cache
def signs() -> str:
    return document.signs()


def section(code: str) -> str:
    """Return what the page of causes says about one of them."""
    found = re.search(rf"^## `{code}`\n(.*?)(?=^## |\Z)", page(), re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def section_of_the_site(code: str) -> str:
    (said,) = re.findall(rf"^## `{code}`\n(.*?)(?=^## )", signs(), re.MULTILINE | re.DOTALL)
    assert isinstance(said, str)
    return said


def written(condition: Condition) -> Iterator[str]:
    """Yield the kinds and the named conditions that are written in a condition."""
    if isinstance(condition, Comparison):
        yield condition.kind.removeprefix("fact:")
    elif isinstance(condition, Named):
        yield condition.name
    else:
        assert isinstance(condition, AllOf | AnyOf | NoneOf)
        for part in condition.conditions:
            yield from written(part)


def its_section_has_its_meaning_and_remedies(entry: CauseEntry) -> None:
    said = section(entry.code)
    assert entry.title in said.replace("\\", "")
    common = [remedy for remedy in entry.remedies if remedy.way in ("any", "host", "pip", "docker")]
    shown = entry.remedies if len(entry.remedies) <= 2 else common[:2]
    assert len(re.findall(r"^- \*", said, re.MULTILINE)) == len(shown) > 0
    for remedy in shown:
        assert all(filled_in(command, {}) in said for command in remedy.commands)


def the_site_has_its_signs_consequences_remedies_and_sources(entry: CauseEntry) -> None:
    said = section_of_the_site(entry.code)
    for condition in (*(sign.when for sign in entry.signs), entry.ruled_out_by):
        assert all(f"`{name}`" in said for name in written(condition))
    assert all(f"(#{code})" in said for code in entry.explains)
    for remedy in entry.remedies:
        assert all(filled_in(command, {}) in said for command in remedy.commands)
    assert all(source in said.replace("\\", "") for source in entry.sources)


def lines_that_are_said_to_show_it_do(entry: CauseEntry) -> None:
    for said in (section(entry.code), section_of_the_site(entry.code)):
        block = re.search(r"^```text\n(.*?)\n```", said, re.DOTALL | re.MULTILINE)
        for line in block[1].splitlines() if block else ():
            found = diagnose_log(line.removesuffix(" …")).causes
            named = {cause.code for cause in found} | {code for cause in found for code in cause.explains}
            assert entry.code in named, line


LAWS = (
    it_is_whole,
    every_sign_has_evidence,
    every_kind_in_its_conditions_can_be_seen,
    every_value_that_a_condition_or_a_title_names_is_one_that_the_kind_has,
    a_sign_that_stands_twice_has_another_title,
    signs_that_differ_in_one_part_are_one,
    only_the_system_has_names_and_other_facts_have_ranges,
    its_section_has_its_meaning_and_remedies,
    the_site_has_its_signs_consequences_remedies_and_sources,
    lines_that_are_said_to_show_it_do,
)


@pytest.mark.parametrize("entry", causes(), ids=lambda entry: entry.code)
def test_a_cause(entry: CauseEntry) -> None:
    laws.check(LAWS, entry)


def test_the_committed_page_of_causes_is_current() -> None:
    hint = "run scripts/update-docs"
    assert document.PATH.read_text(encoding="utf-8") == page(), hint


def test_the_page_has_the_causes_in_the_order_of_the_chain() -> None:
    codes = [entry.code for entry in causes()]
    assert re.findall(r"^## `(\w+)`$", page(), re.MULTILINE) == codes
    assert set(re.findall(r"\(#(\w+)\)", signs())) <= {*codes, "named-conditions"}


def test_codes_are_unique() -> None:
    codes = [entry.code for entry in causes()]
    assert len(set(codes)) == len(codes)


def test_no_cause_explains_itself_through_others() -> None:
    explains = {entry.code: entry.explains for entry in causes()}
    assert all(code in explains for codes in explains.values() for code in codes)

    def reaches(code: str, target: str, path: tuple[str, ...] = ()) -> bool:
        return any(
            other == target or (other not in path and reaches(other, target, (*path, other)))
            for other in explains[code]
        )

    assert [code for code in explains if reaches(code, code)] == []


def test_an_unrecognized_line_is_not_a_sign() -> None:
    assert UNRECOGNIZED not in {
        one.kind for entry in causes() for sign in entry.signs for one in positive(sign.when)
    }


def test_named_conditions_are_not_kinds_and_are_used() -> None:
    named = set(compile.conditions())
    assert named
    assert not named & (visible() | set(FACTS))
    conditions = [condition for entry in causes() for condition in conditions_of(entry)]
    conditions += [rule.ruled_out_by for rule in law()]
    conditions += [entry.when for entries in answers().values() for entry in entries]
    # `remedies.Reader` asks for it.
    used = {"old_docker", *(name for condition in conditions for name in written(condition))}
    for condition in map(language().parse, named & used):
        assert isinstance(condition, Named)
        used |= set(written(condition.condition))
    assert named <= used


def test_a_list_of_conditions_that_stands_twice_has_a_name() -> None:
    """Lists of three and more: a shorter one is as clear as its name."""
    lists = [
        repr(sorted(map(repr, one.conditions)))
        for entry in causes()
        for condition in conditions_of(entry)
        for one in nested(condition)
        if len(one.conditions) > 2
    ]
    assert [one for one in set(lists) if lists.count(one) > 1] == []


def nested(condition: Condition) -> Iterator[AnyOf | NoneOf]:
    """Yield the lists of alternatives that are written in a condition."""
    if isinstance(condition, AnyOf | NoneOf):
        yield condition
    if isinstance(condition, AllOf | AnyOf | NoneOf):
        for part in condition.conditions:
            yield from nested(part)


def test_a_condition_that_cannot_be_read_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {**next(compile.rows("causes")), "code": "new", "signs": [{"when": {"xid": {"code": 79}}}]}
    monkeypatch.setattr(compile, "rows", lambda section: iter([row]))
    with pytest.raises(ConditionError, match=r"^new\.signs\[0\]\.when\.xid\.code: 79 is not text"):
        compile.content()


def test_an_example_that_is_not_text_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """YAML reads `error: 5` without quotes as a table."""
    name, row = next(iter(compile.messages()))
    monkeypatch.setattr(compile, "messages", lambda: iter([(name, {**row, "examples": [{"error": 5}]})]))
    with pytest.raises(
        ValueError, match=rf"^{name}\.yaml: an example of .* is not text but .*put it in quotes"
    ):
        compile.content()


def test_every_family_is_compiled() -> None:
    others = {"report", "cuda_errors"}
    assert {path.stem for path in DATA.glob("*.yaml")} == {*compile.FAMILIES, *others}
    sections = {name for family in compile.FAMILIES for name in compile.family(family)}
    assert sections == {"conditions", "fragments", "messages", "causes", "law", "places", "tables", "answers"}


@pytest.mark.parametrize("path", sorted(DATA.glob("*.yaml")), ids=lambda path: path.stem)
def test_no_line_is_long(path: Path) -> None:
    long = [line for line in path.read_text(encoding="utf-8").splitlines() if len(line) > 110]
    assert long == []


@pytest.mark.parametrize("path", sorted(DATA.rglob("*.yaml")), ids=lambda path: path.stem)
def test_yaml_does_not_cut_text_at_a_hash(path: Path) -> None:
    """In a value without quotes ` #` begins a comment, and the rest of a command is gone."""
    content = path.read_text(encoding="utf-8")
    ends: dict[int, int] = {}
    for token in yaml.scan(content, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        ends[token.end_mark.line] = max(ends.get(token.end_mark.line, 0), token.end_mark.column)
        # Inside of a block there are no comments.
        ends.update((line, WHOLE) for line in range(token.start_mark.line, token.end_mark.line))
    cut = [
        line
        for number, line in enumerate(content.splitlines())
        if "#" in line[ends.get(number, 0) :] and not line.lstrip().startswith("#")
    ]
    assert cut == []
