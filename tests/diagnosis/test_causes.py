"""The list of causes fits the catalogue of messages, the fields of the report, its page, and itself."""

from __future__ import annotations

import functools
import inspect
import re
import string
from pathlib import Path

import pytest
import yaml

from validator.diagnosis import causes, diagnose_log, document, remedies
from validator.diagnosis.causes import STRENGTHS, CauseEntry
from validator.diagnosis.compiled import DATA
from validator.diagnosis.conclusions import gpus, packages, runtime, version_conflicts
from validator.diagnosis.messages import UNRECOGNIZED, catalogue
from validator.diagnosis.read_report import field_rows, problem_rows

from .. import laws

WAYS = {"any", "host", "pip", "conda", "docker", "wsl"}
#: Values that are facts of the whole text, whatever the sign (`diagnose._facts`).
FACTS = {"tensorflow", "python", "keras", "cuda", "cudnn", "driver", "gpu", "os", "image"}
#: What the condition of a remedy may be about.
WHEN = {"tensorflow", "capability", "os", "seen", "unseen"}


def names(template: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(template) if name}


@functools.cache
def derived() -> set[str]:
    """Return the kinds that the rules of conclusions/ add."""
    source = "".join(inspect.getsource(module) for module in (gpus, packages, runtime, version_conflicts))
    return set(re.findall(r'"([a-z0-9_]+)"', source))


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
    return rows


def it_is_whole(entry: CauseEntry) -> None:
    assert re.fullmatch(r"[a-z0-9_]+", entry.code)
    assert entry.title.endswith(".") and entry.means.endswith(".")
    assert entry.signatures and entry.remedies and entry.sources
    assert {remedy.way for remedy in entry.remedies} <= WAYS
    assert any(remedy.commands for remedy in entry.remedies)
    assert all(remedy.says.endswith((".", ")")) for remedy in entry.remedies)
    assert all(signature.all and signature.strength in STRENGTHS for signature in entry.signatures)
    assert all(
        source.startswith(("https://", "NVIDIA", "tensorflow", "Tensor")) or " " in source
        for source in entry.sources
    )


@functools.cache
def visible() -> set[str]:
    """Return every kind of observation that there is."""
    messages = {message.kind for message in catalogue().messages}
    rows = {row.kind for row in field_rows()} | {row.kind for row in problem_rows()}
    return messages | rows | derived()


def every_sign_is_something_that_can_be_seen(entry: CauseEntry) -> None:
    signs = [sign for signature in entry.signatures for sign in (*signature.all, *signature.none)]
    unknown = {sign.kind for sign in (*signs, *entry.ruled_out_by)} - visible()
    assert not unknown


def every_kind_that_a_remedy_depends_on_can_be_seen(entry: CauseEntry) -> None:
    asked = {
        kind for remedy in entry.remedies for name in ("seen", "unseen") for kind in remedy.when.get(name, ())
    }
    assert asked <= visible()


def every_value_that_a_sign_or_a_title_names_is_one_that_the_kind_has(entry: CauseEntry) -> None:
    for signature in entry.signatures:
        available = set(FACTS)
        for sign in signature.all:
            rows = values_of(sign.kind)
            if sign.kind in derived():
                continue
            assert any(set(sign.values) <= row for row in rows), f"{sign}: {rows}"
            available |= set().union(*rows)
        if not any(sign.kind in derived() for sign in signature.all):
            assert names(signature.title) <= available, signature.title


def a_sign_that_stands_twice_has_another_title(entry: CauseEntry) -> None:
    # Where the values of the first title are not known; without a title it would say nothing new.
    conditions = [
        ({str(sign) for sign in one.all}, {str(sign) for sign in one.none}, one.strength)
        for one in entry.signatures
    ]
    for position, signature in enumerate(entry.signatures):
        again = conditions[position] in conditions[:position]
        titles = [one.title for one in entry.signatures[:position]]
        assert not again or (signature.title and signature.title not in titles), signature


def the_conditions_of_its_remedies_are_of_the_format(entry: CauseEntry) -> None:
    for remedy in entry.remedies:
        assert set(remedy.when) <= WHEN
        assert set(remedy.when.get("os", ())) <= {"linux", "windows", "macos"}
        for name in ("tensorflow", "capability"):
            remedies.is_within("1.0", remedy.when.get(name, ()))


@functools.cache
def page() -> str:
    return document.text()


def section(code: str) -> str:
    """Return what the page of causes says about one of them."""
    found = re.search(rf"^## `{code}`\n(.*?)(?=^## |\Z)", page(), re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def its_section_has_its_meaning_signs_remedies_and_sources(entry: CauseEntry) -> None:
    said = section(entry.code)
    assert entry.title in said.replace("\\", "")
    assert all(f"`{sign.kind}`" in said for signature in entry.signatures for sign in signature.all)
    assert all(f"`{sign.kind}`" in said for sign in entry.ruled_out_by)
    assert all(f"(#{code})" in said for code in entry.explains)
    assert said.count("```sh") == sum(bool(remedy.commands) for remedy in entry.remedies)
    assert all(source in said.replace("\\", "") for source in entry.sources)


def lines_that_are_said_to_show_it_do(entry: CauseEntry) -> None:
    block = re.search(r"lines that show it:\n\n```text\n(.*?)\n```", section(entry.code), re.DOTALL)
    for line in block[1].splitlines() if block else ():
        found = diagnose_log(line.removesuffix(" …")).causes
        named = {cause.code for cause in found} | {code for cause in found for code in cause.explains}
        assert entry.code in named, line


LAWS = (
    it_is_whole,
    every_sign_is_something_that_can_be_seen,
    every_kind_that_a_remedy_depends_on_can_be_seen,
    every_value_that_a_sign_or_a_title_names_is_one_that_the_kind_has,
    a_sign_that_stands_twice_has_another_title,
    the_conditions_of_its_remedies_are_of_the_format,
    its_section_has_its_meaning_signs_remedies_and_sources,
    lines_that_are_said_to_show_it_do,
)


@pytest.mark.parametrize("entry", causes(), ids=lambda entry: entry.code)
def test_a_cause(entry: CauseEntry) -> None:
    laws.check(LAWS, entry)


def test_the_committed_page_of_causes_is_current() -> None:
    hint = "run python -m validator.diagnosis.document"
    assert document.PATH.read_text(encoding="utf-8") == page(), hint


def test_every_link_of_the_page_leads_to_a_cause() -> None:
    codes = [entry.code for entry in causes()]
    assert set(re.findall(r"\(#(\w+)\)", page())) == set(codes)
    assert re.findall(r"^## `(\w+)`$", page(), re.MULTILINE) == codes


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
        sign.kind for entry in causes() for part in entry.signatures for sign in part.all
    }


@pytest.mark.parametrize("path", sorted(DATA.rglob("*.yaml")), ids=lambda path: path.stem)
def test_yaml_does_not_cut_text_at_a_hash(path: Path) -> None:
    """In a value without quotes ` #` begins a comment, and the rest of a command is gone."""
    content = path.read_text(encoding="utf-8")
    ends: dict[int, int] = {}
    for token in yaml.scan(content, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        ends[token.end_mark.line] = max(ends.get(token.end_mark.line, 0), token.end_mark.column)
    cut = [
        line
        for number, line in enumerate(content.splitlines())
        if "#" in line[ends.get(number, 0) :] and not line.lstrip().startswith("#")
    ]
    assert cut == []
