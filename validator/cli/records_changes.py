"""`records compare`, `regressions` and `bisect`: show which cells changed, and what changed with them."""

from __future__ import annotations

import contextlib
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, TypedDict

import click

from ..errors import EXIT_FAILED, EXIT_OK, InputError
from ..model.diagnosis import Cause, Diagnosis
from ..model.record import Record
from ..model.report import ReportError
from ..model.timestamps import parse_time
from ..records.history import decline, differences, finished, histories, regressions
from ..reports.printable import counted, json_text
from .options import (
    format_option,
    matrix_option,
    open_store,
    print_status,
    store_option,
    store_url_for,
    verbose_option,
)
from .records_merge import read_refused


@click.command("compare")
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@matrix_option
@store_option
@format_option("table", "json")
@verbose_option
def compare_command(before: str, after: str, matrix_path: Path, store_url: str | None, format_: str) -> None:
    """List the cells whose newest verdict differs between A and B, and what else changed with each.

    A and B are stores (a file or a URL), JSON Lines (a file or a directory), or points in time of this store:
    2026-11-01, 2026-11-01T06:30, or 36h, 7d, 2w ago. A date means 00:00 UTC on that day.
    """
    from ..records.comparison import difference_document, fetch_differences, open_snapshot

    now = datetime.now(timezone.utc)
    store = store_url_for(matrix_path, store_url)
    with contextlib.ExitStack() as stack:
        old, new = (open_snapshot(text, store, now, stack) for text in (before, after))
        found = fetch_differences(differences(old.newest, new.newest), old.fetch, new.fetch)
    if format_ == "json":
        click.echo(json_text([difference_document(difference) for difference in found]))
    else:
        from ..reports.changes import differences_table
        from ..reports.terminal import show

        show(differences_table(found))
        a, b = counted(len(old.newest), "cell"), len(new.newest)
        print_status(f"{a} in A, {b} in B, {len(found)} different")


@click.command("regressions")
@click.option(
    "--since",
    metavar="TIME",
    default="7d",
    show_default=True,
    help="Compare with this time: 2026-11-01, 2026-11-01T06:30, or 36h, 7d, 2w ago.",
)
@click.option(
    "--refused",
    "refused_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also count the artifacts that `records merge --refused` wrote to this file.",
)
@click.option(
    "--measured-since",
    metavar="TIME",
    help="Leave out cells without a measurement since this time.",
)
@matrix_option
@store_option
@format_option("table", "json", "issue")
@verbose_option
def regressions_command(
    since: str,
    refused_path: Path | None,
    measured_since: str | None,
    matrix_path: Path,
    store_url: str | None,
    format_: str,
) -> int:
    """List the cells that are worse now than they were at a given time or later.

    For each cell, shows the last good record, the first bad one, what changed between them, and the cause
    according to the newest report. The exit code is 1 if there are any, or if any artifact was refused. The
    format issue is Markdown for an issue tracker, without names of people and machines.
    """
    from ..records.comparison import decline_document, fetch_declines

    now = datetime.now(timezone.utc)
    at = parse_time(since, now)
    if at > now:
        raise InputError(f"--since {since}: this time is in the future", hint="give a time in the past")
    refused = read_refused(refused_path) if refused_path is not None else ()
    with open_store(matrix_path, store_url) as store:
        entries = store.entries()
        declines = regressions(entries, at, now)
        if measured_since is not None:
            earliest = parse_time(measured_since, now)
            declines = [each for each in declines if finished(each.newest) >= earliest]
        worse = fetch_declines(declines, store)
    found = [(each, _causes(each.newest)) for each in worse]
    if format_ == "json":
        documents = [{**decline_document(each), **_causes_as_json(causes)} for each, causes in found]
        click.echo(json_text(documents))
    elif format_ == "issue":
        from ..reports.changes import issue
        from ..reports.merged import refused_part

        click.echo(issue(worse, _diagnosis, refused_part(refused) if refused else ""), nl=False)
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


@click.command("bisect")
@click.argument("cell")
@matrix_option
@store_option
@format_option("text", "json")
@verbose_option
def bisect_command(cell: str, matrix_path: Path, store_url: str | None, format_: str) -> None:
    """Show the last good and the first bad record of CELL, and what changed between them.

    A record is good if its verdict is as good as the best one of the cell.
    """
    from ..records.comparison import decline_document, fetch_declines

    with open_store(matrix_path, store_url) as store:
        entries = store.entries(cell)
        history = histories(entries, datetime.now(timezone.utc)).get(cell)
        if history is None:
            reason = (
                "all of its records have a finish time that can't be right"
                if any(entry.cell == cell for entry in entries)
                else "there are no records of this cell"
            )
            raise InputError(f"{cell}: {reason}", hint="see `records list`")
        found = fetch_declines([decline(history)], store)[0]
    causes = _causes(found.newest)
    if format_ == "json":
        click.echo(json_text({**decline_document(found), **_causes_as_json(causes)}))
    else:
        from ..reports.changes import decline_text
        from ..reports.terminal import show

        show(decline_text(found, causes))


def _diagnosis(record: Record) -> Diagnosis | None:
    """Diagnose a record's report. Returns None if it has none that can be read."""
    from ..diagnosis import diagnose_report

    try:
        report = record.read_report()
    except ReportError:
        return None
    return diagnose_report(report) if report else None


def _causes(record: Record) -> tuple[Cause, ...]:
    diagnosis = _diagnosis(record)
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


COMMANDS = (compare_command, regressions_command, bisect_command)
