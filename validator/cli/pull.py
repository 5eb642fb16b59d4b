"""`pull`: the best certified image for a host, verified and by its digest."""

from __future__ import annotations

from typing import Any

import click

from ..errors import EXIT_OK
from .fitting import Asked, best_certified, fitting_options, host_and_fits
from .options import say, verbose_option


@click.command("pull")
@fitting_options
@click.option("--image", metavar="TAG|DIGEST", help="This one, if its certificate covers the host.")
@verbose_option
def command(image: str | None, **options: Any) -> int:
    """Pull the best image that is certified for this host: its driver branch and its GPUs.

    Signature, digest and what the certificate says are verified first; what is unsigned, signed by somebody
    else, too old, altered or certified for other hosts is refused with the reason, and nothing is pulled.
    """
    from ..engines.docker.endpoint import connect
    from ..pull.take import take

    host, registry, fits = host_and_fits(Asked(**options), image)
    best = best_certified(host, registry, fits)
    say(f"{best.candidate.tag}: {best.why}")
    endpoint = connect()
    try:
        reference = take(registry, best.candidate, endpoint, say)
    finally:
        endpoint.client.close()
        endpoint.quick.close()
    click.echo(reference)
    return EXIT_OK
