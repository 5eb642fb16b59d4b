"""`pull`: the best certified image for a host, verified and pulled by its digest."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from .host_options import (
    engine_for,
    host_of,
    host_options,
    image_option,
    pull_selected,
    select_image,
    wanted_options,
)
from .options import verbose_option
from .trust_options import evidence_options

if TYPE_CHECKING:
    from ..certify.trust import Trust
    from ..registry.client import Registry


@click.command("pull")
@host_options
@wanted_options
@image_option
@evidence_options
@verbose_option
def command(
    driver: str | None,
    gpus: Sequence[str],
    tensorflow: str | None,
    python: str | None,
    image: str | None,
    registry: Registry,
    trust: Trust,
    max_age: timedelta | None,
) -> None:
    """Pull the best image that is certified for this host, or the one that is named.

    Signature, digest, time and host are verified first; what is refused is not pulled. Writes the reference
    by digest to stdout.
    """
    from ..delivery.candidates import Terms

    host = host_of(driver, gpus)
    engine = engine_for(driver, gpus)
    try:
        selected = select_image(registry, host, Terms(trust, max_age), image, tensorflow, python)
        pull_selected(engine, registry, selected)
    finally:
        engine.close()
    click.echo(selected.reference)
