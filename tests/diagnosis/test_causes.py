"""The list of causes hangs together: with the catalogue of messages, with the report, and with itself."""

from __future__ import annotations

import inspect
import re
import string
from pathlib import Path

import pytest
import yaml

from validator.diagnosis import causes
from validator.diagnosis.causes import STRENGTHS, CauseEntry
from validator.diagnosis.derive import devices, mismatches, running
from validator.diagnosis.messages import DATA, UNRECOGNIZED, catalogue
from validator.diagnosis.read_report import fields

WAYS = {"any", "host", "pip", "conda", "docker", "wsl"}
#: Values that are facts of the whole text, whatever the sign (`diagnose._facts`).
FACTS = {"tensorflow", "python", "keras", "cuda", "cudnn", "driver", "gpu", "os", "image"}
NEEDED = {"cuda_needed", "cudnn_needed", "driver_branch"}


def by_code(entry: CauseEntry) -> str:
    return entry.code


def names(template: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(template) if name}


def derived() -> dict[str, set[str]]:
    """Kinds that the rules of derive/ add."""
    source = "".join(inspect.getsource(module) for module in (devices, running, mismatches))
    return {kind: set() for kind in re.findall(r'"([a-z0-9_]+)"', source)}


def values_of(kind: str) -> list[set[str]]:
    """For each way in which a kind is seen, the values that it has then."""
    rows = [
        set(message.values) | set(re.findall(r"\(\?P<(\w+)>", message.pattern))
        for message in catalogue().messages
        if message.kind == kind
    ]
    rows += [
        set(row.values) | set(row.beside) | set(re.findall(r"\(\?P<(\w+)>", row.pattern)) | ({row.key} - {""})
        for row in fields()
        if row.kind == kind
    ]
    return rows


@pytest.mark.parametrize("entry", causes(), ids=by_code)
def test_an_entry_is_whole(entry: CauseEntry) -> None:
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


def visible() -> set[str]:
    """Every kind of observation that there is."""
    messages = {message.kind for message in catalogue().messages}
    return messages | {row.kind for row in fields()} | set(derived())


def test_codes_are_unique() -> None:
    codes = [entry.code for entry in causes()]
    assert len(set(codes)) == len(codes)


@pytest.mark.parametrize("entry", causes(), ids=by_code)
def test_every_sign_is_something_that_can_be_seen(entry: CauseEntry) -> None:
    signs = [sign for signature in entry.signatures for sign in (*signature.all, *signature.none)]
    unknown = {sign.kind for sign in (*signs, *entry.ruled_out_by)} - visible()
    assert not unknown


@pytest.mark.parametrize("entry", causes(), ids=by_code)
def test_every_kind_that_a_remedy_depends_on_can_be_seen(entry: CauseEntry) -> None:
    asked = {
        kind for remedy in entry.remedies for name in ("seen", "unseen") for kind in remedy.when.get(name, ())
    }
    assert asked <= visible()


@pytest.mark.parametrize("entry", causes(), ids=by_code)
def test_every_value_that_a_sign_or_a_title_names_is_one_that_the_kind_has(entry: CauseEntry) -> None:
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


@pytest.mark.parametrize("entry", causes(), ids=by_code)
def test_a_sign_that_stands_twice_has_another_title(entry: CauseEntry) -> None:
    # Where the values of the first title are not known; without a title it would say nothing new.
    conditions = [
        ({str(sign) for sign in one.all}, {str(sign) for sign in one.none}, one.strength)
        for one in entry.signatures
    ]
    for position, signature in enumerate(entry.signatures):
        again = conditions[position] in conditions[:position]
        titles = [one.title for one in entry.signatures[:position]]
        assert not again or (signature.title and signature.title not in titles), signature


def test_what_explains_what_has_no_circle() -> None:
    explains = {entry.code: entry.explains for entry in causes()}
    assert all(code in explains for codes in explains.values() for code in codes)

    def reaches(code: str, target: str, path: tuple[str, ...] = ()) -> bool:
        return any(
            other == target or (other not in path and reaches(other, target, (*path, other)))
            for other in explains[code]
        )

    assert [code for code in explains if reaches(code, code)] == []


def test_nothing_that_only_says_what_was_seen_is_a_cause() -> None:
    assert UNRECOGNIZED not in {
        sign.kind for entry in causes() for part in entry.signatures for sign in part.all
    }


@pytest.mark.parametrize("path", sorted(DATA.rglob("*.yaml")), ids=lambda path: path.stem)
def test_yaml_cuts_no_text_at_a_hash(path: Path) -> None:
    """In a value without quotes ` #` begins a comment, and the rest of a command is gone."""
    content = path.read_text(encoding="utf-8")
    ends: dict[int, int] = {}
    for token in yaml.scan(content):
        ends[token.end_mark.line] = max(ends.get(token.end_mark.line, 0), token.end_mark.column)
    cut = [
        line
        for number, line in enumerate(content.splitlines())
        if "#" in line[ends.get(number, 0) :] and not line.lstrip().startswith("#")
    ]
    assert cut == []
