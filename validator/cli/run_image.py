"""`run`: print or run the `docker run` line for a certified image on a host."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..certify.trust import Trust
from ..errors import InputError
from ..registry.client import Registry
from .host_options import (
    connect_engine,
    host_options,
    image_option,
    pull_selected,
    resolve_host,
    select_image,
    version_options,
)
from .options import print_status, verbose_option
from .trust_options import certificate_options

if TYPE_CHECKING:
    from ..delivery.pull import Engine
    from ..delivery.run import Mount


@click.command("run", context_settings={"allow_interspersed_args": False})
@click.argument("words", nargs=-1, metavar="[-- COMMAND [ARGUMENT]...]")
@click.option(
    "--exec", "execute", is_flag=True, help="Pull the image and run the line instead of printing it."
)
@click.option("--mount", is_flag=True, help="Mount the current directory into the container and start there.")
@click.option(
    "--devices",
    type=click.Choice(["auto", "gpus", "cdi"]),
    default="auto",
    show_default=True,
    help="How the container requests GPUs: as the local engine offers them, with --gpus, or as CDI devices.",
)
@host_options
@version_options
@image_option
@certificate_options
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
    additions: str | None,
    image: str | None,
    registry: Registry,
    trust: Trust,
    max_age: timedelta | None,
    accept_expired: bool,
) -> None:
    """Print the docker run line for this host and the image that `pull` would pull, or run it with --exec.

    The image is verified as `pull` does and named by its digest. The reason for each flag goes to stderr.
    """
    from ..delivery.candidates import Terms
    from ..delivery.run import Devices, command_line, devices_of, flags

    host = resolve_host(driver, gpus)
    requested = Devices(devices)
    # Printing the line for another machine needs no engine.
    engine = connect_engine(driver, gpus) if execute or mount or requested is Devices.AUTO else None
    try:
        if requested is Devices.AUTO and engine is not None:
            requested = devices_of(engine.info)
        bind = _mount(engine) if mount and engine is not None else None
        selected = select_image(
            registry, host, Terms(trust, max_age, accept_expired), image, tensorflow, python, additions
        )
        port = None if words else _port(registry, selected.digest)
        if execute and engine is not None:
            pull_selected(engine, registry, selected)
    finally:
        if engine is not None:
            engine.close()
    found = flags(host, requested, terminal=_terminal(words, execute), mount=bind, port=port)
    line = command_line(found, selected.reference, words)
    for flag in found:
        print_status(f"{shlex.join(flag.words)}: {flag.why}")
    if port is not None:
        print_status(f"JupyterLab answers at http://127.0.0.1:{port}/lab; it prints the token when it starts")
    if not execute:
        click.echo(shlex.join(line))
        return
    sys.stdout.flush()
    os.execvp(line[0], line)


def _port(registry: Registry, digest: str) -> int | None:
    """Return the port of JupyterLab if the image's own command starts it, otherwise None."""
    from ..model.spec import JUPYTER_PORT

    return JUPYTER_PORT if f"{JUPYTER_PORT}/tcp" in registry.config(digest).ports else None


def _mount(engine: Engine) -> Mount:
    from ..delivery.run import Mount

    if not engine.is_local:
        raise InputError(
            "--mount needs a local Docker engine: the remote host does not have this directory",
            hint="copy the data there, or run without --mount",
        )
    return Mount.of(Path.cwd(), engine.info, os.getuid(), os.getgid())


def _terminal(words: Sequence[str], execute: bool) -> str:
    """Return the terminal flag. Without a command the image starts Python, which needs a terminal."""
    if execute:
        return "-it" if sys.stdin.isatty() and sys.stdout.isatty() else "-i"
    return "" if words else "-it"
