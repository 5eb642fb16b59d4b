"""`records compare`, `records regressions`, `records bisect`: which cells changed, and what else did."""

from __future__ import annotations

import contextlib
import json
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import EXIT_FAILED, EXIT_OK, InputError
from .options import (
    format_option,
    matrix_option,
    say,
    store_option,
    store_to_read,
    store_url_for,
    verbose_option,
)

if TYPE_CHECKING:
    from ..model.diagnosis import Cause, Diagnosis
    from ..model.record import Record


@click.command("compare")
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@matrix_option
@store_option
@format_option("table", "json")
@verbose_option
def compare_command(before: str, after: str, matrix_path: Path, store_url: str | None, format_: str) -> None:
    """List the cells whose newest verdict in B is not that in A, and what else changed with each.

    A and B are stores (a file or a URL), JSON Lines (a file, or a directory of them), or times of this store:
    2026-11-01, 2026-11-01T06:30, 36h, 7d, 2w (ago). A date is its first moment, UTC.
    """
    from ..records.comparison import difference_document, fetch_differences, open_snapshot
    from ..records.history import differences

    now = datetime.now(timezone.utc)
    store = store_url_for(matrix_path, store_url)
    with contextlib.ExitStack() as stack:
        old, new = (open_snapshot(text, store, now, stack) for text in (before, after))
        found = fetch_differences(differences(old.newest, new.newest), old.source, new.source)
    if format_ == "json":
        click.echo(json.dumps([difference_document(difference) for difference in found], indent=2))
    else:
        from ..reports.changes import differences_table
        from ..reports.terminal import show

        show(differences_table(found))
        say(f"{len(old.newest)} cells in A, {len(new.newest)} in B, {len(found)} differ")


@click.command("regressions")
@click.option(
    "--since",
    metavar="TIME",
    default="7d",
    show_default=True,
    help="Compare with this time: 2026-11-01, 2026-11-01T06:30, 36h, 7d, 2w (ago).",
)
@click.option(
    "--measured-since",
    metavar="TIME",
    help="Leave out the cells that nobody measured since that time.",
)
@matrix_option
@store_option
@format_option("table", "json", "issue")
@verbose_option
def regressions_command(
    since: str, measured_since: str | None, matrix_path: Path, store_url: str | None, format_: str
) -> int:
    """List the cells that are worse now than at a time, or than at any moment since.

    With each, the last good record, the first bad one, what changed between the two, and the cause that the
    newest report shows. Ends with 1 when there is any. `issue` writes Markdown for an issue tracker, without
    names of people and machines.
    """
    from ..model.timestamps import parse_time
    from ..records.comparison import decline_document, fetch_declines
    from ..records.history import finished, regressions

    now = datetime.now(timezone.utc)
    at = parse_time(since, now)
    if at > now:
        raise InputError(f"--since {since}: lies in the future", hint="name a time that has passed")
    with store_to_read(matrix_path, store_url) as store:
        entries = store.entries()
        declines = regressions(entries, at)
        if measured_since is not None:
            earliest = parse_time(measured_since, now)
            declines = [each for each in declines if finished(each.newest) >= earliest]
        worse = fetch_declines(declines, store)
    found = [(each, _causes(each.newest)) for each in worse]
    if format_ == "json":
        click.echo(json.dumps([decline_document(each) | _told(causes) for each, causes in found], indent=2))
    elif format_ == "issue":
        from ..reports.changes import issue

        click.echo(issue(worse, _diagnosis), nl=False)
    else:
        from ..reports.changes import regressions_text
        from ..reports.terminal import show

        show(regressions_text(found))
        cells = len({entry.cell for entry in entries})
        say(f"{len(found)} of {cells} cells are worse than on {at:%Y-%m-%d %H:%M} UTC, or than since")
    return EXIT_FAILED if found else EXIT_OK


@click.command("bisect")
@click.argument("cell")
@matrix_option
@store_option
@format_option("text", "json")
@verbose_option
def bisect_command(cell: str, matrix_path: Path, store_url: str | None, format_: str) -> None:
    """Name the last good and the first bad record of CELL, and what changed between the two.

    Good is what is as good as the cell ever was.
    """
    from ..records.comparison import decline_document, fetch_declines
    from ..records.history import decline, histories

    with store_to_read(matrix_path, store_url) as store:
        history = histories(store.entries(cell)).get(cell)
        if history is None:
            raise InputError(f"{cell}: no record of this cell", hint="see `records list`")
        found = fetch_declines([decline(history)], store)[0]
    causes = _causes(found.newest)
    if format_ == "json":
        click.echo(json.dumps(decline_document(found) | _told(causes), indent=2))
    else:
        from ..reports.changes import decline_text
        from ..reports.terminal import show

        show(decline_text(found, causes))


def _diagnosis(record: Record) -> Diagnosis | None:
    """What the diagnosis makes of a record's report; None where there is none that can be read."""
    from ..diagnosis import diagnose_report
    from ..model.report import ReportError

    try:
        report = record.read_report()
    except ReportError:
        return None
    return diagnose_report(report) if report else None


def _causes(record: Record) -> tuple[Cause, ...]:
    diagnosis = _diagnosis(record)
    return diagnosis.causes if diagnosis else ()


def _told(causes: tuple[Cause, ...]) -> dict[str, Any]:
    return {"causes": [{"code": cause.code, "title": cause.title} for cause in causes]}


COMMANDS = (compare_command, regressions_command, bisect_command)
