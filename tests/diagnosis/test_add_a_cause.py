"""docs/how-to/add-a-cause.md describes every field, and its example works word for word."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from validator.diagnosis import catalogue, causes, compile, diagnose_log, remedies
from validator.diagnosis.catalogue import FACTS, STRENGTHS, language
from validator.model.diagnosis import WAYS

from ..corpus.reader import Entry
from .test_messages import OPTIONAL, REQUIRED

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "add-a-cause.md"
TEXT = PAGE.read_text(encoding="utf-8")
#: The examples: a message, a cause, a row of the index, and named conditions.
MESSAGE, CAUSE, ROW, CONDITIONS = (
    yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
)


@contextlib.contextmanager
def compiled_with(message: list[dict[str, Any]], cause: list[dict[str, Any]]) -> Iterator[None]:
    """Use the data with these rows in place of the example, which a reader may have tried in this tree."""
    caches = (
        catalogue.section,
        catalogue.catalogue,
        catalogue.printed,
        catalogue._messages,
        causes,
        language,
    )
    family = compile.family

    def changed(name: str) -> Mapping[str, Any]:
        content = family(name)
        if name != "packages":
            return content
        others = [row for row in content["messages"] if row["kind"] != MESSAGE[0]["kind"]]
        other_causes = [row for row in content["causes"] if row["code"] != CAUSE[0]["code"]]
        return {**content, "messages": [*others, *message], "causes": [*other_causes, *cause]}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compile, "family", changed)
        content = json.loads(compile.content())
        for cache in caches:
            cache.cache_clear()
        patch.setattr(catalogue, "_document", lambda: content)
        yield
    for cache in caches:
        cache.cache_clear()


@pytest.mark.slow
def test_the_example_works_word_for_word() -> None:
    entry = Entry(**ROW[0])
    with compiled_with(MESSAGE, CAUSE):
        found = diagnose_log(entry.content().decode()).causes
    assert [cause.code for cause in found] == [entry.cause]
    assert found[0].title == "Another process has the HDF5 file open (error 11)."
    assert [remedy.commands for remedy in found[0].remedies] == [("fuser -v model.h5",)]


def test_without_its_two_files_the_example_is_not_known() -> None:
    with compiled_with([], []):
        assert diagnose_log(Entry(**ROW[0]).content().decode()).causes == ()


def test_the_example_of_named_conditions_is_one_that_exists() -> None:
    for name, written in CONDITIONS["conditions"].items():
        assert compile.conditions()[name] == written


def test_the_page_describes_every_field_and_every_choice() -> None:
    fields = {
        *REQUIRED,
        *OPTIONAL,
        *(name for row in compile.rows("causes") for name in row),
        *(name for row in compile.rows("causes") for remedy in row["remedies"] for name in remedy),
        *("when", "strength", "conditions:", "messages:", "causes:"),
    }
    choices = {*compile.FAMILIES[:12], *WAYS, *remedies.INTERRUPTS, *STRENGTHS, *FACTS}
    described = set(re.findall(r"`([^`\n]+)`", TEXT))
    assert sorted((fields | choices) - described) == []
