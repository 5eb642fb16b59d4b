"""The content of an export: the same rows in all formats, as the schemas say."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from validator.cli.planning import load_plan
from validator.compat import facts
from validator.dataset.export import json_schema
from validator.dataset.tables import TABLES, Status, Table
from validator.diagnosis.catalogue import catalogue, causes
from validator.resources import shipped_matrix

from . import exports

every_table = pytest.mark.parametrize("table", TABLES.values(), ids=exports.table_names())


def schema_of(directory: Path, name: str) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads((directory / "schemas" / f"{name}.schema.json").read_bytes())
    return schema


@every_table
def test_all_formats_have_the_same_rows(table: Table, exported: Path) -> None:
    rows = exports.read_json(exported, table.name)
    assert rows
    assert exports.read_csv(exported, table.name) == rows
    assert exports.read_parquet(exported, table.name) == rows


@every_table
def test_the_rows_are_as_the_schema_says(table: Table, exported: Path) -> None:
    schema = schema_of(exported, table.name)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(exports.read_json(exported, table.name))


@every_table
def test_the_schema_refuses_another_row(table: Table, exported: Path) -> None:
    validator = jsonschema.Draft202012Validator(schema_of(exported, table.name))
    row = exports.read_json(exported, table.name)[0]
    for wrong in (row | {"id": 1}, row | {"more": 1}, {key: row[key] for key in row if key != "id"}):
        assert not validator.is_valid([wrong])


@every_table
def test_an_id_is_unique_and_ids_lead_to_rows(table: Table, exported: Path) -> None:
    rows = exports.read_json(exported, table.name)
    assert [name for name, count in Counter(row["id"] for row in rows).items() if count > 1] == []
    for column, target in exports.refers(table).items():
        known = {row["id"] for row in exports.read_json(exported, target)}
        used = [row[column] for row in rows]
        flat = [one for value in used for one in (value if isinstance(value, list) else [value])]
        assert flat and set(flat) <= known, column


@every_table
def test_the_types_in_parquet_are_real(table: Table, exported: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    schema = pyarrow.parquet.read_schema(exported / f"{table.name}.parquet")
    types: dict[str, object] = {
        "text": pyarrow.string(),
        "choice": pyarrow.dictionary(pyarrow.int32(), pyarrow.string()),
        "integer": pyarrow.int64(),
        "number": pyarrow.float64(),
        "boolean": pyarrow.bool_(),
        "time": pyarrow.timestamp("us", tz="UTC"),
        "json": pyarrow.string(),
    }
    for column, field in zip(table.columns, schema, strict=True):
        assert (column.name, column.nullable) == (field.name, field.nullable)
        if column.kind == "list":
            assert field.type.value_type == pyarrow.string()
        else:
            assert field.type == types[column.kind]
        assert field.metadata[b"description"].decode() == column.description
    assert schema.metadata[b"table"].decode() == table.name


@every_table
def test_the_example_of_a_column_is_a_value_of_it(table: Table) -> None:
    schema = json_schema(table)
    for column in table.columns:
        properties = schema["$defs"][schema["items"]["$ref"].rpartition("/")[2]]["properties"]
        one = properties[column.name] | {"$defs": schema["$defs"]}
        jsonschema.Draft202012Validator(one).validate(column.example)


def test_the_facts_are_all_there_with_their_content(exported: Path) -> None:
    rows = exports.read_json(exported, "facts")
    assert len(rows) == len(list(facts.all_rows()))
    branch = next(row for row in rows if row["id"] == "branch-535")
    assert (branch["file"], branch["section"]) == ("drivers", "branches")
    assert branch["content"] == {"branch": 535, "cuda": "12.2"}
    build = next(row for row in rows if row["id"] == "build-2.21.0")
    assert build["sources"] == ["build-2.21.0"]
    assert Status.__args__ == tuple(facts.STATUSES)  # type: ignore[attr-defined]


def test_the_predictions_are_those_of_plan(exported: Path) -> None:
    reasons = {row["id"]: row for row in exports.read_json(exported, "reasons")}
    known = {row["id"]: row["status"] for row in exports.read_json(exported, "facts")}
    rows = exports.read_json(exported, "predictions")
    assert {known[one] for row in rows for one in row["evidence"]} == {"measured"}
    planned = load_plan(shipped_matrix(), "full", exports.SELECT).cells
    assert len(rows) == len(planned) > 100
    for row, cell in zip(rows, planned, strict=True):
        expected = json.loads(json.dumps(cell.as_json()))
        prediction = expected.pop("prediction")
        # The labels of runners are about the machines of the owner of the matrix.
        del expected["runner"]
        written = [
            {name: value for name, value in reasons[id_].items() if name != "id"}
            for id_ in row.pop("reasons")
        ]
        assert written == prediction.pop("reasons")
        prediction["evidence"] = [one["id"] for one in prediction["evidence"]]
        assert row == expected | prediction


def test_a_reason_keeps_its_id_whatever_else_is_exported(exported: Path, tmp_path: Path) -> None:
    whole = exports.read_json(exported, "reasons")
    exports.write(tmp_path / "data", formats=["json"], selectors=(*exports.SELECT, "gpu=h100"))
    part = exports.read_json(tmp_path / "data", "reasons")
    assert 0 < len(part) < len(whole)
    assert [row for row in whole if row in part] == part


def test_messages_lead_to_causes_and_causes_to_fixes(exported: Path) -> None:
    messages = exports.read_json(exported, "messages")
    assert [row["pattern"] for row in messages] == [one.pattern for one in catalogue().messages]
    mismatch = "driver_library_mismatch"
    kinds = {row["kind"] for row in messages if mismatch in row["causes"]}
    assert {"kernel_dso_mismatch", "nvml_error", "said"} <= kinds
    entry = next(entry for entry in causes() if entry.code == mismatch)
    fixes = [row for row in exports.read_json(exported, "fixes") if row["cause"] == mismatch]
    assert [fix["commands"] for fix in fixes] == [list(remedy.commands) for remedy in entry.remedies]
    assert [fix["position"] for fix in fixes] == list(range(1, len(entry.remedies) + 1))


def test_words_of_people_lead_to_the_cause_that_they_are_about(exported: Path) -> None:
    said = [row for row in exports.read_json(exported, "messages") if row["kind"] == "said"]
    assert said
    for row in said:
        # A sign of another cause may need them, too: several processes that share a memory that is full.
        assert row["values"]["of"] in row["causes"]


def test_every_cause_has_a_message_or_a_field_and_a_fix(exported: Path) -> None:
    fixed = {row["cause"] for row in exports.read_json(exported, "fixes")}
    for row in exports.read_json(exported, "causes"):
        assert row["kinds"] and row["id"] in fixed
