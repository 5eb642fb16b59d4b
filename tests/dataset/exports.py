"""Make exports and read them again, for the tests."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from validator.cli.planning import load_cells
from validator.dataset.export import FORMATS, Exported, export
from validator.dataset.tables import TABLES, Column, Table
from validator.model.prediction import PlannedCell
from validator.model.record import Record
from validator.resources import shipped_matrix

#: Every kind of cell: with and without CUDA, all outcomes, several versions.
SELECT = ("tensorflow=2.21.0", "python=3.12")


def cells(*selectors: str) -> Iterator[PlannedCell]:
    return load_cells(shipped_matrix(), "full", selectors)


def write(
    directory: Path,
    records: Sequence[Record] = (),
    *,
    formats: Iterable[str] = FORMATS,
    selectors: tuple[str, ...] = SELECT,
    redact: bool = True,
) -> Exported:
    return export(
        directory, cells(*selectors), lambda: iter(records), list(formats),
        profile="full", selectors=selectors, redact=redact,
    )  # fmt: skip


def read_json(directory: Path, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((directory / f"{name}.json").read_bytes())
    return rows


def read_csv(directory: Path, name: str) -> list[dict[str, Any]]:
    """Return the rows as the page docs/reference/data.md says that they are read."""
    with open(directory / f"{name}.csv", encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream, strict=True))
    columns = {column.name: column for column in TABLES[name].columns}
    return [{field: _value(columns[field], text) for field, text in row.items()} for row in rows]


def read_parquet(directory: Path, name: str) -> list[dict[str, Any]]:
    """Return the rows with JSON parsed, and with times as they are in JSON."""
    import pyarrow.parquet

    rows: list[dict[str, Any]] = pyarrow.parquet.read_table(directory / f"{name}.parquet").to_pylist()
    kinds = {column.name: column.kind for column in TABLES[name].columns}
    for row in rows:
        for field, value in row.items():
            if kinds[field] == "json":
                row[field] = json.loads(value)
            elif isinstance(value, datetime):
                row[field] = value.isoformat().replace("+00:00", "Z")
    return rows


def _value(column: Column, text: str) -> Any:
    # Python's module for CSV does not tell an empty text from no value.
    if text == "" and column.nullable:
        return None
    if column.kind == "text":
        return text.removeprefix("'")
    if column.kind in ("choice", "time"):
        return text
    return json.loads(text)


def files(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def table_names() -> list[str]:
    return list(TABLES)


def refers(table: Table) -> dict[str, str]:
    """Return by column the table that it refers to, also for lists of ids."""
    lists = {
        "facts": {"sources": "sources"},
        "predictions": {"reasons": "reasons"},
        "messages": {"causes": "causes"},
        "causes": {"explains": "causes"},
    }
    return {**table.refers, **lists.get(table.name, {})}
