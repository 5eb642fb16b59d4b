"""`pull`: verify the best certified image for a host and pull it by its digest."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import click

from ..certify.trust import Trust
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


@click.command("pull")
@host_options
@version_options
@image_option
@certificate_options
@verbose_option
def command(
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
    """Pull the best image that is certified for this host, or the image given with --image.

    First verifies the signature, digest, time and host of the certificate; an image that fails is not pulled.
    Prints the image's reference by digest.
    """
    from ..delivery.candidates import Terms

    host = resolve_host(driver, gpus)
    engine = connect_engine(driver, gpus)
    try:
        selected = select_image(
            registry, host, Terms(trust, max_age, accept_expired), image, tensorflow, python, additions
        )
        pull_selected(engine, registry, selected)
        if own := sorted({name for one in selected.certificates for name in one.own_passed}):
            print_status(f"Its certificate includes checks of its owner: {', '.join(own)}")
    finally:
        engine.close()
    click.echo(selected.reference)
