"""CITATION.cff says how to cite this version, in the Citation File Format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import tomli
import yaml

import validator

from ..commands import ROOT

SCHEMA = Path(__file__).parent / "published" / "citation-file-format-1.2.0.json"


def problems(citation: Any) -> list[str]:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    return [error.message for error in jsonschema.Draft7Validator(schema).iter_errors(citation)]


@pytest.fixture
def citation() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    return read


def test_it_is_valid_by_the_published_schema(citation: dict[str, Any]) -> None:
    assert problems(citation) == []


@pytest.mark.parametrize(
    "change", [{"license": "Apache 2"}, {"authors": []}, {"type": "data"}, {"doi": "none yet"}]
)
def test_the_schema_rejects_a_wrong_file(citation: dict[str, Any], change: dict[str, Any]) -> None:
    assert len(problems(citation | change)) == 1


def test_it_is_about_this_version_of_this_project(citation: dict[str, Any]) -> None:
    project = tomli.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert citation["version"] == project["version"] == validator.__version__
    assert citation["license"] == project["license"]
    assert citation["url"] == project["urls"]["Homepage"]
    assert sorted(citation["keywords"]) == citation["keywords"]
    assert set(citation["keywords"]) <= set(project["keywords"])
