"""`run`: the `docker run` line of the best certified image for a host."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import EXIT_OK, InputError, MissingError
from .fitting import Asked, best_certified, fitting_options, host_and_fits
from .options import say, verbose_option

if TYPE_CHECKING:
    from ..engines.docker.endpoint import Endpoint


@click.command("run")
@fitting_options
@click.option("--image", metavar="TAG|DIGEST", help="This one, if its certificate covers the host.")
@click.option("--mount", is_flag=True, help="Work in the current directory, as yourself.")
@click.option("--exec", "execute", is_flag=True, help="Run the line instead of printing it.")
@click.argument("arguments", nargs=-1, metavar="[-- COMMAND [ARGUMENT]...]")
@verbose_option
def command(image: str | None, mount: bool, execute: bool, arguments: Sequence[str], **options: Any) -> int:
    """Print (or with --exec run) the `docker run` line for this host.

    The image is the one that `pull` takes, verified in the same way, and named by its digest.
    """
    from ..pull.take import command_line, flags, has_image, take

    asked = Asked(**options)
    if execute and asked.driver is not None:
        raise click.UsageError("--exec runs on this host: leave out --driver and --gpu")
    host, registry, fits = host_and_fits(asked, image)
    best = best_certified(host, registry, fits)
    say(f"{best.candidate.tag}: {best.why}")
    # A line for another host is written without asking this one's engine.
    endpoint = _engine(needed=execute) if asked.driver is None else None
    try:
        interactive = execute and sys.stdin.isatty() and sys.stdout.isatty()
        found = flags(
            endpoint.info if endpoint else None, len(host.gpus),
            mount=_directory() if mount else None, interactive=interactive,
        )  # fmt: skip
        reference = registry.repository.at(best.candidate.digest)
        if execute and endpoint is not None and not has_image(endpoint, reference):
            take(registry, best.candidate, endpoint, say)
    finally:
        if endpoint is not None:
            endpoint.client.close()
            endpoint.quick.close()
    line = command_line(reference, found, arguments)
    if execute:
        # Signals and the exit code are docker's own from here on.
        sys.stdout.flush()
        os.execvp(line[0], line)
    for flag in found:
        say(f"  {' '.join(flag.words)}: {flag.why}")
    click.echo(shlex.join(line))
    return EXIT_OK


def _engine(*, needed: bool) -> Endpoint | None:
    from ..engines.docker.endpoint import connect

    try:
        return connect()
    except MissingError:
        if needed:
            raise
        return None


def _directory() -> Path:
    directory = Path.cwd()
    if ":" in str(directory):
        raise InputError(
            f"{directory}: docker can't mount a directory with a colon in its name", hint="run it elsewhere"
        )
    return directory
