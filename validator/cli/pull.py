"""`pull`: the best certified image for a host, verified and pulled by its digest."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import click

from .hosting import engine_for, host_of, host_options, image_option, pulled, taken_for, wanted_options
from .options import verbose_option
from .trusting import (
    max_age_option,
    open_registry,
    plain_http_option,
    registry_option,
    trust_of,
    trust_options,
)


@click.command("pull")
@host_options
@wanted_options
@image_option
@registry_option
@plain_http_option
@trust_options
@max_age_option
@verbose_option
def command(
    driver: str | None,
    gpus: Sequence[str],
    tensorflow: str | None,
    python: str | None,
    image: str | None,
    repository: str,
    plain_http: bool,
    key: Path | None,
    identity: str | None,
    issuer: str | None,
    trusted_root: Path | None,
    fixtures: bool,
    max_age: timedelta | None,
) -> None:
    """Pull the best image that is certified for this host, or the one that is named.

    Signature, digest, time and host are verified first; what is refused is not pulled. Writes the reference
    by digest to stdout.
    """
    from ..pull.look import Terms

    trust = trust_of(key, identity, issuer, trusted_root, fixtures)
    registry = open_registry(repository, plain_http)
    host = host_of(driver, gpus)
    engine = engine_for(driver, gpus)
    try:
        taken = taken_for(registry, host, Terms(trust, max_age), image, tensorflow, python)
        pulled(engine, registry, taken)
    finally:
        engine.close()
    click.echo(taken.reference)
