"""Write an export: every table in every format, with what people need to understand and to check it.

The same input gives the same bytes: an export contains no time of its own and nothing of the machine that
wrote it. Tables are written row by row, so a matrix may have any number of cells.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import msgspec

from .. import __version__
from ..errors import InputError
from ..model import codec
from ..model.codec import DocumentError
from ..model.prediction import PlannedCell
from ..model.record import Record
from ..resources import manual, root_directory
from ..system.files import read_file
from ..system.output_directory import whole_directory
from .formats import CSV, FORMATS, JSON, WRITERS, encoded
from .rows import (
    Cleaner,
    Predictions,
    cause_rows,
    check_rows,
    exported,
    fact_rows,
    fix_rows,
    message_rows,
    names_of,
    record_rows,
    source_rows,
)
from .tables import SCHEMA_VERSION, TABLES, Column, Kind, Table

SUMS = "SHA256SUMS"
#: Bytes that are read at once.
_BLOCK = 1 << 20
#: Files of the checkout that an export repeats.
_COPIED = ("CITATION.cff", "LICENSE")


@dataclass(frozen=True)
class Inputs:
    """The sources of an export.

    cells: read once, one by one. records: returns all records; called several times.
    profile, selectors: how the cells were chosen, for the description. redact: take names of people and
    machines out of the records.
    """

    cells: Iterable[PlannedCell]
    records: Callable[[], Iterator[Record]]
    profile: str
    selectors: tuple[str, ...]
    redact: bool


@dataclass(frozen=True)
class Written:
    """A file of an export. sha256: in hexadecimal."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True)
class TableWritten:
    """A table of an export. digest: see `Exported`. files: by format."""

    table: Table
    rows: int
    digest: str
    files: Mapping[str, Written]


@dataclass(frozen=True)
class Exported:
    """An export that was written.

    digest: of the rows of all tables, whatever their formats: `sha256:…` over a line `<digest> <name>` for
        each table. The digest of a table is the SHA-256 of its rows as JSON, each followed by a line feed.
    """

    tables: tuple[TableWritten, ...]
    digest: str


def export(directory: Path, inputs: Inputs, formats: Sequence[str]) -> Exported:
    """Write an export to a directory that does not exist, is empty, or is an older export.

    Raises InputError for another directory, and MissingError if it can't be written.
    """
    with whole_directory(directory, _check_is_export) as place:
        tables = tuple(_write_table(place, table, rows, formats) for table, rows in _tables(inputs))
        lines = "".join(f"{written.digest} {written.table.name}\n" for written in tables)
        done = Exported(tables, f"sha256:{hashlib.sha256(lines.encode()).hexdigest()}")
        in_tables = [file for written in tables for file in written.files.values()]
        files = list(in_tables)
        (place / DIRECTORY).mkdir()
        for table in TABLES.values():
            schema = json_text(json_schema(table))
            files.append(_write_file(place, schema_path(table), schema))
        for name in _COPIED:
            files.append(_write_file(place, name, (root_directory() / name).read_bytes()))
        files.append(_write_file(place, "README.md", card(done, inputs).encode()))
        others = tuple(file.path for file in files if file not in in_tables)
        description = json_text(describe(done, inputs, others))
        files.append(_write_file(place, NAME, description))
        sums = "".join(f"{file.sha256}  {file.path}\n" for file in sorted(files, key=lambda file: file.path))
        _write_file(place, SUMS, sums.encode())
    return done


def _tables(inputs: Inputs) -> Iterator[tuple[Table, Iterable[msgspec.Struct]]]:
    """Yield each table with its rows. They have to be read in this order: some tables follow from others."""
    predictions = Predictions()
    yield TABLES["facts"], fact_rows()
    yield TABLES["sources"], source_rows()
    yield TABLES["predictions"], predictions.rows(inputs.cells)
    yield TABLES["reasons"], predictions.reasons()
    known = predictions.names
    cleaner = Cleaner(names_of(exported(inputs.records()), known) if inputs.redact else None, known)
    yield TABLES["records"], record_rows(exported(inputs.records()), cleaner)
    yield TABLES["checks"], check_rows(exported(inputs.records()), cleaner)
    yield TABLES["messages"], message_rows()
    yield TABLES["causes"], cause_rows()
    yield TABLES["fixes"], fix_rows()


def _write_table(
    place: Path, table: Table, rows: Iterable[msgspec.Struct], formats: Sequence[str]
) -> TableWritten:
    digest, count = hashlib.sha256(), 0
    paths = {name: f"{table.name}.{name}" for name in formats}
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(_new_file(place / path)) for path in paths.values()]
        writers = [WRITERS[name](stream, table) for name, stream in zip(formats, streams, strict=True)]
        try:
            for row in rows:
                row_json = encoded(row)
                digest.update(row_json + b"\n")
                count += 1
                for writer in writers:
                    writer.add(row, row_json)
        except BaseException:
            # Otherwise pyarrow would end the file when its writer is collected, and print that it can't.
            for writer in writers:
                with contextlib.suppress(Exception):
                    writer.close()
            raise
        for writer in writers:
            writer.close()
    files = {name: _written(place, path) for name, path in paths.items()}
    return TableWritten(table, count, digest.hexdigest(), files)


def _write_file(place: Path, path: str, content: bytes) -> Written:
    with _new_file(place / path) as stream:
        stream.write(content)
    return _written(place, path)


@contextlib.contextmanager
def _new_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a new file to write, and wait until it is on the disk."""
    with open(path, "xb") as stream:
        yield stream
        stream.flush()
        os.fsync(stream.fileno())


def _written(place: Path, path: str) -> Written:
    digest = hashlib.sha256()
    with open(place / path, "rb") as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
        return Written(path, stream.tell(), digest.hexdigest())


def _check_is_export(directory: Path) -> None:
    """Raise InputError unless a directory holds an export and nothing else."""
    try:
        known = files_of(read_file(directory / NAME)) | {NAME, SUMS}
    except (OSError, DocumentError) as error:
        raise InputError(
            f"{directory}: this directory is not empty and is not an export, so it is not replaced",
            hint="choose a new directory",
        ) from error
    found = {str(path.relative_to(directory)) for path in directory.rglob("*") if not path.is_dir()}
    if others := sorted(found - known):
        raise InputError(
            f"{directory}: this export contains a file that is not a part of it: {others[0]}",
            hint="move the file away, or choose a new directory",
        )


# Describe the tables: as JSON Schemas, and as the Table Schemas of a Frictionless Data Package.


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
        "fields": [_field(column) for column in table.columns],
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


# The descriptions of an export: a Frictionless Data Package, version 1, and a README.md for people.


#: The template of README.md.
_TEMPLATE = Path(__file__).parent / "card.md.jinja"
#: The file name that the format prescribes.
NAME = "datapackage.json"
_PROJECT = "tensorflow-gpu-matrix"
_HOMEPAGE = "https://github.com/tensorflow-gpu-matrix/tensorflow-gpu-matrix"
#: Our own part of the description, by which an export is recognized.
_EXPORT = "export"


def json_text(document: Any) -> bytes:
    """Return a description as JSON for people and programs."""
    return json.dumps(document, indent=2, ensure_ascii=False).encode() + b"\n"


def describe(done: Exported, inputs: Inputs, others: tuple[str, ...]) -> dict[str, Any]:
    """Return the content of datapackage.json. others: the paths of the files that are not tables."""
    return {
        "profile": "data-package",
        "name": _PROJECT,
        "title": "Which TensorFlow, CUDA, cuDNN and NVIDIA driver work together",
        "description": "Facts with their sources, predictions with their reasons, records of measurements,"
        " and a catalogue of messages with their causes and fixes. README.md describes all of it.",
        "version": __version__,
        "homepage": _HOMEPAGE,
        "licenses": [{"name": "Apache-2.0", "path": "LICENSE", "title": "Apache License 2.0"}],
        "keywords": ["cuda", "cudnn", "gpu", "tensorflow"],
        _EXPORT: {
            "tool": __version__,
            "schema": SCHEMA_VERSION,
            "digest": done.digest,
            "profile": inputs.profile,
            "select": list(inputs.selectors),
            "redacted": inputs.redact,
            "tables": {
                written.table.name: {"rows": written.rows, "digest": f"sha256:{written.digest}"}
                for written in done.tables
            },
            "files": sorted(others),
        },
        "resources": [_resource(written, format_) for written in done.tables for format_ in written.files],
    }


def files_of(data: bytes) -> set[str]:
    """Return the paths that the description of an export names. Raises DocumentError if it is none."""
    document = codec.parse(data)
    try:
        if document["name"] != _PROJECT:
            raise DocumentError("it is the description of something else")
        resources = {resource["path"] for resource in document["resources"]}
        return resources | set(document[_EXPORT]["files"])
    except (LookupError, TypeError) as error:
        raise DocumentError("it is not the description of an export") from error


def _resource(written: TableWritten, format_: str) -> dict[str, Any]:
    table, file = written.table, written.files[format_]
    resource = {
        "name": f"{table.name}-{format_}",
        "path": file.path,
        "title": table.name,
        "description": table.about,
        "format": format_,
        "mediatype": FORMATS[format_],
        "bytes": file.size,
        "hash": f"sha256:{file.sha256}",
    }
    if format_ == CSV:
        schema = table_schema(table, f"{{}}-{CSV}")
        return resource | {"profile": "tabular-data-resource", "encoding": "utf-8", "schema": schema}
    # Parquet has the types in the file, and JSON has a JSON Schema. The program `frictionless` checks the
    # size of files, but not of tables in these formats.
    resource |= {"profile": "data-resource", "type": "file"}
    return resource | ({"json_schema": schema_path(table)} if format_ == JSON else {})


def card(done: Exported, inputs: Inputs) -> str:
    """Return the data card as Markdown."""
    # Only a package has a card; other exports start faster without the template engine.
    import jinja2

    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    return environment.from_string(_TEMPLATE.read_text(encoding="utf-8")).render(
        version=__version__,
        schema=SCHEMA_VERSION,
        digest=done.digest,
        profile=inputs.profile,
        selectors=inputs.selectors,
        redacted=inputs.redact,
        tables=[(written.table.name, written.rows, written.table.about) for written in done.tables],
        formats=list(done.tables[0].files),
        reference=manual("how-to/use-the-data.md"),
        how_to=manual("how-to/use-the-data.md"),
        verdicts=manual("explanation/verdicts.md"),
        facts=manual("reference/facts.md"),
    )
