"""`data`: write the facts, predictions, records and messages as tables that other programs can load."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from ..model.record import Record
from ..reports.printable import counted
from .groups import SuggestingGroup
from .options import (
    matrix_option,
    open_store,
    print_status,
    profile_option,
    select_option,
    store_option,
    verbose_option,
)

_FORMATS = ("json", "csv", "parquet")


def _formats(_: click.Context, __: click.Parameter, value: str) -> tuple[str, ...]:
    """Return the formats that were named, each once, in the order of `_FORMATS`."""
    named = [name.strip() for name in value.split(",")]
    if wrong := [name for name in named if name not in _FORMATS]:
        raise click.BadParameter(
            f"{wrong[0]!r} is not a format: name some of {', '.join(_FORMATS)}, separated by commas"
        )
    return tuple(name for name in _FORMATS if name in named)


@click.command("export")
@click.argument("directory", type=click.Path(path_type=Path))
@matrix_option
@profile_option
@select_option
@store_option
@click.option(
    "--format",
    "formats",
    default=",".join(_FORMATS),
    callback=_formats,
    metavar="LIST",
    show_default=True,
    help="The formats to write, separated by commas.",
)
@click.option(
    "--no-redact",
    is_flag=True,
    help="Keep names of people and machines, addresses and credentials. Do not publish such an export.",
)
@verbose_option
def export_command(
    directory: Path,
    matrix_path: Path,
    profile: str | None,
    selectors: tuple[str, ...],
    store_url: str | None,
    formats: tuple[str, ...],
    no_redact: bool,
) -> None:
    """Write facts, predictions, records and messages to DIRECTORY, with schemas and a description.

    DIRECTORY must be new, be empty, or hold an older export, which the new one replaces when it is complete.
    The same input gives the same bytes.
    """
    from ..dataset.export import Inputs, export
    from ..dataset.formats import require
    from ..matrix.load import DEFAULT_PROFILE
    from .planning import load_cells

    require(formats)
    cells = load_cells(matrix_path, profile, selectors)
    with open_store(matrix_path, store_url) as store:
        # Somebody may add records meanwhile, and they are read several times.
        there = {entry.id for entry in store.entries()}

        def records() -> Iterator[Record]:
            return (record for record in store.all() if record.id in there)

        inputs = Inputs(cells, records, profile or DEFAULT_PROFILE, selectors, not no_redact)
        done = export(directory, inputs, formats)
    rows = ", ".join(f"{written.rows} {written.table.name}" for written in done.tables)
    print_status(f"Wrote {directory}: {rows}")
    print_status(f"{counted(len(done.tables), 'table')} as {', '.join(formats)}; data {done.digest}")


@click.group("data", cls=SuggestingGroup)
def command() -> None:
    """Write the facts, predictions, records and messages as tables for other programs."""


command.add_command(export_command)
