"""`report`: show the matrix with its predictions and measured verdicts, or write it as a web page."""

from __future__ import annotations

from pathlib import Path

import click

from ..model.timestamps import now_utc
from ..records.finish_time import credible_time
from ..reports.markdown import markdown
from ..reports.overview import overview
from ..reports.page.measurements import gather
from ..reports.printable import counted, json_text
from ..system.files import write_atomically
from .options import (
    format_option,
    matrix_option,
    open_store,
    print_status,
    profile_option,
    reject_options,
    select_option,
    store_option,
    verbose_option,
)
from .page import NONE, PageOptions, measured_python, page_options, page_sources, pyodide_of, write_page


@click.command("report")
@matrix_option
@profile_option
@select_option
@store_option
@click.option(
    "--output", type=click.Path(path_type=Path), help="Write Markdown or JSON to this file instead of stdout."
)
@click.option(
    "--html",
    "directory",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write a static web page to this directory, with badges and a Markdown table.",
)
@page_options(answers=NONE, only_with="--html")
@format_option("terminal", "markdown", "json")
@verbose_option
def command(
    matrix_path: Path,
    profile: str | None,
    selectors: tuple[str, ...],
    store_url: str | None,
    output: Path | None,
    directory: Path | None,
    registry: str | None,
    certificate_files: tuple[Path, ...],
    answers: str,
    format_: str,
) -> None:
    """Show the matrix with its predictions and measured verdicts, or write it as a web page."""
    if directory is not None and (output is not None or format_ != "terminal"):
        raise click.UsageError("--html can't be combined with --output or --format")
    if directory is None:
        reject_options(("certificate_files", "answers"), "has no effect without --html")
    if output is not None and format_ == "terminal":
        raise click.UsageError("--output needs --format markdown or --format json")
    from ..matrix.load import DEFAULT_PROFILE
    from .planning import load_plan, refuse_wrong_selection

    # Report wrong input before reading anything else.
    refuse_wrong_selection(matrix_path, profile, selectors)
    with open_store(matrix_path, store_url) as store:
        measurements = gather(store.all(), now_utc()) if directory is not None else None
        latest = store.latest() if measurements is None else measurements.latest
        wrong = [entry for entry in store.entries() if credible_time(entry.finished, now_utc()) is None]
        if wrong:
            print_status(
                f"{counted(len(wrong), 'record')} left out, because of a finish time that can't be right:"
                " see `records list`"
            )
        plan = load_plan(matrix_path, profile, selectors, measured_python(latest), latest.values())
        rows = overview(plan.cells, latest)
        if directory is not None and measurements is not None:
            asked = PageOptions(matrix_path, profile, registry, certificate_files, pyodide_of(answers))
            done = write_page(directory, page_sources(asked, rows, measurements, store))
            written = f"{counted(done.written, 'file')} written"
            print_status(
                f"Wrote {directory / 'index.html'}"
                f" ({written}, {done.unchanged} unchanged, {done.removed} removed)"
            )
    if format_ == "terminal" and directory is None:
        from ..reports.terminal import overview_text, show

        show(overview_text(rows))
    elif directory is None:
        title = f"TensorFlow on GPUs: profile {profile or DEFAULT_PROFILE}"
        as_json = [row.as_json() for row in rows]
        text = markdown(rows, title) if format_ == "markdown" else json_text(as_json) + "\n"
        if output is None:
            click.echo(text, nl=False)
        else:
            write_atomically(output, text.encode())
            print_status(f"Wrote {output}")
    contradicted = [row.cell for row in rows if row.agrees is False]
    if contradicted:
        cells = counted(len(contradicted), "cell")
        print_status(f"{cells} with a prediction that the measurement contradicts: {', '.join(contradicted)}")
