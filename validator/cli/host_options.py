"""Options of the commands that choose an image for a host: which host, and which images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from .options import say

if TYPE_CHECKING:
    from ..delivery.candidates import Terms
    from ..delivery.host import Host
    from ..delivery.pull import Engine, SelectedImage
    from ..registry.client import Registry

F = TypeVar("F", bound=Callable[..., Any])


def host_options(function: F) -> F:
    """`--driver`, `--gpu`: `host_of` makes a host of them."""
    function = click.option(
        "--gpu",
        "gpus",
        multiple=True,
        metavar="MODEL",
        help="For a host with this GPU: a100, 'RTX 4090', or a compute capability such as 8.0; repeatable,"
        " and the image must suit all.  [default: those of this machine]",
    )(function)
    return click.option(
        "--driver",
        metavar="RELEASE",
        help="For a host with this driver: 535.183.01, or a branch: 535.  [default: that of this machine]",
    )(function)


def wanted_options(function: F) -> F:
    """`--tensorflow`, `--python`: which images come into question."""
    function = click.option("--python", metavar="VERSION", help="This Python alone, such as 3.12.")(function)
    return click.option(
        "--tensorflow", metavar="VERSION", help="This TensorFlow alone: a release, or all of 2.20."
    )(function)


image_option = click.option(
    "--image",
    metavar="TAG|DIGEST",
    help="This image alone; it is verified as any other.  [default: the best that is certified for the host]",
)


def host_of(driver: str | None, gpus: Sequence[str]) -> Host:
    """The host that was asked about; what was not said is read from this machine.

    Raises InputError for what is not known, MissingError where this machine has no NVIDIA driver or GPU.
    """
    from ..delivery.host import Host, parse_driver, parse_gpus

    release, cards = parse_driver(driver) if driver else None, parse_gpus(gpus)
    if release is None or not cards:
        from ..delivery.host import this_host

        here = this_host()
        return Host(release or here.driver, cards or here.gpus)
    return Host(release, cards)


def select_image(
    registry: Registry,
    host: Host,
    terms: Terms,
    image: str | None,
    tensorflow: str | None,
    python: str | None,
) -> SelectedImage:
    """The image that may be pulled, and on stderr what it is and why others are refused."""
    from ..delivery.choose import measured_on
    from ..delivery.pull import select_best, select_named

    if image and (tensorflow or python):
        raise click.UsageError("--image names one image; leave out --tensorflow and --python")
    say(f"for {host}")
    if image:
        selected = select_named(registry, host, terms, image, say)
    else:
        selected = select_best(registry, host, terms, tensorflow, python, say)
    for certificate in selected.certificates:
        say(f"{selected.image.tag}: measured on {measured_on(certificate)}, signed by {certificate.signer}")
    return selected


def engine_for(driver: str | None, gpus: Sequence[str]) -> Engine:
    """The engine. Raises MissingError when there is none, or it runs on a machine that nobody described."""
    from ..delivery.pull import Engine
    from ..errors import MissingError

    engine = Engine()
    if not engine.is_local and not (driver and gpus):
        engine.close()
        raise MissingError(
            "the Docker Engine runs on another machine, whose driver and GPUs are not known here",
            hint="name them with --driver and --gpu, or run this command there",
        )
    return engine


def pull_selected(engine: Engine, registry: Registry, selected: SelectedImage) -> None:
    """Pull an image that may be selected; progress goes to stderr."""
    from ..delivery.pull import local_ids

    last = ""

    def progress(text: str) -> None:
        nonlocal last
        if text != last:
            say(f"{selected.image.tag}: {text}")
        last = text

    engine.pull(selected, local_ids(registry, selected.digest), progress)
    say(f"pulled {selected.reference}; it is {selected.name} here")
