"""`records merge` and `records salvage`: get the good records of many machines, or of a damaged store."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from ..errors import EXIT_FAILED, EXIT_OK, InputError
from ..model import codec
from ..model.codec import DocumentError
from ..model.timestamps import now_utc
from ..records import jsonl
from ..reports.printable import counted, one_line
from ..system.files import write_atomically
from .options import matrix_option, print_status, store_option, store_url_for, verbose_option

if TYPE_CHECKING:
    from ..records.artifacts import Merged, Refused


@click.command("merge")
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--cells",
    "cells_path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The cells that should have been measured, as `plan --format github` prints them.",
)
@click.option(
    "--summary",
    "summary_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Append Markdown to this file: cells without a record, and what was refused.",
)
@click.option(
    "--refused",
    "refused_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write what was refused to this file, for `regressions --refused`.",
)
@matrix_option
@store_option
@verbose_option
def merge_command(
    directory: Path,
    cells_path: Path | None,
    summary_path: Path | None,
    refused_path: Path | None,
    matrix_path: Path,
    store_url: str | None,
) -> None:
    """Merge records that other machines delivered: each directory in DIRECTORY is from one machine.

    An artifact that is damaged, too large, or contains anything but good records is refused as a whole,
    with its name and the reason, and the others are merged. The exit code is 0 even then.
    """
    from ..records.artifacts import merge
    from ..records.store import Store

    planned = _planned(cells_path) if cells_path is not None else ()
    with Store(store_url_for(matrix_path, store_url)) as store:
        merged = merge(directory, store, now_utc(), planned)
    for each in merged.refused:
        print_status(f"Refused {one_line(each.artifact)}: {one_line(each.reason)}")
    print_status(_result(merged))
    if summary_path is not None:
        from ..reports.merged import summary

        with open(summary_path, "a", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(summary(merged, planned))
    if refused_path is not None:
        write_atomically(refused_path, json.dumps(codec.encode(merged.refused), indent=1).encode() + b"\n")


def read_refused(path: Path) -> tuple[Refused, ...]:
    """Read what `merge --refused` wrote. Raises InputError for anything else."""
    from ..records.artifacts import Refused

    try:
        return codec.convert(codec.parse(path.read_bytes()), tuple[Refused, ...])
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    except DocumentError as error:
        raise InputError(f"{path}: {error}", hint="write it with `records merge --refused`") from None


class _PlannedCell(msgspec.Struct):
    id: str


class _Planned(msgspec.Struct):
    include: tuple[_PlannedCell, ...]


def _planned(path: Path) -> tuple[str, ...]:
    hint = "write what `python -m validator plan --format github` prints to this file"
    try:
        matrices = [codec.convert(codec.parse(line), _Planned) for line in path.read_bytes().splitlines()]
    except OSError as error:
        raise InputError(f"{path}: can't be read: {error.strerror}", hint=hint) from error
    except DocumentError as error:
        raise InputError(f"{path}: {error}", hint=hint) from None
    if not matrices:
        raise InputError(f"{path}: the file is empty", hint=hint)
    return tuple(cell.id for matrix in matrices for cell in matrix.include)


def _result(merged: Merged) -> str:
    refused = f"; {len(merged.refused)} refused" if merged.refused else ""
    return f"{counted(merged.added, 'new record')} of {counted(merged.artifacts, 'artifact')} merged{refused}"


@click.command("salvage")
@matrix_option
@store_option
@click.option(
    "--output",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file to write, as JSON Lines; `records import` reads it.",
)
@verbose_option
def salvage_command(matrix_path: Path, store_url: str | None, output: Path) -> int:
    """Get the good records out of a damaged SQLite file, and say how many are lost.

    Writes every record that still matches its own digest. It also reads a file that SQLite rejects: cut off,
    without its header, with pages overwritten. The store itself is not changed. The exit code is 1 if records
    are lost.
    """
    from ..records.salvage import salvage

    url = store_url_for(matrix_path, store_url)
    name = url.removeprefix("sqlite://")
    if "://" in name:
        raise InputError(
            "--store: only SQLite files can be salvaged",
            hint="for PostgreSQL, restore a backup, or use the server's own tools",
        )
    # In a URL, an absolute path follows a third slash, and parameters a question mark.
    path = Path(name if name == url else name.removeprefix("/").partition("?")[0])
    found = salvage(path)
    if not found.records:
        raise InputError(
            f"{path}: it contains no intact record{f', and {found.lost} are lost' if found.lost else ''}",
            hint="check that it is the SQLite file of a store; if it is encrypted or erased, use a backup",
        )
    text = io.StringIO()
    jsonl.write(sorted(found.records.values(), key=lambda record: (record.finished, record.id)), text)
    write_atomically(output, text.getvalue().encode())
    print_status(f"{counted(len(found.records), 'record')} written to {output}, {found.lost} lost")
    return EXIT_FAILED if found.lost else EXIT_OK
