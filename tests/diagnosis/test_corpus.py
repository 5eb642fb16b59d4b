"""The diagnosis gives the right answer to every entry of the corpus.

A known miss is listed with its reason in the index. One that is right by now fails its test, so that the list
stays true.
"""

from __future__ import annotations

import dataclasses
import io
import re
import socket
from collections.abc import Callable, Mapping

import pytest

from validator.diagnosis import causes, diagnose_log, text
from validator.diagnosis.catalogue import UNRECOGNIZED, catalogue
from validator.diagnosis.observe import observe_report
from validator.model.report import read_report

from .. import laws
from ..corpus import reader
from ..corpus.reader import Entry
from ..corpus.rendering.forms import FORMS, form_of, render
from ..emulation.redact import LIMIT
from .answers import answer, diagnosed

# So many entries of each kind get the right answer. How cases never seen before fare is told by the score of
# the pasted ones when they were first tried: 104 of the first 120, 38 of the 44 after those, and 42 of the
# newest 48. Messages were catalogued with older cases in sight, so the present count is no such estimate.
FEWEST_RIGHT = {"told": 43, "pasted": 453, "written": 250, "captured": 490, "reports": 4}
CODES = {cause.code for cause in causes()} | {reader.BENIGN, reader.UNKNOWN}
#: Paths of any machine that makes logs: its temporary files, the cache, an interpreter's own place.
FOREIGN = re.compile(r"/tmp/emulation-|/root/|\.cache/|\.pyenv|partial-\w+/|/opt/wheels|file:///")
#: What a shell says when a process ends so; the reason stands above it.
LAST_WORDS = {"Aborted (core dumped)", "Segmentation fault (core dumped)"}


def words(content: str) -> list[str]:
    return re.findall(r"[a-z0-9_.]+", content.lower())


def runs(content: str, length: int) -> set[tuple[str, ...]]:
    found = words(content)
    return {tuple(found[start : start + length]) for start in range(len(found) - length + 1)}


def its_answer_is_right(entry: Entry) -> None:
    got, expected = answer(diagnosed(entry.name)), entry.expected
    if entry.miss is None:
        assert got in expected, f"{got} instead of {' or '.join(sorted(expected))}"
    else:
        assert got not in expected, "it is right now: remove its `miss` from the index"


def its_harmless_messages_are_named(entry: Entry) -> None:
    assert set(entry.harmless) <= {line.code for line in diagnosed(entry.name).harmless}


def its_remedies_help(entry: Entry) -> None:
    remedies = [remedy for cause in diagnosed(entry.name).causes[:1] for remedy in cause.remedies]
    said = "\n".join(line for remedy in remedies for line in (remedy.says, *remedy.commands))
    assert [pattern for pattern in entry.says if not re.search(pattern, said)] == []
    assert [pattern for pattern in entry.never if re.search(pattern, said)] == []


def its_answers_are_ones_that_exist(entry: Entry) -> None:
    assert entry.expected <= CODES


def its_text_follows_from_the_facts_only(entry: Entry) -> None:
    hidden = dataclasses.replace(entry, cause="another", confirmed="Something else.", harmless=())
    assert hidden.content() == entry.content() == entry.content()


def its_text_does_not_hold_the_answer(entry: Entry) -> None:
    content, length = entry.content().decode(), 6 if entry.kind == "told" else 8
    assert entry.cause is None or entry.cause not in content
    assert entry.confirmed is not None
    assert not runs(content, length) & runs(entry.confirmed, length)


def its_form_does_not_matter(entry: Entry) -> None:
    assert entry.facts is not None
    own = [cause.code for cause in diagnosed(entry.name).causes][:1]
    others = sorted(FORMS.keys() - {form_of(entry.facts.source)})
    for form in laws.subjects_to_try(others, len(entry.name)):
        assert [cause.code for cause in diagnose_log(render(entry.facts, form)).causes][:1] == own, form


def every_line_about_a_fault_is_known(entry: Entry) -> None:
    lines = {line.text for line in text.read(io.BytesIO(entry.content()), entry.name)}
    matches = catalogue().matches
    unknown = {line for line in lines if any(row.kind == UNRECOGNIZED for row in matches(line))}
    assert unknown <= LAST_WORDS


def it_is_small_and_names_no_machine(entry: Entry) -> None:
    content = entry.content().decode()
    assert 0 < len(content) < LIMIT
    assert not FOREIGN.search(content)
    assert f"host: {socket.gethostname()}\n" not in content


def it_names_what_its_checks_found(entry: Entry) -> None:
    report = read_report(entry.content())
    codes = {cause.code for cause in diagnosed(entry.name).causes}
    failed = {check.id for check in report.checks if check.outcome.value == "fail"}
    assert ("library_path_not_set" in codes) is (failed == {"cuda_libraries"})
    assert ("cudnn_version_mismatch" in codes) is ("cudnn_load" in failed)
    assert observe_report(report, catalogue()).has("tensorflow")


Law = Callable[[Entry], None]
LAWS: tuple[Law, ...] = (
    its_answer_is_right,
    its_harmless_messages_are_named,
    its_remedies_help,
    its_answers_are_ones_that_exist,
)
LAWS_OF_KIND: Mapping[str, tuple[Law, ...]] = {
    "told": (
        its_text_follows_from_the_facts_only,
        its_text_does_not_hold_the_answer,
        its_form_does_not_matter,
    ),
    "pasted": (its_text_does_not_hold_the_answer,),
    "written": (),
    "captured": (every_line_about_a_fault_is_known, it_is_small_and_names_no_machine),
    "reports": (it_names_what_its_checks_found,),
}


@pytest.mark.parametrize("entry", reader.entries(), ids=lambda entry: entry.name)
def test_an_entry(entry: Entry) -> None:
    laws.check((*LAWS, *LAWS_OF_KIND[entry.kind]), entry)


@pytest.mark.parametrize("kind", reader.KINDS)
def test_enough_entries_are_right(kind: str) -> None:
    """Count the results of test_an_entry."""
    assert sum(entry.miss is None for entry in reader.entries(kind)) >= FEWEST_RIGHT[kind]


def test_index_and_files_are_one() -> None:
    listed = {entry.name for entry in reader.entries() if entry.has_file}
    files = {
        str(path.relative_to(reader.HERE))
        for kind in reader.KINDS
        for path in (reader.HERE / kind).rglob("*")
        if path.is_file()
    }
    assert listed == files


def test_several_harmless_lines_are_not_a_cause() -> None:
    contents = [
        entry.content().decode()
        for entry in reader.entries("told", "pasted")
        if entry.cause == reader.BENIGN and not (entry.miss and diagnosed(entry.name).causes)
    ]
    assert len(contents) >= 10
    assert diagnose_log("\n".join(contents)).causes == ()


def test_the_three_releases_have_the_faults_of_most_causes() -> None:
    """Faults that need a GPU, several machines or time can't be made; all others are, in all three."""
    made = {
        release: {entry.cause for entry in reader.entries("captured") if entry.tensorflow == release}
        for release in ("2.15.1", "2.18.1", "2.21.0")
    }
    assert all(len(causes) >= 25 for causes in made.values()), {
        key: len(value) for key, value in made.items()
    }
