"""`sbom`: list what is in an image."""

from __future__ import annotations

from pathlib import Path

import click

from ..errors import EXIT_OK
from .image_contents import Asked, contents_options, read_sbom


@click.command("sbom")
@contents_options
@click.option(
    "--format",
    "format_",
    type=click.Choice(("cyclonedx", "spdx")),
    default="cyclonedx",
    show_default=True,
    help="CycloneDX 1.6 or SPDX 2.3, as JSON.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the list to a file.  [default: stdout]",
)
def command(asked: Asked, format_: str, output: Path | None) -> int:
    """List what is in an image, as a software bill of materials (SBOM).

    Name an image in a registry (REGISTRY/NAME:TAG or REGISTRY/NAME@sha256:…) to get the list that its builder
    signed and attached; the builder must be in the trust file. Name a lock, by its image spec or its file, to
    make the list from it: the wheels with their hashes, and the packages of the base.

    The same lock and base always give the same bytes with the same version of this tool. The date is that of
    the lock, or SOURCE_DATE_EPOCH.
    """
    from ..sbom.documents import render
    from ..system.files import write_atomically

    text = render(read_sbom(asked, format_))
    if output is None:
        click.echo(text, nl=False)
        return EXIT_OK
    write_atomically(output, text.encode())
    return EXIT_OK
