"""The diagnosis of text with nothing but the standard library, as in a browser: the answers are the same."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from validator.diagnosis import compile
from validator.model.diagnosis import Diagnosis

from ..corpus import reader
from .answers import diagnosed

ROOT = Path(__file__).parents[2]
#: One entry of so many is compared. The backtracking of `re` makes the whole corpus take a minute.
SHARE = 6
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


def test_text_is_diagnosed_with_nothing_but_the_standard_library() -> None:
    names = [entry.name for entry in reader.entries() if entry.kind != "reports"][::SHARE]
    texts = [reader.entry(name).content().decode(errors="surrogateescape") for name in names]
    # Bytes that are not text come to the diagnosis differently in a string.
    chosen = [(name, text) for name, text in zip(names, texts, strict=True) if text.isascii()]
    assert len(chosen) > 100
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
