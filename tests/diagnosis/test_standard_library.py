"""The diagnosis of text with nothing but the standard library, as in a browser: the answers are the same."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from validator.diagnosis import compile
from validator.diagnosis.patterns import Pattern, WordFinder, compiled_by_re
from validator.model.diagnosis import Diagnosis

from ..corpus import reader
from ..laws import subjects_to_try
from .answers import diagnosed

ROOT = Path(__file__).parents[2]
#: One entry of so many is compared. The whole corpus takes 20 seconds.
SHARE = 12
#: Diagnoses texts in a Python that has no installed packages, and in which imports of them are refused.
PROGRAM = """
import dataclasses, json, sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in {"validator", *sys.stdlib_module_names}:
            raise ImportError(f"{name} is not part of the standard library")

sys.meta_path.insert(0, Refuse())
sys.path.insert(0, sys.argv[1])
for name in ("re2", "yaml", "msgspec", "pydantic", "packaging", "click"):
    try:
        __import__(name)
    except ImportError:
        continue
    raise SystemExit(f"{name} was imported")

from validator.diagnosis import diagnose_log

answers = [dataclasses.asdict(diagnose_log(text)) for text in json.load(sys.stdin)]
json.dump(answers, sys.stdout)
"""


def plain(diagnosis: Diagnosis) -> Any:
    return json.loads(json.dumps(dataclasses.asdict(diagnosis)))


@pytest.mark.slow
def test_text_is_diagnosed_with_nothing_but_the_standard_library() -> None:
    names = [entry.name for entry in reader.entries() if entry.kind != "reports"][::SHARE]
    texts = [reader.entry(name).content().decode(errors="surrogateescape") for name in names]
    # Bytes that are not text come to the diagnosis differently in a string.
    chosen = [(name, text) for name, text in zip(names, texts, strict=True) if text.isascii()]
    assert len(chosen) > 50
    chosen = [*subjects_to_try(chosen)]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", PROGRAM, str(ROOT)],
        input=json.dumps([text for _, text in chosen]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    for (name, _), answer in zip(chosen, json.loads(done.stdout), strict=True):
        assert answer == plain(diagnosed(name)), name


def test_the_compiled_data_is_current() -> None:
    assert compile.is_current(), "run scripts/compile-data"


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("failed call to (?P<name>cuInit)", ("failed call to ",)),
        ("(?:no|missing) library", (" library",)),
        ("(?i)Not (?:Found|there)", ("found", "there")),
        ("a*(?:long|longer) b", ("long",)),
        ("(?:optional)?x", ()),
        ("(?:needed)+x", ("needed",)),
        ("ab", ()),
        (r"one\.two\d", ("one.two",)),
    ],
)
def test_the_words_that_every_match_contains(expression: str, words: tuple[str, ...]) -> None:
    assert compile.required_words(expression) == words


@pytest.mark.parametrize(
    ("expression", "needs"),
    [
        ("failed call to (?P<name>cuInit)", ("failed call to ", "cuinit")),
        ("(?:no|missing) library", (("no", "missing"), " library")),
        ("x(?:ab.*cd|ef)", ((("ab", "cd"), "ef"),)),
        ("(?:ab|(?:cd|ef))gh", (("ab", "cd", "ef"), "gh")),
        ("(?:ab|c)de", ("de",)),
        ("ab.*abc", ("abc",)),
        ("(?:ab)?[cd](?!ef)", ()),
    ],
)
def test_everything_that_a_match_contains(expression: str, needs: tuple[object, ...]) -> None:
    assert compile.needs(expression) == needs


@pytest.mark.parametrize(
    ("text", "is_tried"),
    [
        ("GPU 0: not yet found", True),
        ("gpu: missing", True),
        ("lost", True),
        ("gpu found", False),
        ("missing", False),
        ("gpu 0: not there", False),
    ],
)
def test_a_pattern_is_tried_only_on_text_with_all_words_that_it_needs(text: str, is_tried: bool) -> None:
    tried: list[str] = []

    def compiled(expression: str) -> re.Pattern[str]:
        tried.append(expression)
        return compiled_by_re(expression)

    expression = "(?i)gpu.*(?:not .*found|missing)|lost"
    pattern = Pattern(expression, False, compile.required_words(expression), compile.needs(expression))
    assert WordFinder([pattern], compiled).matching(text) == ([0] if is_tried else [])
    assert bool(tried) == is_tried
