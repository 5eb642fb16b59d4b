"""`recommend`: which images of a registry fit a host, and why the others do not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from ..errors import EXIT_FAILED, EXIT_OK
from .fitting import Asked, fitting_options, host_and_fits
from .options import format_option, say, verbose_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..pull.choose import Fit


@click.command("recommend")
@fitting_options
@format_option("table", "json")
@verbose_option
def command(format_: str, **options: Any) -> int:
    """List the images that fit this host, best first, with the reason; and why the others do not.

    No GPU is needed to ask for another host: --driver 535.183 --gpu a100. Ends with 1 when no image is
    certified for the host or predicted to work on it.
    """
    from ..pull.choose import Standing

    host, registry, fits = host_and_fits(Asked(**options))
    if format_ == "json":
        document = {
            "host": {
                "driver": str(host.driver),
                "gpus": [{"name": g.name, "compute_capability": g.compute_capability} for g in host.gpus],
            },
            "registry": str(registry.repository),
            "images": [entry.as_json() for entry in fits],
        }
        click.echo(json.dumps(document, indent=2))
    else:
        say(f"for {host}:")
        _show(fits)
    fitting = (Standing.CERTIFIED, Standing.PREDICTED)
    return EXIT_OK if fits[0].standing in fitting else EXIT_FAILED


def _show(fits: Sequence[Fit]) -> None:
    from rich.table import Table

    from ..pull.choose import Standing
    from ..reports.terminal import show, word

    table = Table("image", "", "why", box=None, pad_edge=False)
    for entry in fits:
        table.add_row(entry.candidate.tag, word(entry.standing.value), entry.why)
    show(table)
    if fits[0].standing is Standing.CERTIFIED:
        say(f"to take the first: python -m validator pull --image {fits[0].candidate.tag} …")
