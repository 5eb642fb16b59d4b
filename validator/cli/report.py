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
@format_option("terminal", "markdown", "json")
@verbose_option
def command(
    matrix_path: Path,
    profile: str | None,
    selectors: tuple[str, ...],
    store_url: str | None,
    output: Path | None,
    format_: str,
) -> None:
    """Show the matrix, predicted beside measured."""
    if output is not None and format_ == "terminal":
        raise click.UsageError("--output is for --format markdown and json")
    from ..matrix.values import DEFAULT_PROFILE
    from ..model.spec import python_label
    from ..records.store import Store
    from ..reports.overview import overview
    from .planning import planned

    planned(matrix_path, profile, selectors)  # wrong input is told before anything is read
    with Store(store_to_read(matrix_path, store_url)) as store:
        latest = store.latest()
    measured = {record.image for record in latest.values()}

    def available(python: str) -> str | None:
        """A profile that takes one Python of several is shown with the one that was measured."""
        ending = python_label(python)
        return "records" if any(ending in image.split("-") for image in measured) else None

    plan = planned(matrix_path, profile, selectors, available)
    rows = overview(plan.cells, latest)
    if format_ == "terminal":
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
