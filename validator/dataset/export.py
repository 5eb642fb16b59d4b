"""Write an export: every table in every format, with what people need to understand and to check it.

The same input gives the same bytes: an export contains no time of its own and nothing of the machine that
wrote it. Tables are written row by row, so a matrix may have any number of cells.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import msgspec

from ..errors import InputError
from ..model.codec import DocumentError
from ..model.prediction import PlannedCell
from ..model.record import Record
from ..resources import root_directory
from ..system.whole_directory import whole_directory
from . import package, schemas
from .catalogue import cause_rows, fix_rows, message_rows
from .fact_rows import Predictions, fact_rows, source_rows
from .formats import WRITERS, encoded
from .records import Cleaner, check_rows, exported, names_of, record_rows
from .tables import TABLES, Table

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
        (place / schemas.DIRECTORY).mkdir()
        for table in TABLES:
            schema = package.json_text(schemas.json_schema(table))
            files.append(_write_file(place, schemas.schema_path(table), schema))
        for name in _COPIED:
            files.append(_write_file(place, name, (root_directory() / name).read_bytes()))
        files.append(_write_file(place, "README.md", package.card(done, inputs).encode()))
        others = tuple(file.path for file in files if file not in in_tables)
        description = package.json_text(package.describe(done, inputs, others))
        files.append(_write_file(place, package.NAME, description))
        sums = "".join(f"{file.sha256}  {file.path}\n" for file in sorted(files, key=lambda file: file.path))
        _write_file(place, SUMS, sums.encode())
    return done


def _tables(inputs: Inputs) -> Iterator[tuple[Table, Iterable[msgspec.Struct]]]:
    """Yield each table with its rows. They have to be read in this order: some tables follow from others."""
    tables = {table.name: table for table in TABLES}
    predictions = Predictions()
    yield tables["facts"], fact_rows()
    yield tables["sources"], source_rows()
    yield tables["predictions"], predictions.rows(inputs.cells)
    yield tables["reasons"], predictions.reasons()
    known = predictions.names
    cleaner = Cleaner(names_of(exported(inputs.records()), known) if inputs.redact else None, known)
    yield tables["records"], record_rows(exported(inputs.records()), cleaner)
    yield tables["checks"], check_rows(exported(inputs.records()), cleaner)
    yield tables["messages"], message_rows()
    yield tables["causes"], cause_rows()
    yield tables["fixes"], fix_rows()


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
        known = package.files_of((directory / package.NAME).read_bytes()) | {package.NAME, SUMS}
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
