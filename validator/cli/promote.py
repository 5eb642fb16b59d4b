"""`promote`: move aliases to the newest certified images."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..certify.trust import Trust
from ..errors import EXIT_FAILED, EXIT_OK
from ..registry.client import Registry
from ..reports.printable import json_text, one_line
from .host_options import name_option
from .options import format_option, matrix_option, print_status, verbose_option
from .trust_options import certificate_options, trust_path_for

if TYPE_CHECKING:
    from ..certify.promote import Move


@click.command("promote")
@certificate_options
@matrix_option
@name_option
@click.option("--dry-run", is_flag=True, help="Show what would move, and move nothing.")
@format_option("text", "json")
@verbose_option
def command(
    registry: Registry,
    trust: Trust,
    max_age: timedelta | None,
    accept_expired: bool,
    matrix_path: Path,
    trust_path: Path | None,
    additions: str | None,
    dry_run: bool,
    format_: str,
) -> int:
    """Move the aliases (latest, 2.21, 2.21-driver535) to the best certified images.

    An alias never moves to an image without a valid certificate, or without provenance by a builder in
    trust.yaml. It moves away from an image that failed or whose certificates expired, even to an older
    TensorFlow. The exit code is 1 if an alias stays on an image without a valid certificate, because no other
    fits it.
    """
    from ..certify.promote import Rules, promote
    from ..certify.trust_file import read_trust_file

    rules = Rules(trust, read_trust_file(trust_path_for(matrix_path, trust_path)), max_age, accept_expired)
    result = promote(
        registry,
        rules,
        additions=additions,
        dry_run=dry_run,
        on_move=lambda move: print_status(f"Set {move.alias} to {move.now}"),
    )
    if format_ == "json":
        click.echo(json_text([asdict(move) for move in result]))
    else:
        for move in result:
            click.echo(one_line(_line(move, dry_run)))
    if not result:
        print_status(f"{registry.repository} has no certified images and no aliases.")
    return EXIT_FAILED if any(move.why for move in result) else EXIT_OK


def _line(move: Move, dry_run: bool) -> str:
    if move.moves:
        verb = "would move" if dry_run else "moved"
        lost = f", because the old one is no longer good: {move.lost}" if move.lost else ""
        return f"{move.alias}: {verb} from {move.was or 'nothing'} to {move.now} ({move.image}){lost}"
    if move.why:
        return f"{move.alias}: stale, but stays at {move.was}: {move.why}"
    return f"{move.alias}: stays at {move.was} ({move.image})"
