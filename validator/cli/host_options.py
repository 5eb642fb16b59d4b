"""Options of the commands that choose an image for a host, and the functions that evaluate them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..errors import MissingError
from .options import print_status

if TYPE_CHECKING:
    from ..delivery.candidates import Terms
    from ..delivery.host import Host
    from ..delivery.pull import Engine, SelectedImage
    from ..registry.client import Registry

F = TypeVar("F", bound=Callable[..., Any])


def host_options(function: F) -> F:
    """Add `--driver` and `--gpu`, the arguments of `resolve_host`."""
    function = click.option(
        "--gpu",
        "gpus",
        multiple=True,
        metavar="MODEL",
        help="The host's GPU: a100, 'RTX 4090', or a compute capability such as 8.0; repeatable for a host"
        " with several GPUs.  [default: detected]",
    )(function)
    return click.option(
        "--driver",
        metavar="RELEASE",
        help="The host's driver: a release such as 535.183.01 or a branch such as 535.  [default: detected]",
    )(function)


def name_option(function: F) -> F:
    """Add `--name`, which selects images with additions."""
    return click.option(
        "--name",
        "additions",
        metavar="NAME",
        help="Only images with these additions, such as jupyter.  [default: only images without additions]",
    )(function)


def version_options(function: F) -> F:
    """Add `--tensorflow`, `--python` and `--name`, which restrict the images."""
    function = name_option(function)
    function = click.option(
        "--python", metavar="VERSION", help="Only images with this Python, such as 3.12."
    )(function)
    return click.option(
        "--tensorflow",
        metavar="VERSION",
        help="Only images with this TensorFlow: a release such as 2.20.0, or all its patch releases: 2.20.",
    )(function)


image_option = click.option(
    "--image",
    metavar="TAG|DIGEST",
    help="Use this image, after verifying it.  [default: the best one that is certified for the host]",
)


def resolve_host(driver: str | None, gpus: Sequence[str]) -> Host:
    """Return the host with this driver and these GPUs; what is not given is detected on this machine.

    Raises InputError for an unknown driver or GPU, MissingError if this machine has no NVIDIA driver or GPU.
    """
    from ..delivery.host import Host, parse_driver, parse_gpus, this_host

    release, models = parse_driver(driver) if driver else None, parse_gpus(gpus)
    if release is None or not models:
        here = this_host()
        return Host(release or here.driver, models or here.gpus)
    return Host(release, models)


def select_image(
    registry: Registry,
    host: Host,
    terms: Terms,
    image: str | None,
    tensorflow: str | None,
    python: str | None,
    additions: str | None,
) -> SelectedImage:
    """Return the image to pull. Prints to stderr what it is and why others are rejected."""
    from ..delivery.pull import select

    refuse_versions_of_named_image(image, tensorflow, python, additions)
    return select(registry, host, terms, image, tensorflow, python, additions, print_status)


def refuse_versions_of_named_image(image: str | None, *versions: str | None) -> None:
    """Raise UsageError if an image is named and versions choose one too. versions: those of
    `version_options`.
    """
    if image and any(versions):
        raise click.UsageError("--image already names one image: leave out --tensorflow, --python and --name")


def connect_engine(driver: str | None, gpus: Sequence[str]) -> Engine:
    """Connect to the engine.

    Raises MissingError if there is none, or if it runs on another machine that the options don't describe.
    """
    from ..delivery.pull import Engine

    engine = Engine()
    if not engine.is_local and not (driver and gpus):
        engine.close()
        raise MissingError(
            "the Docker Engine runs on another machine, whose driver and GPUs cannot be detected from here",
            hint="describe that machine with --driver and --gpu, or run this command there",
        )
    return engine


def pull_selected(engine: Engine, registry: Registry, selected: SelectedImage) -> None:
    """Pull the selected image and print the progress to stderr."""
    from ..delivery.pull import local_ids

    last = ""

    def progress(text: str) -> None:
        nonlocal last
        if text != last:
            print_status(f"{selected.image.tag}: {text}")
        last = text

    engine.pull(selected, local_ids(registry, selected.digest), progress)
    print_status(f"Pulled {selected.reference} and tagged it {selected.name}.")
