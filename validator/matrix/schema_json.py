"""The JSON Schema of the matrix file, for editors: `python -m validator.matrix.schema_json` writes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .schema import MatrixFile

#: The copy that is checked in.
PATH = Path(__file__).with_name("schema.json")


def schema_text() -> str:
    """The JSON Schema (draft 2020-12) as the file holds it."""
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **_trimmed(MatrixFile.model_json_schema()),
        "title": "TensorFlow GPU matrix",
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _trimmed(schema: Any) -> Any:
    """Without the titles that only repeat the keys, and without defaults, which stand for "not given"."""
    if isinstance(schema, list):
        return [_trimmed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _properties(value) if key in ("properties", "$defs") else _trimmed(value)
        for key, value in schema.items()
        if key not in ("title", "default")
    }


def _properties(named: dict[str, Any]) -> dict[str, Any]:
    return {name: _trimmed(value) for name, value in named.items()}


if __name__ == "__main__":
    PATH.write_text(schema_text(), encoding="utf-8")
