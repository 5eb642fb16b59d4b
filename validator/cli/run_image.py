"""`run`: write how an image is started on a host, in the format of a tool, or start it."""

from __future__ import annotations

import functools
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
from ..system.files import write_atomically
from .host_options import (
    connect_engine,
    host_options,
    pull_selected,
    refuse_versions_of_named_image,
    resolve_host,
    version_options,
)
from .options import print_status, verbose_option
from .trust_options import optional_certificate_options

if TYPE_CHECKING:
    from ..delivery.formats import Format
    from ..delivery.start import Place

_FORMATS = ("docker", "compose", "devcontainer", "apptainer", "slurm", "kubernetes", "podman")


@click.command("run", context_settings={"allow_interspersed_args": False})
@click.argument("words", nargs=-1, metavar="[-- COMMAND [ARGUMENT]...]")
@click.option(
    "--format",
    "format_",
    type=click.Choice(_FORMATS),
    default="docker",
    show_default=True,
    help="The format to write: a docker or podman command line, or a file for one of the other tools.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write to this file; a dev container needs .devcontainer/devcontainer.json.  [default: stdout]",
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
    help="How Docker provides GPUs: as the local engine offers them (auto), with --gpus, or as CDI devices."
    " With gpus or cdi, no engine is needed on this machine if the image is in a registry and neither --mount"
    " nor --exec is given.",
)
@click.option(
    "--uncertified",
    is_flag=True,
    help="Also accept an image that is not certified for this host, and say so. Without --registry, look in"
    " the local Docker Engine.",
)
@host_options
@version_options
@click.option(
    "--image",
    metavar="TAG|DIGEST|REFERENCE",
    help="Use this image: a tag or digest in --registry, or HOST/NAME:TAG. With --uncertified also the name"
    " of one in the local Docker Engine, or oci:DIRECTORY:TAG for one in an OCI layout.  [default: the best"
    " one that is certified for the host]",
)
@optional_certificate_options
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
    uncertified: bool,
    driver: str | None,
    gpus: Sequence[str],
    tensorflow: str | None,
    python: str | None,
    additions: str | None,
    image: str | None,
    registry: Registry | None,
    plain_http: bool,
    trust: Trust | None,
    max_age: timedelta | None,
    accept_expired: bool,
) -> int:
    """Write how to start the image that `pull` would pull on this host, or start it with --exec.

    `run` verifies the image as `pull` does, and names it by its digest. Comments give the reason for each
    line. --uncertified also accepts an image that is not certified, from a registry, the local engine or an
    OCI layout.
    """
    from ..delivery.candidates import Terms
    from ..delivery.formats import FORMATS
    from ..delivery.resolve import Request, resolve
    from ..delivery.start import Devices, Place, parse_variables
    from ..delivery.uncertified import Wanted, split_layout, split_reference

    tool = FORMATS[format_]
    _check_options(format_, tool, output, force, execute, devices)
    environment = parse_variables(variables)
    refuse_versions_of_named_image(image, tensorflow, python, additions)
    place = Place.REGISTRY
    if image and split_layout(image):
        registry, place = None, Place.LAYOUT
    elif image and (reference := split_reference(image)):
        registry, image = Registry(reference[0], plain_http=plain_http or None), reference[1]
    elif registry is None:
        place = Place.ENGINE
    _check_place(place, uncertified, format_, tool)
    request = Request(
        registry,
        Wanted(image, tensorflow, python, additions, gpu=bool(gpus)),
        Terms(trust, max_age, accept_expired) if trust is not None else None,
        uncertified,
        Devices(devices) if tool.uses_docker else None,
        mount,
        environment,
        tuple(words),
        _terminal(words, execute),
    )
    host = functools.cache(lambda: resolve_host(driver, gpus))
    if not uncertified:
        host()
    # To write for another machine, no engine is needed.
    docker = tool.uses_docker and (execute or mount or request.devices is Devices.AUTO)
    engine = connect_engine(driver, gpus) if docker or place is Place.ENGINE else None
    try:
        resolved = resolve(request, engine, host, print_status)
        if execute and engine is not None and registry is not None and resolved.selected is not None:
            pull_selected(engine, registry, resolved.selected)
    finally:
        if engine is not None:
            engine.close()
    start = resolved.start
    if start.port is not None:
        print_status(
            f"JupyterLab answers at http://127.0.0.1:{start.port}/lab; it prints the token when it starts"
        )
    if execute and tool.command is not None:
        _execute(tool.command(start))
    _deliver(tool.write(start), output, force)
    return EXIT_OK


def _check_place(place: Place, uncertified: bool, format_: str, tool: Format) -> None:
    """Refuse an image in a place where certificates don't reach, or where the tool can't find it."""
    from ..delivery.start import Place

    if place is not Place.REGISTRY and not uncertified:
        raise click.UsageError(
            "Missing option '--registry': certified images are in a registry. To start an image that is not"
            " certified, from the local Docker Engine or an OCI layout, use --uncertified; `build-matrix`"
            " builds images."
        )
    if place in tool.places:
        return
    if place is Place.ENGINE:
        raise _not_from_the_engine(format_)
    if format_ == "kubernetes":
        raise InputError(
            "--format kubernetes needs an image in a registry, because the nodes pull it",
            hint="`skopeo copy oci:DIRECTORY:TAG docker://HOST/NAME:TAG` copies it there; name it with"
            " --image HOST/NAME:TAG",
        )
    raise InputError(
        f"--format {format_} is for the Docker Engine, which can't start an image from an OCI layout",
        hint="`tar -C DIRECTORY -c . | docker load` gives it to the engine, and prints the name for --image",
    )


def _not_from_the_engine(format_: str) -> InputError:
    """Return the error for a tool that does not start images of the local Docker Engine."""
    hint = (
        "push it with `build-matrix --push HOST/NAME`, or any other image with `docker tag` and"
        " `docker push`, and name it with --image HOST/NAME:TAG"
    )
    if format_ != "kubernetes":
        where = "a directory that the nodes share" if format_ == "slurm" else "a directory"
        hint += (
            f"; or write it to {where} with `build-matrix --no-validate --oci DIRECTORY`, and name it with"
            " --image oci:DIRECTORY:TAG"
        )
    return InputError(
        f"--format {format_} does not start images of the local Docker Engine, where they are looked for"
        " without --registry",
        hint=hint,
    )


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
    if output is None:
        click.echo(text, nl=False)
        return
    if os.path.lexists(output) and not force and output.is_file():
        raise InputError(
            f"{output} already exists; nothing was written",
            hint="pass --force to replace it, or name another file",
        )
    write_atomically(output, text.encode())
    print_status(f"Wrote {output}")
