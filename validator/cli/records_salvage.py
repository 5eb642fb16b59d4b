"""`records salvage`: get the good records out of a damaged store."""

from __future__ import annotations

import io
from pathlib import Path

import click

from ..errors import EXIT_FAILED, EXIT_OK, InputError
from ..records import jsonl
from ..reports.printable import counted
from ..system.files import write_atomically
from .options import matrix_option, print_status, store_option, store_url_for, verbose_option


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
