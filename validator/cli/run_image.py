"""`run`: write how a certified image is started on a host, in the format of a tool, or start it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..certify.trust import Trust
from ..errors import EXIT_OK, InputError, MissingError
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
    from ..delivery.formats import Format
    from ..delivery.pull import Engine

_FORMATS = ("docker", "compose", "devcontainer", "apptainer", "slurm", "kubernetes", "podman")


@click.command("run", context_settings={"allow_interspersed_args": False})
@click.argument("words", nargs=-1, metavar="[-- COMMAND [ARGUMENT]...]")
@click.option(
    "--format",
    "format_",
    type=click.Choice(_FORMATS),
    default="docker",
    show_default=True,
    help="The tool to write for: a command line of docker or podman, or the file of another one.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write to this file, for a dev container .devcontainer/devcontainer.json.  [default: stdout]",
)
@click.option("--force", is_flag=True, help="Replace the file of --output if it exists.")
@click.option(
    "--exec", "execute", is_flag=True, help="Start the container instead of writing (docker and podman)."
)
@click.option("--mount", is_flag=True, help="Mount the current directory into the container and start there.")
@click.option(
    "--env",
    "variables",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set an environment variable in the container; repeatable.",
)
@click.option(
    "--devices",
    type=click.Choice(["auto", "gpus", "cdi"]),
    default="auto",
    show_default=True,
    help="How a Docker Engine gives GPUs: as the local one offers them, with --gpus, or as CDI devices.",
)
@host_options
@version_options
@image_option
@certificate_options
@verbose_option
def command(
    words: Sequence[str],
    format_: str,
    output: Path | None,
    force: bool,
    execute: bool,
    mount: bool,
    variables: Sequence[str],
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
) -> int:
    """Write how to start the image that `pull` would pull on this host, or start it with --exec.

    The image is verified as `pull` does and named by its digest. Comments give the reason for each line.
    """
    from ..delivery.candidates import Terms
    from ..delivery.formats import FORMATS
    from ..delivery.pull import start_image
    from ..delivery.start import Devices, Start, User, devices_of, parse_variables, user_of

    tool = FORMATS[format_]
    _check_options(format_, tool, output, force, execute, devices)
    environment = parse_variables(variables)
    host = resolve_host(driver, gpus)
    requested = Devices(devices) if tool.uses_docker else None
    user = User(os.getuid(), os.getgid())
    # To write for another machine, no engine is needed.
    needed = tool.uses_docker and (execute or mount or requested is Devices.AUTO)
    engine = connect_engine(driver, gpus) if needed else None
    try:
        if engine is not None:
            user = user_of(engine.info, user.uid, user.gid)
            if requested is Devices.AUTO:
                requested = devices_of(engine.info)
        directory = _directory(engine) if mount else None
        selected = select_image(
            registry, host, Terms(trust, max_age, accept_expired), image, tensorflow, python, additions
        )
        start = Start(
            start_image(registry, selected), host, requested, user, directory, environment, tuple(words),
            _terminal(words, execute),
        )  # fmt: skip
        if execute and engine is not None:
            pull_selected(engine, registry, selected)
    finally:
        if engine is not None:
            engine.close()
    if start.port is not None:
        print_status(
            f"JupyterLab answers at http://127.0.0.1:{start.port}/lab; it prints the token when it starts"
        )
    if execute and tool.command is not None:
        _execute(tool.command(start))
    _deliver(tool.write(start), output, force)
    return EXIT_OK


def _check_options(
    format_: str, tool: Format, output: Path | None, force: bool, execute: bool, devices: str
) -> None:
    if execute and tool.command is None:
        raise click.UsageError(
            f"--exec starts a container with docker or podman, not with --format {format_}:"
            " write the file, and start it with its own tool"
        )
    if execute and output is not None:
        raise click.UsageError("--exec starts the container and writes nothing: leave out --output")
    if force and output is None:
        raise click.UsageError("--force has no effect without --output")
    if devices != "auto" and not tool.uses_docker:
        raise click.UsageError(f"--devices is about a Docker Engine, which --format {format_} does not use")


def _directory(engine: Engine | None) -> Path:
    if engine is not None and not engine.is_local:
        raise InputError(
            "--mount needs a local Docker engine: the remote host does not have this directory",
            hint="copy the data there, or run without --mount",
        )
    return Path.cwd()


def _terminal(words: Sequence[str], execute: bool) -> str:
    """Return the terminal flag. Without a command the image starts Python, which needs a terminal."""
    if execute:
        return "-it" if sys.stdin.isatty() and sys.stdout.isatty() else "-i"
    return "" if words else "-it"


def _execute(line: list[str]) -> None:
    """Replace this process by a program."""
    sys.stdout.flush()
    try:
        os.execvp(line[0], line)
    except FileNotFoundError:
        raise MissingError(
            f"{line[0]} is not installed", hint="install it, or run without --exec to see the command"
        ) from None


def _deliver(text: str, output: Path | None, force: bool) -> None:
    """Print a file, or write it. Raises InputError if it exists and may not be replaced."""
    from ..system.files import write_atomically

    if output is None:
        click.echo(text, nl=False)
        return
    if os.path.lexists(output) and not force and output.is_file():
        raise InputError(
            f"{output} exists already, and nothing was written",
            hint="pass --force to replace it, or name another file",
        )
    write_atomically(output, text.encode())
    print_status(f"Wrote {output}")
