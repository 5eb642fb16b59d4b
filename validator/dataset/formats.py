"""Write the rows of a table as JSON, CSV or Parquet, one by one. All three have the same columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import IO, TYPE_CHECKING, Any, Protocol

import msgspec

from ..errors import MissingError
from ..resources import install_hint
from .tables import SCHEMA_VERSION, Column, Kind, Table

if TYPE_CHECKING:
    import pyarrow

JSON, CSV, PARQUET = "json", "csv", "parquet"
#: The formats with their media types.
FORMATS = {JSON: "application/json", CSV: "text/csv", PARQUET: "application/vnd.apache.parquet"}
#: Rows that are in memory at once, and that Parquet has in a row group.
_GROUP = 10_000
#: A cell that starts with one of these is a formula to a spreadsheet, also with the wide forms of the signs.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
#: Stands before such a text, and before one that starts with it, so that it can be taken away again.
GUARD = "'"
_GUARDED = (*_FORMULA, GUARD)


class Writer(Protocol):
    """Writes the rows of one table to a file. row_json: the row as JSON."""

    def add(self, row: msgspec.Struct, row_json: bytes) -> None: ...

    def close(self) -> None: ...


def encoded(row: object) -> bytes:
    """Return a row, or the value of a column, as JSON: the same bytes for the same values."""
    return msgspec.json.encode(row, order="deterministic")


class JsonWriter:
    """An array with one row on each line."""

    def __init__(self, stream: IO[bytes], table: Table) -> None:
        self._stream = stream
        self._separator = b"[\n"

    def add(self, row: msgspec.Struct, row_json: bytes) -> None:
        self._stream.write(self._separator + row_json)
        self._separator = b",\n"

    def close(self) -> None:
        self._stream.write(b"\n]\n" if self._separator == b",\n" else b"[]\n")


class CsvWriter:
    """RFC 4180 in UTF-8, with a line of names.

    An empty field is null, and `""` is an empty text. Lists and JSON are JSON. A text that a spreadsheet
    would take for a formula has `'` in front of it, and so has one that starts with `'`.
    """

    def __init__(self, stream: IO[bytes], table: Table) -> None:
        self._stream = stream
        self._fields = [(column.name, _csv_of(column)) for column in table.columns]
        self._write(column.name for column in table.columns)

    def add(self, row: msgspec.Struct, row_json: bytes) -> None:
        self._write(
            "" if (value := getattr(row, name)) is None else text(value) for name, text in self._fields
        )

    def close(self) -> None:
        pass

    def _write(self, fields: Any) -> None:
        self._stream.write((",".join(fields) + "\r\n").encode())


def _csv_of(column: Column) -> Callable[[Any], str]:
    """Return the function that writes a value of a column that is not null."""
    if column.kind is Kind.TEXT:
        return _csv_text
    if column.kind is Kind.CHOICE:
        return lambda value: _quoted(_plain(value))
    # Numbers, `true` and times are the same as in JSON; a time without its quotation marks.
    if column.kind is Kind.TIME:
        return lambda value: encoded(value).decode()[1:-1]
    return lambda value: _quoted(encoded(value).decode())


def _csv_text(text: str) -> str:
    return _quoted(GUARD + text if text.startswith(_GUARDED) else text)


def _quoted(text: str) -> str:
    if text and not any(character in text for character in ',"\r\n'):
        return text
    return '"' + text.replace('"', '""') + '"'


class ParquetWriter:
    """Columns with their types: times in UTC, lists, integers, and dictionaries for choices. JSON is text."""

    def __init__(self, stream: IO[bytes], table: Table) -> None:
        import pyarrow
        import pyarrow.parquet

        self._columns = table.columns
        about = {"table": table.name, "schema_version": str(SCHEMA_VERSION)}
        self._schema = pyarrow.schema([_field(column) for column in self._columns], metadata=about)
        self._writer = pyarrow.parquet.ParquetWriter(stream, self._schema, compression="zstd")
        self._rows: list[msgspec.Struct] = []

    def add(self, row: msgspec.Struct, row_json: bytes) -> None:
        self._rows.append(row)
        if len(self._rows) == _GROUP:
            self._flush()

    def close(self) -> None:
        if self._rows:
            self._flush()
        self._writer.close()

    def _flush(self) -> None:
        import pyarrow

        arrays = [
            _array(column, field.type, [getattr(row, column.name) for row in self._rows])
            for column, field in zip(self._columns, self._schema, strict=True)
        ]
        self._rows.clear()
        self._writer.write_table(
            pyarrow.Table.from_arrays(arrays, schema=self._schema), row_group_size=_GROUP
        )


def _field(column: Column) -> pyarrow.Field:
    import pyarrow

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
    return pyarrow.field(
        column.name,
        types[column.kind],
        nullable=column.nullable,
        metadata={"description": column.description},
    )


def _array(column: Column, type_: pyarrow.DataType, values: Sequence[Any]) -> pyarrow.Array:
    import pyarrow

    if column.kind is Kind.CHOICE:
        places = {choice: place for place, choice in enumerate(column.choices)}
        indices = [None if value is None else places[_plain(value)] for value in values]
        return pyarrow.DictionaryArray.from_arrays(
            pyarrow.array(indices, pyarrow.int32()), pyarrow.array(column.choices)
        )
    if column.kind is Kind.JSON:
        values = [encoded(value).decode() for value in values]
    return pyarrow.array(values, type_)


def _plain(choice: Any) -> str:
    """Return the text of a choice, which is one of an Enum or a Literal."""
    return str(getattr(choice, "value", choice))


WRITERS: dict[str, Callable[[IO[bytes], Table], Writer]] = {
    JSON: JsonWriter,
    CSV: CsvWriter,
    PARQUET: ParquetWriter,
}


def default_formats(tell: Callable[[str], object]) -> tuple[str, ...]:
    """Return the formats that can be written here. tell: called with what the others need."""
    try:
        require((PARQUET,))
    except MissingError as error:
        tell(f"No Parquet is written: {error}. `{install_hint('parquet')}` installs it.")
        return tuple(name for name in FORMATS if name != PARQUET)
    return tuple(FORMATS)


def require(formats: Sequence[str]) -> None:
    """Raise MissingError if a format needs a library that is not installed."""
    if PARQUET not in formats or find_spec("pyarrow") is not None:
        return
    others = ",".join(name for name in FORMATS if name != PARQUET)
    raise MissingError(
        "Parquet needs the library pyarrow, which is not installed",
        hint=f"install it with `{install_hint('parquet')}`, or choose other formats with --format {others}",
    )
