"""`records`: list, show, import and export what was recorded."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import InputError
from . import records_changes
from .options import (
    format_option,
    matrix_option,
    say,
    store_option,
    store_to_read,
    store_url_for,
    verbose_option,
)


@click.command("list")
@matrix_option
@store_option
@click.option("--cell", help="Of this cell alone.")
@click.option("--image", help="Of this image spec alone.")
@click.option(
    "--verdict",
    type=click.Choice(["certified", "failed", "unproven", "broken"]),
    help="With this verdict alone.",
)
@format_option("table", "json")
@verbose_option
def list_command(
    matrix_path: Path,
    store_url: str | None,
    cell: str | None,
    image: str | None,
    verdict: str | None,
    format_: str,
) -> None:
    """List records, oldest first."""
    with store_to_read(matrix_path, store_url) as store:
        found = [
            record for record in store.all(cell=cell, image=image) if verdict in (None, record.verdict.value)
        ]
    if format_ == "json":
        # Reports are long; `show` and `export` have them.
        click.echo(json.dumps([record.document() | {"report": None} for record in found], indent=2))
    else:
        from ..reports.terminal import records_table, show

        show(records_table(found))
        say(f"{len(found)} records")


@click.command("show")
@click.argument("identifier")
@matrix_option
@store_option
@format_option("text", "json")
@verbose_option
def show_command(identifier: str, matrix_path: Path, store_url: str | None, format_: str) -> None:
    """Show one record with its checks. IDENTIFIER may be cut to its first digits."""
    with store_to_read(matrix_path, store_url) as store:
        record = store.get(identifier)
    if format_ == "json":
        click.echo(json.dumps(record.document(), indent=2))
    else:
        from ..reports.terminal import record_text, show

        show(record_text(record))


_READING = (list_command, show_command)


# `records export` and `records import`: records as JSON Lines.

if TYPE_CHECKING:
    from ..model.record import Record


@click.command("export")
@matrix_option
@store_option
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="A file, written whole or not at all.  [default: stdout]",
)
@verbose_option
def export_command(matrix_path: Path, store_url: str | None, output: Path | None) -> None:
    """Write every record as JSON Lines."""
    import io

    from ..records import jsonl
    from ..system.files import write_atomically

    with store_to_read(matrix_path, store_url) as store:
        if output is None:
            count = jsonl.write(store.all(), sys.stdout)
        else:
            text = io.StringIO()
            count = jsonl.write(store.all(), text)
            write_atomically(output, text.getvalue().encode())
    say(f"{count} records exported")


@click.command("import")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--report",
    "reports",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A report that probe.pyz wrote on another machine; its record is marked as imported.",
)
@matrix_option
@store_option
@verbose_option
def import_command(
    files: tuple[Path, ...], reports: tuple[Path, ...], matrix_path: Path, store_url: str | None
) -> None:
    """Read records from JSON Lines FILES (- for stdin), plain or gzipped. Importing twice changes nothing.

    Of a directory every file is read whose name ends in .jsonl or .jsonl.gz. With anything wrong in any of
    them all are refused before anything is written, and what is written is written together.
    """
    if not files and not reports:
        raise click.UsageError("name a file of JSON Lines, or a report with --report")
    from ..records import jsonl
    from ..records.store import Store

    read = 0
    found: dict[str, Record] = {}
    for path in (path for name in files for path in jsonl.files_of(name)):
        for record in jsonl.read_file(path):
            read += 1
            found[record.id] = record
    brought = [_record_of_report(path) for path in reports]
    with Store(store_url_for(matrix_path, store_url)) as store:
        added = store.add_all([*found.values(), *brought])
    say(f"{added} records imported, {read + len(brought) - added} were there already")


def _record_of_report(path: Path) -> Record:
    from ..model.codec import LARGEST
    from ..model.report import ReportError, read_report
    from ..pipeline.recording import record_of_report

    try:
        with open(path, "rb") as stream:
            return record_of_report(read_report(stream.read(LARGEST + 1)))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    except ReportError as error:
        raise InputError(
            f"{path}: {error}", hint="a report is what `python3 probe.pyz > report.json` writes"
        ) from error


_MOVING = (export_command, import_command)


# `records`: what was recorded, moved between machines, and compared over time.


@click.group("records")
def command() -> None:
    """List, show, move and compare what was recorded; say what got worse, and since when."""


for _part in (*_READING, *_MOVING, *records_changes.COMMANDS):
    command.add_command(_part)
