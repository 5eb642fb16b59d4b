"""`records`: what was recorded, moved between machines, and compared over time."""

from __future__ import annotations

import click

from . import changed, moved, shown


@click.group("records")
def command() -> None:
    """List, show, move and compare what was recorded; say what got worse, and since when."""


for _part in (*shown.COMMANDS, *moved.COMMANDS, *changed.COMMANDS):
    command.add_command(_part)
