"""`records`: list, show, export, import, merge, compare, salvage and publish records."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import click
import msgspec

from ..errors import EXIT_FAILED, EXIT_OK, InputError
from ..model import codec
from ..model.codec import LARGEST, DocumentError, now_utc, parse_time
from ..model.diagnosis import Cause, Diagnosis
from ..model.record import Record
from ..model.report import ReportError, read_report
from ..records.history import (
    WRONG_TIME_HINT,
    decline,
    decline_document,
    difference_document,
    differences,
    fetch_declines,
    fetch_differences,
    finished,
    histories,
    regressions,
    wrong_time,
)
from ..redaction.redact import Redaction
from ..registry.names import is_digest
from ..reports.printable import counted, json_text, one_line
from ..resources import is_installed, manual
from ..system.files import read_file, write_atomically
from ..versions import is_numbers
from . import SuggestingGroup, options
from .options import Project, argument, flag, option, print_status

if TYPE_CHECKING:
    from ..records.record_files import RefusedArtifact


@click.group("records", cls=SuggestingGroup)
def records_command() -> None:
    """List, show, export, import, merge, compare and salvage records; find regressions; publish reports."""


@records_command.command("compare")
def compare_command(
    before: str = argument("A"),
    after: str = argument("B"),
    project: Project = options.project("store"),
    format_: str = options.formats("table", "json"),
) -> None:
    """List the cells whose newest verdict differs between A and B, and what else changed with each.

    A and B are stores (a file or a URL), JSON Lines (a file or a directory), or points in time of this store:
    2026-11-01, 2026-11-01T06:30, or 36h, 7d, 2w ago. A date means 00:00 UTC on that day.
    """
    from ..records.record_files import open_snapshot

    now = now_utc()
    store = project.store
    with contextlib.ExitStack() as stack:
        believe = _believer(project)
        old, new = (open_snapshot(text, store, now, stack, believe) for text in (before, after))
        found = fetch_differences(differences(old.newest, new.newest), old.fetch, new.fetch)
    if format_ == "json":
        click.echo(json_text([difference_document(difference) for difference in found]))
    else:
        from ..reports.changes import differences_table
        from ..reports.terminal import show

        show(differences_table(found))
        a, b = counted(len(old.newest), "cell"), len(new.newest)
        print_status(f"{a} in A, {b} in B, {len(found)} different")


@records_command.command("regressions")
def regressions_command(
    since: str = option(
        "--since TIME  Compare with this time: 2026-11-01, 2026-11-01T06:30, or 36h, 7d, 2w ago.",
        default="7d",
    ),
    refused_path: Path | None = option(
        "--refused FILE  Also count the artifacts that `records merge --refused` wrote to this file."
    ),
    measured_since: str | None = option(
        "--measured-since TIME  Leave out cells without a measurement since this time."
    ),
    project: Project = options.project("store"),
    format_: str = options.formats("table", "json", "issue"),
) -> int:
    """List the cells that are worse now than they were at a given time or later.

    For each cell, shows the last good record, the first bad one, what changed between them, and the cause
    according to the newest report. The exit code is 1 if there are any, or if any artifact was refused. The
    format issue is Markdown for an issue tracker, without names of people and machines.
    """
    now = now_utc()
    at = parse_time(since, now)
    if at > now:
        raise InputError(f"--since {since}: this time is in the future", hint="give a time in the past")
    refused = read_refused(refused_path) if refused_path is not None else ()
    with project.open_store() as store:
        entries = store.entries()
        declines = regressions(entries, at, now, store.judged)
        if measured_since is not None:
            earliest = parse_time(measured_since, now)
            declines = [each for each in declines if finished(each.newest) >= earliest]
        worse = fetch_declines(declines, store.fetch)
    found = [(each, _causes(each.newest)) for each in worse]
    if format_ == "json":
        documents = [{**decline_document(each), **_causes_as_json(causes)} for each, causes in found]
        click.echo(json_text(documents))
    elif format_ == "issue":
        from ..reports.changes import issue, refused_part

        click.echo(issue(worse, diagnosis_of, refused_part(refused) if refused else ""), nl=False)
    else:
        from ..reports.changes import regressions_text
        from ..reports.terminal import show

        show(regressions_text(found))
        cells = len({entry.cell for entry in entries})
        print_status(
            f"{len(found)} of {counted(cells, 'cell')} worse than at or after {at:%Y-%m-%d %H:%M} UTC"
        )
    if refused:
        print_status(f"{counted(len(refused), 'artifact')} refused")
    return EXIT_FAILED if found or refused else EXIT_OK


@records_command.command("bisect")
def bisect_command(
    cell: str = argument(),
    project: Project = options.project("store"),
    format_: str = options.formats("text", "json"),
) -> None:
    """Show the last good and the first bad record of CELL, and what changed between them.

    A record is good if its verdict is as good as the best one of the cell.
    """
    with project.open_store() as store:
        entries = store.judged(store.entries(cell))
        history = histories(entries, now_utc()).get(cell)
        if history is None:
            reason = (
                "all of its records have a finish time that can't be right"
                if any(entry.cell == cell for entry in entries)
                else "there are no records of this cell"
            )
            raise InputError(f"{cell}: {reason}", hint="see `records list`")
        found = fetch_declines([decline(history)], store.fetch)[0]
    causes = _causes(found.newest)
    if format_ == "json":
        click.echo(json_text({**decline_document(found), **_causes_as_json(causes)}))
    else:
        from ..reports.changes import decline_text
        from ..reports.terminal import show

        show(decline_text(found, causes))


def diagnosis_of(record: Record) -> Diagnosis | None:
    """Return the diagnosis of a record's report, or None if it has none that can be read."""
    from ..diagnosis import diagnose_report

    try:
        report = record.read_report()
    except ReportError:
        return None
    return diagnose_report(report) if report else None


def _causes(record: Record) -> tuple[Cause, ...]:
    diagnosis = diagnosis_of(record)
    return diagnosis.causes if diagnosis else ()


class CauseInShort(TypedDict):
    """A cause that the report of the newest record shows."""

    code: Annotated[str, "A stable name; [All causes](../causes.md) lists them."]
    title: Annotated[str, "One sentence that names it."]


class CausesField(TypedDict):
    """The last field of a decline."""

    causes: Annotated[
        list[CauseInShort],
        "The causes that the report of the newest record shows, in the order to fix them: `code` and"
        " `title` of each.",
    ]


def _causes_as_json(causes: tuple[Cause, ...]) -> CausesField:
    return {"causes": [{"code": cause.code, "title": cause.title} for cause in causes]}


@records_command.command("merge")
def merge_command(
    directory: Path = argument(type=options.DIRECTORY_THERE),
    cells_path: Path | None = option(
        "--cells  The cells that should have been measured, as `plan --format github` prints them.",
        type=options.FILE,
    ),
    summary_path: Path | None = option(
        "--summary  Append Markdown to this file: cells without a record, and what was refused.",
        type=options.OUTPUT,
    ),
    refused_path: Path | None = option(
        "--refused  Write what was refused to this file, for `regressions --refused`.", type=options.OUTPUT
    ),
    project: Project = options.project("store"),
) -> None:
    """Merge records that other machines delivered: each directory in DIRECTORY is from one machine.

    An artifact that is damaged, too large, or contains anything but good records is refused as a whole,
    with its name and the reason, and the others are merged. The exit code is 0 even then.
    """
    from ..records import record_files
    from ..records.store import Store

    planned = _planned(cells_path) if cells_path is not None else ()
    with Store(project.store) as store:
        merged = record_files.merge(directory, store, now_utc(), planned, _believer(project))
    for each in merged.refused:
        print_status(f"Refused {one_line(each.artifact)}: {one_line(each.reason)}")
    refused = f"; {len(merged.refused)} refused" if merged.refused else ""
    artifacts = counted(merged.artifacts, "artifact")
    print_status(f"{counted(merged.added, 'new record')} of {artifacts} merged{refused}")
    if summary_path is not None:
        from ..reports.changes import summary

        with open(summary_path, "a", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(summary(merged, planned))
    if refused_path is not None:
        write_atomically(refused_path, json.dumps(codec.encode(merged.refused), indent=1).encode() + b"\n")


def read_refused(path: Path) -> tuple[RefusedArtifact, ...]:
    """Read what `merge --refused` wrote. Raises InputError for anything else."""
    from ..records.record_files import RefusedArtifact

    try:
        return codec.convert(codec.parse(options.read_input(path)), tuple[RefusedArtifact, ...])
    except DocumentError as error:
        raise InputError(f"{path}: {error}", hint="write it with `records merge --refused`") from None


class _PlannedCell(msgspec.Struct):
    id: str


class _Planned(msgspec.Struct):
    include: tuple[_PlannedCell, ...]


def _planned(path: Path) -> tuple[str, ...]:
    """Return the cells that `plan --format github` printed."""
    hint = "write what `validator plan --format github` prints to this file"
    try:
        lines = read_file(path, LARGEST).splitlines()
        matrices = [codec.convert(codec.parse(line), _Planned) for line in lines]
    except OSError as error:
        raise InputError(f"{path}: can't be read: {error.strerror}", hint=hint) from error
    except DocumentError as error:
        raise InputError(f"{path}: {error}", hint=hint) from None
    if not matrices:
        raise InputError(f"{path}: the file is empty", hint=hint)
    return tuple(cell.id for matrix in matrices for cell in matrix.include)


@records_command.command("salvage")
def salvage_command(
    project: Project = options.project("store"),
    output: Path = option(
        "--output  The file to write, as JSON Lines; `records import` reads it.",
        required=True,
        type=options.OUTPUT,
    ),
) -> int:
    """Get the good records out of a damaged SQLite file, and say how many are lost.

    Writes every record that still matches its own digest. It also reads a file that SQLite rejects: cut off,
    without its header, with pages overwritten. The store itself is not changed. The exit code is 1 if records
    are lost.
    """
    from ..records import record_files

    path = project.store_file
    if path is None:
        raise InputError(
            "--store: only SQLite files can be salvaged",
            hint="for PostgreSQL, restore a backup, or use the server's own tools",
        )
    found = record_files.salvage(path)
    if not found.records:
        raise InputError(
            f"{path}: it contains no intact record{f', and {found.lost} are lost' if found.lost else ''}",
            hint="check that it is the SQLite file of a store; if it is encrypted or erased, use a backup",
        )
    text = io.StringIO()
    record_files.write(sorted(found.records.values(), key=lambda record: (record.finished, record.id)), text)
    write_atomically(output, text.getvalue().encode())
    print_status(f"{counted(len(found.records), 'record')} written to {output}, {found.lost} lost")
    return EXIT_FAILED if found.lost else EXIT_OK


@records_command.command("list")
def list_command(
    project: Project = options.project("store"),
    cell: str | None = option("--cell  Only list records of this cell."),
    image: str | None = option("--image  Only list records of this image spec."),
    verdict: str | None = option(
        "--verdict certified|works-on-cpu|failed|unproven|broken  Only list records with this verdict."
    ),
    format_: str = options.formats("table", "json"),
) -> None:
    """List records, oldest first."""
    with project.open_store() as store:
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


@records_command.command("show")
def show_command(
    identifier: str = argument(),
    project: Project = options.project("store"),
    format_: str = options.formats("text", "json"),
) -> None:
    """Show one record with its checks. The first digits of its IDENTIFIER are enough."""
    with project.open_store() as store:
        record = store.get(identifier)
    if format_ == "json":
        click.echo(json_text(record.document()))
    else:
        from ..reports.terminal import record_text, show

        show(record_text(record))
        if problem := wrong_time(record, now_utc()):
            print_status(f"Does not count as the newest of its cell: {problem}")


@records_command.command("export")
def export_command(
    project: Project = options.project("store"),
    output: Path | None = option(
        "--output  The file to write; it is replaced only once everything is written.  [default: stdout]",
        type=options.OUTPUT,
    ),
) -> None:
    """Export all records as JSON Lines."""
    from ..records import record_files

    with project.open_store() as store:
        text = io.StringIO()
        count = record_files.write(store.all(), sys.stdout if output is None else text)
    if output is not None:
        write_atomically(output, text.getvalue().encode())
    print_status(f"{counted(count, 'record')} exported")


@records_command.command("import")
def import_command(
    files: tuple[Path, ...] = argument(nargs=-1, type=options.PATH),
    any_time: bool = flag(
        "--any-time  Also import records whose finish time can't be right. They never count as the newest."
    ),
    reports: tuple[Path, ...] = option(
        "--report PATH...  Import a report that probe.pyz wrote on another machine, as a record marked as"
        " imported.",
        type=options.PATH,
    ),
    project: Project = options.project("store"),
) -> None:
    """Import records from JSON Lines FILES (- for stdin), plain or gzipped. Importing twice changes nothing.

    FILES may also be what `./measure` of a bundle wrote. From a directory, every file whose name ends in
    .jsonl or .jsonl.gz is imported. If anything is wrong in any file, nothing is imported. Wrong is a line
    that is not a record, a record that was altered, or a finish time that is not a timestamp or is in the
    future. A record that says `certified` without the signature of a runner in trust.yaml becomes `unproven`.
    """
    from ..records import record_files

    if not files and not reports:
        raise click.UsageError("nothing to import: give a file of JSON Lines, or a report with --report")
    from ..pipeline.bundle import read_line
    from ..pipeline.measuring import record_of_report
    from ..records.store import Store, rows_of

    read = 0
    now = None if any_time else now_utc()
    believe, limits = _believer(project), record_files.Limits()

    def records() -> Iterator[Record]:
        nonlocal read
        for path in (path for name in files for path in record_files.files_of(name)):
            for record in record_files.read_file(path, now, limits, read_line):
                read += 1
                yield believe(record)
        for path in reports:
            read += 1
            try:
                record = record_of_report(read_report(options.read_input(path)))
            except ValueError as error:
                # A ReportError, or an invalid value such as a driver that is not a release.
                hint = "write a report with `python3 probe.pyz > report.json`"
                raise InputError(f"{path}: {error}", hint=hint) from error
            if now is not None and (problem := wrong_time(record, now)):
                raise InputError(f"{path}: {problem}", hint=WRONG_TIME_HINT)
            yield record

    rows = rows_of(records())
    with Store(project.store) as store:
        added = store.add_rows(rows)
    print_status(f"{counted(added, 'record')} imported, {read - added} already present")


def _believer(project: Project) -> Callable[[Record], Record]:
    """Return the function that gives a record from elsewhere as it counts here."""
    from ..certify.acceptance import believed

    parties, now = project.read_trust(needed=False), now_utc()
    return lambda record: believed(record, parties, now)


@records_command.command("publish")
def publish_command(
    report: Path = argument(type=options.PATH),
    how: str = option("--how TEXT  How the report was made: 'in a container'.", required=True),
    imported: bool = flag("--imported  Say that a person sent the report."),
    programs: tuple[tuple[str, str, str], ...] = option(
        "--by-default CHECK PROGRAM LOG...  For a probe before 2.3: CHECK failed in full float32 only."
        " PROGRAM describes a program that does the same in TensorFlow's defaults and works; LOG is the file"
        " with its output. Repeatable.",
        nargs=3,
    ),
    directory: Path | None = option(
        "--directory  Where to write the file.  [default: measurements/ of the checkout]",
        type=options.DIRECTORY,
    ),
) -> None:
    """Write a probe's REPORT from a real GPU to measurements/, where predict finds it.

    Names of people and machines are taken out. The file is named after image, driver, GPU and day, and an
    existing file is never replaced. A measurement is shown as measured, never as certified.
    """
    from ..compat import compile
    from ..dataset.tables import texts_in

    if directory is None and is_installed():
        raise click.UsageError(
            "This is an installed package, not a checkout, so there is no measurements/ to write to:"
            " give --directory"
        )
    by_default = tuple(
        compile.ByDefault(check, program, options.read_input(Path(log)).decode("utf-8", "replace"))
        for check, program, log in programs
    )
    try:
        read = read_report(options.read_input(report))
        found = compile.Measurement(compile.FORMAT, how, imported, read.raw, by_default)
        document = found.document()
        # The version of a package can look like an address.
        versions = {one for one in read.environment.packages.values() if is_numbers(one)}
        clean = _redacted(document, Redaction(texts_in(document)), versions)
        content = json_text(clean).encode() + b"\n"
        name = str(compile.row_of(compile.read_measurement(content))["id"])
    except ValueError as error:
        raise InputError(f"{report}: {error}") from error
    path = (directory or compile.DIRECTORY) / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with open(path, "xb") as stream:
            stream.write(content)
    except FileExistsError:
        raise InputError(f"{path} exists already", hint="a measurement is never replaced") from None
    print_status(f"Wrote {path}. Read it before you publish it.")
    if directory is None:
        print_status(f"To add it to the facts, see {manual('how-to/publish-a-measurement.md')}")


def _redacted(value: Any, redaction: Callable[[str], str], known: Collection[str]) -> Any:
    """Return parsed JSON without names of people and machines. Known texts and digests stay."""
    if isinstance(value, str):
        return value if value in known else redaction(value)
    if isinstance(value, (list, tuple)):
        return [_redacted(entry, redaction, known) for entry in value]
    if isinstance(value, dict):
        return {
            name: entry
            if name == "sha256" and is_digest(f"sha256:{entry}")
            else _redacted(entry, redaction, known)
            for name, entry in value.items()
        }
    return value
