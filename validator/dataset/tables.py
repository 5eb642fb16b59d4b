"""The tables of an export, made from `tables.yaml`: a class for the rows of each table, and its columns.

Everything else is made from them: the JSON Schemas, the types of the columns in Parquet, the Table Schemas in
`datapackage.json`, and the site's reference. The rows are written here too: as JSON, CSV or Parquet.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal, get_args

import msgspec
import yaml
from msgspec import Meta

from ..diagnosis.observations import Certainty
from ..errors import MissingError
from ..model.prediction import Outcome, Rank, Rule
from ..model.record import Origin, Verdict
from ..model.report import CheckOutcome
from ..model.spec import Variant
from ..resources import install_hint

if TYPE_CHECKING:
    import pyarrow

#: The version of the tables. It changes when a program that reads the older one would misread the newer one.
SCHEMA_VERSION = 1

#: `compat.facts.STATUSES`, as a type.
Status = Literal["measured", "verified", "verified-local", "derived", "unverified", "reported"]


class Kind(Enum):
    """The type of a column. LIST: of texts. JSON: an object or an array of any shape."""

    TEXT = "text"
    CHOICE = "choice"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    TIME = "time"
    LIST = "list"
    JSON = "json"


#: The types in `tables.yaml` that have no fixed values.
_TYPES: dict[str, tuple[Kind, Any]] = {
    "text": (Kind.TEXT, str),
    "integer": (Kind.INTEGER, int),
    "number": (Kind.NUMBER, float),
    "boolean": (Kind.BOOLEAN, bool),
    "time": (Kind.TIME, Annotated[datetime, Meta(tz=True)]),
    "texts": (Kind.LIST, tuple[str, ...]),
    "array": (Kind.JSON, list[Any]),
    "object": (Kind.JSON, dict[str, Any]),
    "text object": (Kind.JSON, dict[str, str]),
}
#: Those with fixed values: an Enum in its own order, a Literal sorted.
_ENUMS: tuple[type[Enum], ...] = (Certainty, CheckOutcome, Origin, Outcome, Rank, Variant, Verdict)
_LITERALS = {"Status": Status, "Rule": Rule, "Mode": Literal["eager", "xla"]}
_CHOICES: dict[str, tuple[Any, tuple[str, ...]]] = {
    **{kind.__name__: (kind, tuple(member.value for member in kind)) for kind in _ENUMS},
    **{name: (kind, tuple(sorted(get_args(kind)))) for name, kind in _LITERALS.items()},
}


@dataclass(frozen=True)
class Column:
    """A column.

    choices: the values of a choice, in the order in which the code lists them.
    is_array: for JSON, whether it is an array and not an object.
    """

    name: str
    kind: Kind
    nullable: bool
    description: str
    example: Any
    choices: tuple[str, ...] = ()
    is_array: bool = False


@dataclass(frozen=True)
class Table:
    """A table. row: makes a row. refers: by column, the table whose id the column holds."""

    name: str
    about: str
    row: Callable[..., Any]
    columns: tuple[Column, ...]
    refers: Mapping[str, str]


def _table(name: str, stated: Mapping[str, Any]) -> Table:
    columns, fields = [], []
    for column, (type_, description, example) in stated["columns"].items():
        plain = type_.removesuffix("?")
        nullable = plain != type_
        if plain in _CHOICES:
            kind, (value, choices) = Kind.CHOICE, _CHOICES[plain]
        else:
            (kind, value), choices = _TYPES[plain], ()
        columns.append(Column(column, kind, nullable, description, example, choices, plain == "array"))
        meta = Meta(description=description, examples=[example])
        fields.append((column, Annotated[value | None if nullable else value, meta]))
    row = msgspec.defstruct(
        stated["row"], fields, namespace={"__doc__": stated["about"]}, frozen=True, forbid_unknown_fields=True
    )
    return Table(name, stated["about"], row, tuple(columns), stated.get("refers", {}))


_STATED = yaml.safe_load(Path(__file__).with_name("tables.yaml").read_text(encoding="utf-8"))
TABLES = {name: _table(name, stated) for name, stated in _STATED.items()}


# Write the rows of a table as JSON, CSV or Parquet, one by one. All three have the same columns.


JSON, CSV, PARQUET = "json", "csv", "parquet"
#: The formats with their media types.
FORMATS = {JSON: "application/json", CSV: "text/csv", PARQUET: "application/vnd.apache.parquet"}
#: Rows that are in memory at once, and that Parquet has in a row group.
_GROUP = 10_000
#: A cell that starts with one of these is a formula to a spreadsheet, also with the wide forms of the signs.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
#: Stands before such a text, and before one that starts with it, so that it can be taken away again.
_GUARD = "'"
_GUARDED = (*_FORMULA, _GUARD)

#: Writes a row, which is also given as JSON.
Write = Callable[[msgspec.Struct, bytes], object]


def encoded(row: object) -> bytes:
    """Return a row, or the value of a column, as JSON: the same bytes for the same values."""
    return msgspec.json.encode(row, order="deterministic")


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
    """Write RFC 4180 in UTF-8, with a line of names.

    An empty field is null, and `""` is an empty text. Lists and JSON are JSON. A text that a spreadsheet
    would take for a formula has `'` in front of it, and so has one that starts with `'`.
    """

    def field(column: Column, value: Any) -> str:
        if value is None:
            return ""
        text: str
        if column.kind is Kind.TEXT:
            text = _GUARD + value if value.startswith(_GUARDED) else value
        elif column.kind is Kind.CHOICE:
            text = _plain(value)
        else:
            text = encoded(value).decode()
            if column.kind is Kind.TIME:
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
        Kind.TEXT: pyarrow.string(),
        Kind.CHOICE: pyarrow.dictionary(pyarrow.int32(), pyarrow.string()),
        Kind.INTEGER: pyarrow.int64(),
        Kind.NUMBER: pyarrow.float64(),
        Kind.BOOLEAN: pyarrow.bool_(),
        Kind.TIME: pyarrow.timestamp("us", tz="UTC"),
        Kind.LIST: pyarrow.list_(pyarrow.string()),
        Kind.JSON: pyarrow.string(),
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
        if column.kind is Kind.CHOICE:
            places = {choice: place for place, choice in enumerate(column.choices)}
            indices = [None if value is None else places[_plain(value)] for value in values]
            return pyarrow.DictionaryArray.from_arrays(
                pyarrow.array(indices, pyarrow.int32()), pyarrow.array(column.choices)
            )
        if column.kind is Kind.JSON:
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
    if not wanted:
        return _all_here(tell)
    if PARQUET in wanted and find_spec("pyarrow") is None:
        others = ",".join(name for name in FORMATS if name != PARQUET)
        install = install_hint("parquet")
        hint = f"install it with `{install}`, or choose other formats with --format {others}"
        raise MissingError(_NO_PYARROW, hint=hint)
    return wanted


def _all_here(tell: Callable[[str], object]) -> tuple[str, ...]:
    if find_spec("pyarrow") is not None:
        return tuple(FORMATS)
    tell(f"No Parquet is written: {_NO_PYARROW}. `{install_hint('parquet')}` installs it.")
    return tuple(name for name in FORMATS if name != PARQUET)
