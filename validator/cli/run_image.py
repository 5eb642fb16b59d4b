"""`run`: the `docker run` line for a certified image on a host."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import InputError
from .host_options import (
    engine_for,
    host_of,
    host_options,
    image_option,
    pull_selected,
    select_image,
    wanted_options,
)
from .options import say, verbose_option
from .trust_options import evidence_options

if TYPE_CHECKING:
    from ..certify.trust import Trust
    from ..delivery.pull import Engine
    from ..delivery.run import Mount
    from ..registry.client import Registry


@click.command("run", context_settings={"allow_interspersed_args": False})
@click.argument("words", nargs=-1, metavar="[-- COMMAND [ARGUMENT]...]")
@click.option("--exec", "execute", is_flag=True, help="Pull the image and run the line.")
@click.option("--mount", is_flag=True, help="Give the container the current directory, to work in.")
@click.option(
    "--devices",
    type=click.Choice(["auto", "gpus", "cdi"]),
    default="auto",
    show_default=True,
    help="How the container asks for GPUs: as the engine here offers them, by --gpus, or as CDI devices.",
)
@host_options
@wanted_options
@image_option
@evidence_options
@verbose_option
def command(
    words: Sequence[str],
    execute: bool,
    mount: bool,
    devices: str,
    driver: str | None,
    gpus: Sequence[str],
    tensorflow: str | None,
    python: str | None,
    image: str | None,
    registry: Registry,
    trust: Trust,
    max_age: timedelta | None,
) -> None:
    """Print the docker run line that fits this host, for the image that `pull` would take; or run it.

    The image is verified as by `pull` and named by its digest. Why each flag is there goes to stderr.
    """
    from ..delivery.candidates import Terms
    from ..delivery.run import Devices, command_line, devices_of, flags

    host = host_of(driver, gpus)
    offered = Devices(devices)
    # The line for another machine can be had where no engine is.
    engine = engine_for(driver, gpus) if execute or mount or offered is Devices.AUTO else None
    try:
        if offered is Devices.AUTO and engine is not None:
            offered = devices_of(engine.info)
        place = _mount(engine) if mount and engine is not None else None
        selected = select_image(registry, host, Terms(trust, max_age), image, tensorflow, python)
        if execute and engine is not None:
            pull_selected(engine, registry, selected)
    finally:
        if engine is not None:
            engine.close()
    found = flags(host, offered, terminal=_terminal(words, execute), mount=place)
    line = command_line(found, selected.reference, words)
    for flag in found:
        say(f"{shlex.join(flag.words)}: {flag.why}")
    if not execute:
        click.echo(shlex.join(line))
        return
    sys.stdout.flush()
    os.execvp(line[0], line)


def _mount(engine: Engine) -> Mount:
    from ..delivery.run import Mount

    if not engine.is_local:
        raise InputError("--mount: the Docker Engine runs on another machine, which has not this directory")
    return Mount.of(Path.cwd(), engine.info, os.getuid(), os.getgid())


def _terminal(words: Sequence[str], execute: bool) -> str:
    """Without a command the image starts Python, which wants a terminal; docker gives one where one is."""
    if execute:
        return "-it" if sys.stdin.isatty() and sys.stdout.isatty() else "-i"
    return "" if words else "-it"
