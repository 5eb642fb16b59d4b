"""Write an export: every table in every format, with what people need to understand and to check it.

The same input gives the same bytes: an export contains no time of its own and nothing of the machine that
wrote it. Tables are written row by row, so a matrix may have any number of cells.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
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
from .tables import CSV, FORMATS, JSON, SCHEMA_VERSION, TABLES, WRITERS, Column, Kind, Table, encoded

#: The file name that the format prescribes.
NAME = "datapackage.json"
SUMS = "SHA256SUMS"
#: The directory of the JSON Schemas in an export.
DIRECTORY = "schemas"
#: Bytes that are read at once.
_BLOCK = 1 << 20
#: Files of the checkout that an export repeats.
_COPIED = ("CITATION.cff", "LICENSE")
_PROJECT = "tensorflow-gpu-matrix"
#: Our own part of the description, by which an export is recognized.
_EXPORT = "export"
#: The types of Table Schema (https://specs.frictionlessdata.io/table-schema/) that have another name.
_TYPES = {Kind.TEXT: "string", Kind.CHOICE: "string", Kind.TIME: "datetime", Kind.LIST: "array"}


@dataclass(frozen=True)
class Written:
    """A table of an export. digest: see `Exported`.

    resources: its files, as datapackage.json has them, except that `hash` is only the SHA-256.
    """

    table: Table
    rows: int
    digest: str
    resources: list[dict[str, Any]]


@dataclass(frozen=True)
class Exported:
    """An export that was written.

    digest: of the rows of all tables, whatever their formats: `sha256:…` over a line `<digest> <name>` for
        each table. The digest of a table is the SHA-256 of its rows as JSON, each followed by a line feed.
    """

    tables: tuple[Written, ...]
    digest: str


def export(
    directory: Path,
    cells: Iterable[PlannedCell],
    records: Callable[[], Iterator[Record]],
    formats: Sequence[str],
    *,
    profile: str,
    selectors: tuple[str, ...] = (),
    redact: bool = True,
) -> Exported:
    """Write an export to a directory that does not exist, is empty, or is an older export.

    cells: read once, one by one. records: returns all records; called several times. profile, selectors: how
    the cells were chosen. redact: take names of people and machines out of the records.

    Raises InputError for another directory, and MissingError if it can't be written.
    """
    with whole_directory(directory, _check_is_export) as place:
        found = _tables(cells, records, redact)
        tables = tuple(_write_table(place, table, rows, formats) for table, rows in found)
        lines = "".join(f"{written.digest} {written.table.name}\n" for written in tables)
        done = Exported(tables, f"sha256:{hashlib.sha256(lines.encode()).hexdigest()}")
        files = {schema_path(table): json_text(json_schema(table)) for table in TABLES.values()}
        files |= {name: (root_directory() / name).read_bytes() for name in _COPIED}
        files["README.md"] = card(done, profile, selectors, redact).encode()
        files[NAME] = json_text(_describe(done, profile, selectors, redact, sorted(files)))
        sums = {path: hashlib.sha256(content).hexdigest() for path, content in files.items()}
        for written in tables:
            sums |= {resource["path"]: resource["hash"] for resource in written.resources}
        files[SUMS] = "".join(f"{digest}  {path}\n" for path, digest in sorted(sums.items())).encode()
        (place / DIRECTORY).mkdir()
        for path, content in files.items():
            with _new_file(place / path) as stream:
                stream.write(content)
    return done


def _tables(
    cells: Iterable[PlannedCell], records: Callable[[], Iterator[Record]], redact: bool
) -> Iterator[tuple[Table, Iterable[msgspec.Struct]]]:
    """Yield each table with its rows. They have to be read in this order: some tables follow from others."""
    predictions = Predictions()
    yield TABLES["facts"], fact_rows()
    yield TABLES["sources"], source_rows()
    yield TABLES["predictions"], predictions.rows(cells)
    yield TABLES["reasons"], predictions.reasons()
    known = predictions.names
    cleaner = Cleaner(names_of(exported(records()), known) if redact else None, known)
    yield TABLES["records"], record_rows(exported(records()), cleaner)
    yield TABLES["checks"], check_rows(exported(records()), cleaner)
    yield TABLES["messages"], message_rows()
    yield TABLES["causes"], cause_rows()
    yield TABLES["fixes"], fix_rows()


def _write_table(
    place: Path, table: Table, rows: Iterable[msgspec.Struct], formats: Sequence[str]
) -> Written:
    """Write the rows in every format, each as it comes."""
    digest, count = hashlib.sha256(), 0
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(_new_file(place / f"{table.name}.{name}")) for name in formats]
        writes = [
            stack.enter_context(WRITERS[name](stream, table))
            for name, stream in zip(formats, streams, strict=True)
        ]
        for row in rows:
            row_json = encoded(row)
            digest.update(row_json + b"\n")
            count += 1
            for write in writes:
                write(row, row_json)
    return Written(table, count, digest.hexdigest(), [_resource(place, table, name) for name in formats])


@contextlib.contextmanager
def _new_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a new file to write, and wait until it is on the disk."""
    with open(path, "xb") as stream:
        yield stream
        stream.flush()
        os.fsync(stream.fileno())


def _check_is_export(directory: Path) -> None:
    """Raise InputError unless a directory holds an export and nothing else."""
    try:
        document = codec.parse(read_file(directory / NAME))
        if document["name"] != _PROJECT:
            raise DocumentError("it is the description of something else")
        known = {resource["path"] for resource in document["resources"]}
        known |= {*document[_EXPORT]["files"], NAME, SUMS}
    except (OSError, DocumentError, LookupError, TypeError) as error:
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


# Describe an export: JSON Schemas, a Frictionless Data Package (version 1), and a README.md for people.


def json_text(document: Any) -> bytes:
    """Return a description as JSON for people and programs."""
    return json.dumps(document, indent=2, ensure_ascii=False).encode() + b"\n"


def schema_path(table: Table) -> str:
    """Return the path of a table's JSON Schema in an export."""
    return f"{DIRECTORY}/{table.name}.schema.json"


def json_schema(table: Table) -> dict[str, Any]:
    """Return the JSON Schema of a table's JSON file, an array of rows."""
    (row,), parts = msgspec.json.schema_components([table.row], ref_template="#/$defs/{name}")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"https://tensorflow-gpu-matrix.github.io/data/v{SCHEMA_VERSION}/{table.name}",
        "title": table.name,
        "type": "array",
        "items": row,
        "$defs": parts,
    }


def _resource(place: Path, table: Table, format_: str) -> dict[str, Any]:
    """Return the description of a file with a table. Parquet has the types in the file itself."""
    path, digest = f"{table.name}.{format_}", hashlib.sha256()
    with open(place / path, "rb") as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
        size = stream.tell()
    resource: dict[str, Any] = {
        "name": f"{table.name}-{format_}",
        "path": path,
        "title": table.name,
        "description": table.about,
        "format": format_,
        "mediatype": FORMATS[format_],
        "bytes": size,
        "hash": digest.hexdigest(),
    }
    if format_ == CSV:
        schema = _table_schema(table)
        return resource | {"profile": "tabular-data-resource", "encoding": "utf-8", "schema": schema}
    # The program `frictionless` checks the size of files, but not of tables in these formats.
    resource |= {"profile": "data-resource", "type": "file"}
    return resource | ({"json_schema": schema_path(table)} if format_ == JSON else {})


def _table_schema(table: Table) -> dict[str, Any]:
    """Return the Table Schema of a table in CSV."""

    def field(column: Column) -> dict[str, Any]:
        type_ = _TYPES.get(column.kind, column.kind.value)
        if column.kind is Kind.JSON:
            type_ = "array" if column.is_array else "object"
        constraints: dict[str, Any] = {"required": not column.nullable}
        if column.choices:
            constraints["enum"] = list(column.choices)
        # A time is with or without a fraction of a second.
        format_ = {"format": "any"} if column.kind is Kind.TIME else {}
        described = {"name": column.name, "type": type_, "description": column.description}
        return described | format_ | {"constraints": constraints}

    schema: dict[str, Any] = {
        "fields": [field(column) for column in table.columns],
        "primaryKey": "id",
        "missingValues": [""],
    }
    if table.refers:
        schema["foreignKeys"] = [
            {"fields": column, "reference": {"resource": f"{name}-{CSV}", "fields": "id"}}
            for column, name in table.refers.items()
        ]
    return schema


def _describe(
    done: Exported, profile: str, selectors: Sequence[str], redact: bool, others: list[str]
) -> dict[str, Any]:
    """Return the content of datapackage.json. others: the paths of the files that are not tables."""
    return {
        "profile": "data-package",
        "name": _PROJECT,
        "title": "Which TensorFlow, CUDA, cuDNN and NVIDIA driver work together",
        "description": "Facts with their sources, predictions with their reasons, records of measurements,"
        " and a catalogue of messages with their causes and fixes. README.md describes all of it.",
        "version": __version__,
        "homepage": "https://github.com/tensorflow-gpu-matrix/tensorflow-gpu-matrix",
        "licenses": [{"name": "Apache-2.0", "path": "LICENSE", "title": "Apache License 2.0"}],
        "keywords": ["cuda", "cudnn", "gpu", "tensorflow"],
        _EXPORT: {
            "tool": __version__,
            "schema": SCHEMA_VERSION,
            "digest": done.digest,
            "profile": profile,
            "select": list(selectors),
            "redacted": redact,
            "tables": {
                written.table.name: {"rows": written.rows, "digest": f"sha256:{written.digest}"}
                for written in done.tables
            },
            "files": others,
        },
        "resources": [
            {**resource, "hash": f"sha256:{resource['hash']}"}
            for written in done.tables
            for resource in written.resources
        ],
    }


def card(done: Exported, profile: str, selectors: Sequence[str], redact: bool) -> str:
    """Return the data card as Markdown."""
    # Only a package has a card; other exports start faster without the template engine.
    import jinja2

    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    template = Path(__file__).with_name("card.md.jinja").read_text(encoding="utf-8")
    return environment.from_string(template).render(
        version=__version__,
        schema=SCHEMA_VERSION,
        digest=done.digest,
        profile=profile,
        selectors=selectors,
        redacted=redact,
        tables=[(written.table.name, written.rows, written.table.about) for written in done.tables],
        formats=[resource["format"] for resource in done.tables[0].resources],
        how_to=manual("how-to/use-the-data.md"),
        verdicts=manual("explanation/verdicts.md"),
        facts=manual("reference/facts.md"),
    )
