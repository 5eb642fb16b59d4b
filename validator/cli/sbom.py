"""`sbom`: list what is in an image, or attach the list to it."""

from __future__ import annotations

from pathlib import Path

import click

from ..errors import EXIT_OK
from ..system.files import write_atomically
from .image_contents import NamedImage, contents_options, digest_in, in_a_registry, locked_image, read_sbom
from .options import print_status, reject_options
from .trust_options import builder_options, open_registry, trust_path_for


@click.command("sbom")
@contents_options
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the list to a file.  [default: stdout]",
)
@click.option(
    "--attach",
    is_flag=True,
    help="Make the list of an image that was pushed without it from its lock, sign it and attach it.",
)
@builder_options("--attach", "the list")
def command(
    asked: NamedImage,
    output: Path | None,
    attach: bool,
    builder_key: str | None,
    identity: str | None,
    issuer: str | None,
) -> int:
    """List what is in an image, as a software bill of materials (SBOM) in CycloneDX 1.6.

    Name an image in a registry (REGISTRY/NAME:TAG or REGISTRY/NAME@sha256:…) to get the list that its builder
    signed and attached; the builder must be in the trust file. Name a lock, by its image spec or its file, to
    make the list from it: the wheels with their hashes, and the packages of the base.

    The licences are those that the wheels in the cache declare. The same lock, base and wheels always give
    the same bytes with the same version of this tool. The date is that of the lock, or SOURCE_DATE_EPOCH.

    With --attach, the builder's provenance has to say that the image was made from the lock, and the signer
    has to be a builder in the trust file. An image that has its list already is left as it is.
    """
    if (identity is None) != (issuer is None):
        raise click.UsageError("--identity and --issuer belong together")
    if attach:
        reject_options(("output",), "has no effect with --attach")
        return _attach(asked, builder_key, identity, issuer)
    reject_options(("builder_key", "identity", "issuer"), "has no effect without --attach")
    from ..sbom.document import render

    text = render(read_sbom(asked))
    if output is None:
        click.echo(text, nl=False)
        return EXIT_OK
    write_atomically(output, text.encode())
    return EXIT_OK


def _attach(asked: NamedImage, key: str | None, identity: str | None, issuer: str | None) -> int:
    place = in_a_registry(asked.name)
    if place is None:
        raise click.UsageError(
            "--attach needs an image in a registry: REGISTRY/NAME:TAG or REGISTRY/NAME@sha256:…"
        )
    if asked.base not in ("auto", "unlisted"):
        raise click.UsageError(
            f"--base {asked.base} has no effect with --attach: the base is the one that the image was made"
            " from. Use --base unlisted to leave out its packages."
        )
    from ..certify.trust_file import read_trust_file
    from ..pipeline.contents import list_published
    from .build_signing import trusted_builder_of

    repository, reference = place
    registry = open_registry(repository, asked.plain_http)
    digest = digest_in(registry, reference)
    spec, lock = locked_image(registry, reference, digest, asked.matrix_path)
    trust_path = trust_path_for(asked.matrix_path, asked.trust_path)
    signer = trusted_builder_of(trust_path, key, identity, issuer)
    attached = list_published(
        registry, digest, spec, lock, read_trust_file(trust_path), signer, print_status,
        with_base=asked.base != "unlisted",
    )  # fmt: skip
    name = registry.repository.at(digest)
    print_status(f"Attached its list to {name}." if attached else f"{name} has its list already.")
    return EXIT_OK
