"""`report`: the matrix, predicted beside measured."""

from __future__ import annotations

import json
from pathlib import Path

import click

from .options import (
    format_option,
    matrix_option,
    profile_option,
    say,
    select_option,
    store_option,
    store_to_read,
    verbose_option,
)


@click.command("report")
@matrix_option
@profile_option
@select_option
@store_option
@click.option(
    "--output", type=click.Path(path_type=Path), help="Write Markdown or JSON to a file instead of stdout."
)
@click.option(
    "--html",
    "directory",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write a static page into a directory, with badges and a Markdown table.",
)
@click.option(
    "--registry",
    envvar="VALIDATOR_REGISTRY",
    metavar="REGISTRY/NAME",
    help="With --html: where the images can be pulled from.",
)
@click.option(
    "--certificates",
    "certificate_files",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="With --html: what `verify --format json` wrote of an image in the registry; repeatable.",
)
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
    format_: str,
) -> None:
    """Show the matrix, predicted beside measured."""
    if directory is not None and (output is not None or format_ != "terminal"):
        raise click.UsageError("--html goes without --output and --format")
    if directory is None and certificate_files:
        raise click.UsageError("--certificates is for --html")
    if output is not None and format_ == "terminal":
        raise click.UsageError("--output is for --format markdown and json")
    from ..matrix.values import DEFAULT_PROFILE
    from ..model.spec import python_label
    from ..reports.overview import overview
    from ..reports.page.measurements import gather
    from .planning import planned

    planned(matrix_path, profile, selectors)  # wrong input is told before anything is read
    with store_to_read(matrix_path, store_url) as store:
        measurements = gather(store.all()) if directory is not None else None
        latest = store.latest() if measurements is None else measurements.latest
    measured = {record.image for record in latest.values()}

    def available(python: str) -> str | None:
        """A profile that takes one Python of several is shown with the one that was measured."""
        ending = python_label(python)
        return "records" if any(ending in image.split("-") for image in measured) else None

    plan = planned(matrix_path, profile, selectors, available)
    rows = overview(plan.cells, latest)
    if directory is not None and measurements is not None:
        from .page import write_page

        write_page(directory, rows, measurements, profile or DEFAULT_PROFILE, registry, certificate_files)
    elif format_ == "terminal":
        from ..reports.terminal import overview_text, show

        show(overview_text(rows))
    else:
        from ..reports.markdown import markdown

        title = f"TensorFlow on GPUs: profile {profile or DEFAULT_PROFILE}"
        text = (
            markdown(rows, title)
            if format_ == "markdown"
            else json.dumps([row.as_json() for row in rows], indent=2) + "\n"
        )
        if output is None:
            click.echo(text, nl=False)
        else:
            from ..system.files import write_atomically

            write_atomically(output, text.encode())
            say(f"written: {output}")
    against = [row.cell for row in rows if row.agrees is False]
    if against:
        say(f"{len(against)} measured otherwise than predicted: {', '.join(against)}")
