"""The JSON Schema is current, and agrees with the reader about what a matrix file is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jsonschema
import pytest
import yaml

from validator.fleet import settings
from validator.matrix import schema as matrix_schema
from validator.matrix.schema import PATH, schema_text

from .support import FILE, GOOD, problems
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


# The schemas and their catalogue entries are as https://www.schemastore.org asks for.
#
# Its rules: draft 07, an `$id`, titles and descriptions, Ajv's strict mode, https addresses, and no pattern
# that matches the files of other programs. `schema_store/` has the examples in the layout of its repository.


ROOT = FILE.parent
EXAMPLES = Path(__file__).parent / "schema_store"
CATALOGUE: list[dict[str, Any]] = json.loads(
    (ROOT / "docs" / "reference" / "schema-store.json").read_text(encoding="utf-8")
)
PATHS = (matrix_schema.PATH, settings.SCHEMA)
#: What draft 07 knows, of the keywords that tell what a value is and may be.
KEYWORDS = {
    "$schema", "$id", "$ref", "title", "description", "default", "definitions", "type", "properties",
    "required", "additionalProperties", "items", "anyOf", "allOf", "minItems", "maxItems", "uniqueItems",
    "minLength", "maxLength", "minProperties", "maxProperties", "minimum", "maximum", "pattern",
}  # fmt: skip


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def parts(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield every schema within a schema."""
    yield schema
    for key in ("properties", "definitions"):
        for inner in schema.get(key, {}).values():
            yield from parts(inner)
    for key in ("anyOf", "allOf"):
        for inner in schema.get(key, ()):
            yield from parts(inner)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from parts(schema[key])


@pytest.mark.parametrize("path", PATHS, ids=str)
def test_a_schema_is_strict(path: Path) -> None:
    schema = read(path)
    jsonschema.Draft7Validator.check_schema(schema)
    assert schema["$schema"] == "http://json-schema.org/draft-07/schema#"
    for part in parts(schema):
        assert part.keys() <= KEYWORDS, part
        assert "$ref" not in part or part.keys() == {"$ref"}, "what is next to a reference is ignored"
        assert isinstance(part.get("type", ""), str), "a union of types needs anyOf"
        if "properties" in part:
            assert part["additionalProperties"] is False
            assert part["description"]
            assert set(part.get("required", ())) <= part["properties"].keys()
        for name, value in part.get("properties", {}).items():
            assert value["title"] == value["title"].strip(".:") != "", name
            assert value["description"] and not value["description"].endswith(":"), name


@pytest.mark.parametrize("path", PATHS, ids=str)
def test_the_links_lead_to_sections_of_the_manual(path: Path) -> None:
    schema = read(path)
    for name, value in schema["properties"].items():
        text, _, link = value["description"].partition("\n")
        assert text and link, name
        address = urlsplit(link)
        page = ROOT / "docs" / address.path.partition("/docs/")[2]
        assert f"\n## `{address.fragment}`\n" in page.read_text(encoding="utf-8"), link


def test_each_schema_has_an_entry_of_the_catalogue() -> None:
    assert [entry["url"] for entry in CATALOGUE] == [read(path)["$id"] for path in PATHS]
    names = [entry["name"] for entry in CATALOGUE]
    assert names == sorted(names, key=str.casefold)
    patterns = [pattern for entry in CATALOGUE for pattern in entry["fileMatch"]]
    assert len(set(patterns)) == len(patterns)
    for entry in CATALOGUE:
        assert entry.keys() == {"name", "description", "fileMatch", "url"}
        assert entry["url"].startswith("https://")
        assert entry["description"] and entry["description"][-1] not in ".:"
        assert "schema" not in f"{entry['name']} {entry['description']}".lower()
    for pattern in patterns:
        # `matrix.yaml` and `fleet.yaml` are names of many things, and the catalogue is used for all files.
        assert pattern.startswith("tensorflow-gpu-matrix.") and pattern.endswith((".yaml", ".yml"))


@pytest.mark.parametrize("path", sorted((EXAMPLES / "test").iterdir()), ids=lambda path: path.stem)
def test_a_right_file_is_valid(path: Path) -> None:
    jsonschema.Draft7Validator(read(matrix_schema.PATH)).validate(yaml.safe_load(path.read_text("utf-8")))


@pytest.mark.parametrize("path", sorted((EXAMPLES / "negative_test").iterdir()), ids=lambda path: path.stem)
def test_a_wrong_file_is_invalid(path: Path) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft7Validator(read(matrix_schema.PATH)).validate(yaml.safe_load(path.read_text("utf-8")))
    assert problems(path.read_text("utf-8"))
