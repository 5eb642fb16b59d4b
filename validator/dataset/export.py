"""Write an export: every table as JSON, CSV and Parquet, with what people need to understand and to check it.

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
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec

from .. import __version__
from ..errors import InputError, MissingError
from ..model import codec
from ..model.codec import DocumentError
from ..model.prediction import PlannedCell, Reason
from ..model.record import Record
from ..resources import install_hint, manual, root_directory
from ..system.files import read_file
from ..system.output_directory import whole_directory
from .tables import (
    SCHEMA_VERSION,
    TABLES,
    Cleaner,
    Column,
    Table,
    cause_rows,
    check_rows,
    encoded,
    exported,
    fact_rows,
    fix_rows,
    message_rows,
    names_of,
    prediction_rows,
    reason_rows,
    record_rows,
    source_rows,
)

if TYPE_CHECKING:
    import pyarrow

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
_TYPES: dict[str, str] = {"text": "string", "choice": "string", "time": "datetime", "list": "array"}


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
    sources, reasons, known = dict[str, str](), dict[Reason, str](), set[str]()
    yield TABLES["facts"], fact_rows(sources)
    yield TABLES["sources"], source_rows(sources)
    yield TABLES["predictions"], prediction_rows(cells, reasons, known)
    yield TABLES["reasons"], reason_rows(reasons)
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
        type_ = _TYPES.get(column.kind, column.kind)
        if column.kind == "json":
            type_ = "array" if column.is_array else "object"
        constraints: dict[str, Any] = {"required": not column.nullable}
        if column.choices:
            constraints["enum"] = list(column.choices)
        # A time is with or without a fraction of a second.
        format_ = {"format": "any"} if column.kind == "time" else {}
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


# Write the rows of a table as JSON, CSV or Parquet, one by one. All three have the same columns.


JSON, CSV, PARQUET = "json", "csv", "parquet"
#: The formats with their media types.
FORMATS = {JSON: "application/json", CSV: "text/csv", PARQUET: "application/vnd.apache.parquet"}
#: The most rows in memory at once, and in a row group of Parquet.
_GROUP = 10_000
#: A spreadsheet takes a cell that starts with one of these for a formula. The last four are full-width signs.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
#: Put before such a text, and before one that already starts with it, so that readers can remove it again.
_GUARD = "'"
_GUARDED = (*_FORMULA, _GUARD)

#: Writes a row, which is also given as JSON.
Write = Callable[[msgspec.Struct, bytes], object]


@contextlib.contextmanager
def json_writer(stream: IO[bytes], table: Table) -> Iterator[Write]:
    """Write an array with one row on each line."""
    separator = b"[\n"

    def write(row: msgspec.Struct, row_json: bytes) -> None:
        nonlocal separator
        stream.write(separator + row_json)
        separator = b",\n"

    yield write
    stream.write(b"\n]\n" if separator == b",\n" else b"[]\n")


@contextlib.contextmanager
def csv_writer(stream: IO[bytes], table: Table) -> Iterator[Write]:
    """Write CSV (RFC 4180) in UTF-8, with a header line.

    An empty field is null, and `""` is an empty text. Lists and JSON are JSON. A text that a spreadsheet
    would take for a formula has `'` in front of it, and so has one that starts with `'`.
    """

    def field(column: Column, value: Any) -> str:
        if value is None:
            return ""
        text: str
        if column.kind == "text":
            text = _GUARD + value if value.startswith(_GUARDED) else value
        elif column.kind == "choice":
            text = _plain(value)
        else:
            text = encoded(value).decode()
            if column.kind == "time":
                return text.strip('"')
        if text and not any(character in text for character in ',"\r\n'):
            return text
        return '"' + text.replace('"', '""') + '"'

    def write(row: msgspec.Struct, row_json: bytes) -> None:
        fields = (field(column, getattr(row, column.name)) for column in table.columns)
        stream.write((",".join(fields) + "\r\n").encode())

    stream.write((",".join(column.name for column in table.columns) + "\r\n").encode())
    yield write


@contextlib.contextmanager
def parquet_writer(stream: IO[bytes], table: Table) -> Iterator[Write]:
    """Write columns with their types: times in UTC, lists, integers, and dictionaries for choices.

    JSON is text.
    """
    import pyarrow
    import pyarrow.parquet

    types = {
        "text": pyarrow.string(),
        "choice": pyarrow.dictionary(pyarrow.int32(), pyarrow.string()),
        "integer": pyarrow.int64(),
        "number": pyarrow.float64(),
        "boolean": pyarrow.bool_(),
        "time": pyarrow.timestamp("us", tz="UTC"),
        "list": pyarrow.list_(pyarrow.string()),
        "json": pyarrow.string(),
    }
    fields = [
        pyarrow.field(
            column.name, types[column.kind], column.nullable, metadata={"description": column.description}
        )
        for column in table.columns
    ]
    about = {"table": table.name, "schema_version": str(SCHEMA_VERSION)}
    schema = pyarrow.schema(fields, metadata=about)
    rows: list[msgspec.Struct] = []

    def array(column: Column, values: list[Any]) -> pyarrow.Array:
        if column.kind == "choice":
            places = {choice: place for place, choice in enumerate(column.choices)}
            indices = [None if value is None else places[_plain(value)] for value in values]
            return pyarrow.DictionaryArray.from_arrays(
                pyarrow.array(indices, pyarrow.int32()), pyarrow.array(column.choices)
            )
        if column.kind == "json":
            values = [encoded(value).decode() for value in values]
        return pyarrow.array(values, types[column.kind])

    def flush() -> None:
        arrays = [array(column, [getattr(row, column.name) for row in rows]) for column in table.columns]
        rows.clear()
        writer.write_table(pyarrow.Table.from_arrays(arrays, schema=schema), row_group_size=_GROUP)

    def write(row: msgspec.Struct, row_json: bytes) -> None:
        rows.append(row)
        if len(rows) == _GROUP:
            flush()

    writer = pyarrow.parquet.ParquetWriter(stream, schema, compression="zstd")
    try:
        yield write
        if rows:
            flush()
    except BaseException:
        # Otherwise pyarrow would end the file when its writer is collected, and print that it can't.
        with contextlib.suppress(Exception):
            writer.close()
        raise
    writer.close()


def _plain(choice: Any) -> str:
    """Return the text of a choice, which is one of an Enum or a Literal."""
    return str(getattr(choice, "value", choice))


WRITERS = {JSON: json_writer, CSV: csv_writer, PARQUET: parquet_writer}
_NO_PYARROW = "Parquet needs the library pyarrow, which is not installed"


def writable_formats(wanted: tuple[str, ...], tell: Callable[[str], object]) -> tuple[str, ...]:
    """Return the wanted formats, or all that can be written here if none is named.

    tell: called with what the others need. Raises MissingError if a wanted format needs a library that is not
    installed.
    """
    if find_spec("pyarrow") is not None or (wanted and PARQUET not in wanted):
        return wanted or tuple(FORMATS)
    install, others = install_hint("parquet"), tuple(name for name in FORMATS if name != PARQUET)
    if wanted:
        hint = f"install it with `{install}`, or choose other formats with --format {','.join(others)}"
        raise MissingError(_NO_PYARROW, hint=hint)
    tell(f"No Parquet is written: {_NO_PYARROW}. `{install}` installs it.")
    return others
