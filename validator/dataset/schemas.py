"""Describe the tables: as JSON Schemas, and as the Table Schemas of a Frictionless Data Package."""

from __future__ import annotations

from typing import Any

import msgspec

from .columns import Column, Kind, columns_of
from .tables import SCHEMA_VERSION, Table

#: The directory of the JSON Schemas in an export.
DIRECTORY = "schemas"
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
#: The types of Table Schema (https://specs.frictionlessdata.io/table-schema/).
_TYPES = {
    Kind.TEXT: "string",
    Kind.CHOICE: "string",
    Kind.INTEGER: "integer",
    Kind.NUMBER: "number",
    Kind.BOOLEAN: "boolean",
    Kind.TIME: "datetime",
    Kind.LIST: "array",
}


def schema_path(table: Table) -> str:
    """Return the path of a table's JSON Schema in an export."""
    return f"{DIRECTORY}/{table.name}.schema.json"


def json_schema(table: Table) -> dict[str, Any]:
    """Return the JSON Schema of a table's JSON file, an array of rows."""
    (row,), parts = msgspec.json.schema_components([table.row], ref_template="#/$defs/{name}")
    return {
        "$schema": _DIALECT,
        "$id": f"https://tensorflow-gpu-matrix.github.io/data/v{SCHEMA_VERSION}/{table.name}",
        "title": table.name,
        "type": "array",
        "items": row,
        "$defs": parts,
    }


def table_schema(table: Table, resource: str) -> dict[str, Any]:
    """Return the Table Schema of a table. resource: the name of a table's resource, with `{}` for its own."""
    schema: dict[str, Any] = {
        "fields": [_field(column) for column in columns_of(table.row)],
        "primaryKey": "id",
        "missingValues": [""],
    }
    if table.refers:
        schema["foreignKeys"] = [
            {"fields": column, "reference": {"resource": resource.format(name), "fields": "id"}}
            for column, name in table.refers.items()
        ]
    return schema


def _field(column: Column) -> dict[str, Any]:
    type_ = _TYPES.get(column.kind) or ("array" if column.is_array else "object")
    constraints: dict[str, Any] = {"required": not column.nullable}
    if column.choices:
        constraints["enum"] = list(column.choices)
    field = {"name": column.name, "type": type_, "description": column.description}
    if column.kind is Kind.TIME:
        # With or without a fraction of a second.
        field["format"] = "any"
    return field | {"constraints": constraints}
