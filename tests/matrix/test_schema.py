"""The JSON Schema is current, and agrees with the reader about what a matrix file is."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
import yaml

from validator.matrix.schema import PATH, schema_text

from .support import FILE, GOOD
from .wrong_files import SHAPE


def schema() -> Any:
    return json.loads(PATH.read_text(encoding="utf-8"))


def validate(text: str) -> None:
    jsonschema.Draft7Validator(schema()).validate(yaml.safe_load(text))


def test_the_checked_in_schema_is_current() -> None:
    hint = "run python -m validator.matrix.schema"
    assert PATH.read_text(encoding="utf-8") == schema_text(), hint


def test_the_schema_is_valid() -> None:
    jsonschema.Draft7Validator.check_schema(schema())


def test_the_matrix_of_this_repository_is_valid_and_names_the_schema() -> None:
    text = FILE.read_text(encoding="utf-8")
    validate(text)
    [line] = [line for line in text.splitlines() if "$schema=" in line]
    assert line == "# yaml-language-server: $schema=" + str(PATH.relative_to(FILE.parent))


def test_every_key_is_explained() -> None:
    definitions = [schema(), *schema()["definitions"].values()]
    for definition in definitions:
        assert definition["description"]
        for name, value in definition["properties"].items():
            assert value["description"], name


#: Problems that only the reader reports: JSON Schema does not see them, or YAML merges the key away.
READER_ONLY = {"merge key"}


@pytest.mark.parametrize("name", sorted(SHAPE.keys() - READER_ONLY))
def test_schema_and_reader_reject_the_same_shapes(name: str) -> None:
    text, *_ = SHAPE[name]
    validate(GOOD)
    with pytest.raises(jsonschema.ValidationError):
        validate(text)
