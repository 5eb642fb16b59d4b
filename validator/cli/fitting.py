"""What `recommend`, `pull` and `run` have in common: the options, the host, and the images ranked for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..errors import InputError, ValidatorError
from .options import say
from .trusting import (
    max_age_option,
    open_registry,
    plain_http_option,
    registry_option,
    trust_of,
    trust_options,
)

if TYPE_CHECKING:
    from ..pull.choose import Fit
    from ..pull.host import Host
    from ..registry.registry import Registry

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Asked:
    """The options, as given; `host_and_fits` reads them."""

    repository: str
    plain_http: bool
    key: Path | None
    identity: str | None
    issuer: str | None
    trusted_root: Path | None
    fixtures: bool
    max_age: timedelta | None
    driver: str | None
    gpus: tuple[str, ...]
    tensorflow: str | None
    python: str | None


def fitting_options(function: F) -> F:
    """The options of `Asked`."""
    for option in reversed(
        (registry_option, plain_http_option, trust_options, max_age_option, *_HOST, *_WANTED)
    ):
        function = option(function)
    return function


_HOST = (
    click.option(
        "--driver", metavar="RELEASE", help="Of the host, such as 535.183.01 or 535.  [default: this host's]"
    ),
    click.option(
        "--gpu",
        "gpus",
        multiple=True,
        metavar="MODEL",
        help="Of the host, such as a100, 'RTX 4090' or 8.0; repeatable.  [default: this host's]",
    ),
)
_WANTED = (
    click.option("--tensorflow", metavar="VERSION", help="Only this release, such as 2.20 or 2.20.0."),
    click.option("--python", metavar="VERSION", help="Only this Python, such as 3.12."),
)


def host_and_fits(asked: Asked, image: str | None = None) -> tuple[Host, Registry, list[Fit]]:
    """The host, the registry, and what each image is to the host, the best first.

    image: the tag or digest of the only one to look at. Raises InputError when nothing is there to choose
    from.
    """
    from ..pull.candidates import candidate_named, candidates
    from ..pull.choose import Wanted, ranked

    wanted = Wanted(asked.tensorflow, asked.python)
    host = _host(asked)
    trust = trust_of(asked.key, asked.identity, asked.issuer, asked.trusted_root, asked.fixtures)
    registry = open_registry(asked.repository, asked.plain_http)
    if image is not None:
        return host, registry, ranked([candidate_named(registry, image, trust, max_age=asked.max_age)], host)
    found = candidates(registry, trust, wanted=wanted.takes, max_age=asked.max_age)
    if not found:
        what = " of ".join(
            part
            for part in (
                f"TensorFlow {asked.tensorflow}" if asked.tensorflow else "",
                f"Python {asked.python}" if asked.python else "",
            )
            if part
        )
        raise InputError(
            f"{registry.repository} has no image{f' with {what}' if what else ' that build-matrix --push made'}",
            hint=f"`oras repo tags {registry.repository}` lists what is there",
        )
    return host, registry, ranked(found, host)


def best_certified(host: Host, registry: Registry, fits: Sequence[Fit]) -> Fit:
    """The first, when its certificate covers the host. Raises ValidatorError with the reason against each."""
    from ..pull.choose import Standing, why_not

    if fits[0].standing is Standing.CERTIFIED:
        return fits[0]
    for entry in fits:
        say(f"refused: {entry.candidate.tag}: {why_not(entry, host)}")
    raise ValidatorError(
        f"no image of {registry.repository} is certified for this host ({host})",
        hint="`recommend` shows what is predicted to work; nothing was pulled",
    )


def _host(asked: Asked) -> Host:
    from ..pull.host import described_host, this_host

    if asked.driver is None and not asked.gpus:
        return this_host()
    if asked.driver is None or not asked.gpus:
        raise click.UsageError("--driver and --gpu describe a host together: give both, or neither")
    return described_host(asked.driver, asked.gpus)
