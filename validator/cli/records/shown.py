"""`records list` and `records show`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ..options import format_option, matrix_option, say, store_option, store_to_read, verbose_option


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
        click.echo(json.dumps([record.as_json() | {"report": None} for record in found], indent=2))
    else:
        from ...reports.terminal import records_table, show

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
        click.echo(json.dumps(record.as_json(), indent=2))
    else:
        from ...reports.terminal import record_text, show

        show(record_text(record))


COMMANDS = (list_command, show_command)
