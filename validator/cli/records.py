"""`records`: list, show, export and import records. `records_changes` has the commands that compare them."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Collection, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from ..errors import InputError
from ..model.codec import LARGEST
from ..model.record import Record
from ..model.report import read_report
from ..model.timestamps import now_utc
from ..pipeline.recording import record_of_report
from ..records import jsonl
from ..records.finish_time import WRONG_TIME_HINT, wrong_time
from ..reports.printable import counted, json_text
from ..resources import is_installed, manual
from ..system.files import write_atomically
from ..versions import is_numbers
from . import records_changes
from .groups import SuggestingGroup
from .options import (
    format_option,
    matrix_option,
    open_store,
    print_status,
    store_option,
    store_url_for,
    verbose_option,
)
from .records_merge import merge_command, salvage_command


@click.command("list")
@matrix_option
@store_option
@click.option("--cell", help="Only list records of this cell.")
@click.option("--image", help="Only list records of this image spec.")
@click.option(
    "--verdict",
    type=click.Choice(["certified", "works-on-cpu", "failed", "unproven", "broken"]),
    help="Only list records with this verdict.",
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
    with open_store(matrix_path, store_url) as store:
        found = [
            record for record in store.all(cell=cell, image=image) if verdict in (None, record.verdict.value)
        ]
    if format_ == "json":
        # Reports are long; `show` and `export` include them.
        click.echo(json_text([record.document() | {"report": None} for record in found]))
    else:
        from ..reports.terminal import records_table, show

        show(records_table(found))
        print_status(counted(len(found), "record"))
        now = now_utc()
        for record in found:
            if problem := wrong_time(record, now):
                print_status(f"Does not count as the newest: {problem}")


@click.command("show")
@click.argument("identifier")
@matrix_option
@store_option
@format_option("text", "json")
@verbose_option
def show_command(identifier: str, matrix_path: Path, store_url: str | None, format_: str) -> None:
    """Show one record with its checks. The first digits of its IDENTIFIER are enough."""
    with open_store(matrix_path, store_url) as store:
        record = store.get(identifier)
    if format_ == "json":
        click.echo(json_text(record.document()))
    else:
        from ..reports.terminal import record_text, show

        show(record_text(record))
        if problem := wrong_time(record, now_utc()):
            print_status(f"Does not count as the newest of its cell: {problem}")


@click.command("export")
@matrix_option
@store_option
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="The file to write; it is replaced only once everything is written.  [default: stdout]",
)
@verbose_option
def export_command(matrix_path: Path, store_url: str | None, output: Path | None) -> None:
    """Export all records as JSON Lines."""
    with open_store(matrix_path, store_url) as store:
        if output is None:
            count = jsonl.write(store.all(), sys.stdout)
        else:
            text = io.StringIO()
            count = jsonl.write(store.all(), text)
            write_atomically(output, text.getvalue().encode())
    print_status(f"{counted(count, 'record')} exported")


@click.command("import")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--any-time",
    is_flag=True,
    help="Also import records whose finish time can't be right. They never count as the newest.",
)
@click.option(
    "--report",
    "reports",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Import a report that probe.pyz wrote on another machine, as a record marked as imported.",
)
@matrix_option
@store_option
@verbose_option
def import_command(
    files: tuple[Path, ...],
    any_time: bool,
    reports: tuple[Path, ...],
    matrix_path: Path,
    store_url: str | None,
) -> None:
    """Import records from JSON Lines FILES (- for stdin), plain or gzipped. Importing twice changes nothing.

    From a directory, every file whose name ends in .jsonl or .jsonl.gz is imported. If anything is wrong in
    any file, nothing is imported. Wrong are a line that is not a record, an altered record, and a finish time
    that is not a timestamp or lies in the future.
    """
    if not files and not reports:
        raise click.UsageError("nothing to import: give a file of JSON Lines, or a report with --report")
    from ..records.store import Store

    read = 0
    now = None if any_time else now_utc()
    records: dict[str, Record] = {}
    for path in (path for name in files for path in jsonl.files_of(name)):
        for record in jsonl.read_file(path, now):
            read += 1
            records[record.id] = record
    converted = [_record_of_report(path, now) for path in reports]
    with Store(store_url_for(matrix_path, store_url)) as store:
        added = store.add_all([*records.values(), *converted])
    print_status(f"{counted(added, 'record')} imported, {read + len(converted) - added} already present")


def _record_of_report(path: Path, now: datetime | None) -> Record:
    try:
        record = record_of_report(read_report(_bytes(path)))
    except ValueError as error:
        # A ReportError, or an invalid value such as a driver that is not a release.
        raise InputError(
            f"{path}: {error}", hint="write a report with `python3 probe.pyz > report.json`"
        ) from error
    if now is not None and (problem := wrong_time(record, now)):
        raise InputError(f"{path}: {problem}", hint=WRONG_TIME_HINT)
    return record


@click.command("publish")
@click.argument("report", type=click.Path(path_type=Path))
@click.option("--how", required=True, metavar="TEXT", help="How the report was made: 'in a container'.")
@click.option("--imported", is_flag=True, help="Say that a person sent the report.")
@click.option(
    "--by-default",
    "programs",
    multiple=True,
    nargs=3,
    metavar="CHECK PROGRAM LOG",
    help="For a probe before 2.3: CHECK failed in full float32 only. PROGRAM describes a program"
    " that does the same in TensorFlow's defaults and works; LOG is the file with its output. Repeatable.",
)
@click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where to write the file.  [default: measurements/ of the checkout]",
)
@verbose_option
def publish_command(
    report: Path,
    how: str,
    imported: bool,
    programs: tuple[tuple[str, str, str], ...],
    directory: Path | None,
) -> None:
    """Write a probe's REPORT from a real GPU to measurements/, where predict finds it.

    Names of people and machines are taken out. The file is named after image, driver, GPU and day, and an
    existing file is never replaced. A measurement is shown as measured, never as certified.
    """
    from ..compat import measurements
    from ..redaction.redact import Redaction

    if directory is None and is_installed():
        raise click.UsageError(
            "This is an installed package, not a checkout, so there is no measurements/ to write to:"
            " give --directory"
        )
    by_default = tuple(
        measurements.ByDefault(check, program, _text(Path(log))) for check, program, log in programs
    )
    try:
        read = read_report(_bytes(report))
        found = measurements.Measurement(measurements.FORMAT, how, imported, read.raw, by_default)
        document = found.document()
        # The version of a package can look like an address.
        versions = {one for one in read.environment.packages.values() if is_numbers(one)}
        clean = _redacted(document, Redaction(_texts(document)), versions)
        content = json_text(clean).encode() + b"\n"
        name = measurements.name_of(measurements.read_measurement(content))
    except ValueError as error:
        raise InputError(f"{report}: {error}") from error
    path = (directory or measurements.DIRECTORY) / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with open(path, "xb") as stream:
            stream.write(content)
    except FileExistsError:
        raise InputError(f"{path} exists already", hint="a measurement is never replaced") from None
    print_status(f"Wrote {path}. Read it before you publish it.")
    if directory is None:
        print_status(f"To add it to the facts, see {manual('how-to/publish-a-measurement.md')}")


def _bytes(path: Path) -> bytes:
    try:
        with open(path, "rb") as stream:
            return stream.read(LARGEST + 1)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error


def _text(path: Path) -> str:
    return _bytes(path).decode("utf-8", "replace")


def _texts(value: Any) -> Iterator[str]:
    """Yield every text in parsed JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, tuple, dict)):
        for entry in value.values() if isinstance(value, dict) else value:
            yield from _texts(entry)


def _redacted(value: Any, redaction: Callable[[str], str], known: Collection[str]) -> Any:
    """Return parsed JSON with names of people and machines taken out of every text.

    known: texts that stay. So do digests, which are not identifiers of anything.
    """
    if isinstance(value, str):
        return value if value in known else redaction(value)
    if isinstance(value, (list, tuple)):
        return [_redacted(entry, redaction, known) for entry in value]
    if isinstance(value, dict):
        return {
            name: entry if name == "sha256" and _is_digest(entry) else _redacted(entry, redaction, known)
            for name, entry in value.items()
        }
    return value


def _is_digest(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None


@click.group("records", cls=SuggestingGroup)
def command() -> None:
    """List, show, export, import, merge, compare and salvage records; find regressions; publish reports."""


for _command in (
    list_command,
    show_command,
    export_command,
    import_command,
    publish_command,
    merge_command,
    salvage_command,
    *records_changes.COMMANDS,
):
    command.add_command(_command)
