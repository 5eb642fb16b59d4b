"""`promote`: moves the aliases that people pull to the newest certified images."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from ..errors import EXIT_FAILED, EXIT_OK
from .options import format_option, say, verbose_option
from .trust_options import evidence_options

if TYPE_CHECKING:
    from ..certify.promote import Move
    from ..certify.trust import Trust
    from ..registry.client import Registry


@click.command("promote")
@evidence_options
@click.option("--dry-run", is_flag=True, help="Say what would move, and move nothing.")
@click.option(
    "--allow-older",
    is_flag=True,
    help="Let an alias go back to an older TensorFlow, when what it points at is not certified.",
)
@format_option("text", "json")
@verbose_option
def command(
    registry: Registry,
    trust: Trust,
    max_age: timedelta | None,
    dry_run: bool,
    allow_older: bool,
    format_: str,
) -> int:
    """Move the aliases (latest, 2.21, 2.21-driver535) to the newest certified images.

    An alias never moves to an image without a valid certificate. Ends with 1 when one stays where it should
    not.
    """
    from ..certify.promote import Rules, promote

    rules = Rules(trust, max_age, allow_older)
    result = promote(
        registry, rules, dry_run=dry_run, on_move=lambda move: say(f"set {move.alias} to {move.now}")
    )
    if format_ == "json":
        click.echo(json.dumps([asdict(move) for move in result], indent=2))
    else:
        for move in result:
            click.echo(_line(move, dry_run))
    if not result:
        say(f"{registry.repository} has no certified image, and no alias")
    return EXIT_FAILED if any(move.why for move in result) else EXIT_OK


def _line(move: Move, dry_run: bool) -> str:
    if move.moves:
        verb = "would move" if dry_run else "moved"
        return f"{move.alias}: {verb} from {move.was or 'nothing'} to {move.now} ({move.image})"
    if move.why:
        return f"{move.alias}: stays at {move.was}: {move.why}"
    return f"{move.alias}: stays at {move.was} ({move.image})"
