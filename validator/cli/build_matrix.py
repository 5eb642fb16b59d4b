"""`build-matrix`: build, probe and record the selected images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .build_request import Request, check
from .fleet_settings import LOCAL, fleet_file_option
from .options import (
    builder_options,
    challenge_option,
    depth_option,
    format_option,
    matrix_option,
    profile_option,
    select_option,
    store_option,
    trust_file_option,
    verbose_option,
)


@click.command("build-matrix")
@matrix_option
@profile_option
@select_option
@store_option
@click.option(
    "--engine",
    "engine_name",
    type=click.Choice(["auto", "docker", "venv"]),
    default="auto",
    show_default=True,
    help="The engine for the environments. auto uses docker if a Docker Engine answers, else venv.",
)
@click.option(
    "--base",
    type=click.Choice(["auto", "registry", "bootstrap"]),
    default="auto",
    show_default=True,
    help="Where the default base image comes from. auto makes one of Debian packages without a registry.",
)
@click.option(
    "--oci",
    "layout",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIRECTORY",
    help="Write the images to this directory, as an OCI image layout, without measuring them.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1, 64),
    metavar="N",
    help="How many images to build at once.  [default: 1 per 4 cores]",
)
@click.option(
    "--keep-going/--fail-fast",
    default=True,
    show_default=True,
    help="Continue with the other images after one has failed.",
)
@click.option("--no-validate", is_flag=True, help="Only build the images, without probing them.")
@click.option(
    "--push",
    metavar="REGISTRY/NAME",
    help="Push every image to this repository before it is probed, with a tag such as"
    " 2.21.0-cuda12.9-cudnn9.28-py3.12.",
)
@click.option("--retag", is_flag=True, help="With --push: move tags that already name another image.")
@click.option(
    "--mount-from",
    multiple=True,
    metavar="REGISTRY/NAME",
    help="With --push: reuse layers that this other repository of the same registry has, instead of"
    " sending them. May be repeated. The repository of the base is always looked at.",
)
@builder_options("--push", "what the images were made from")
@trust_file_option
@click.option(
    "--pull-from",
    metavar="REGISTRY/NAME",
    help="Probe the images that another run pushed to this repository, instead of building them.",
)
@click.option(
    "--on",
    default=LOCAL,
    show_default=True,
    metavar="NAME",
    help="Where the images are measured: local, slurm or kubernetes. They are built here and pushed; nodes"
    " pull them by digest.",
)
@fleet_file_option
@click.option(
    "--dry-run",
    is_flag=True,
    help="With --on: print what would be submitted for the images in the registry, and submit nothing.",
)
@depth_option
@challenge_option
@click.option(
    "--challenges",
    "challenges_path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Only measure the cells in this file, and answer their challenges. `certify challenges` writes it.",
)
@click.option(
    "--rehearse",
    is_flag=True,
    help="Rehearse everything up to a pull without a GPU, with throw-away keys and records, in a registry"
    " that is started for it, or the one of --push. Nothing that it makes counts.",
)
@click.option("--keep", is_flag=True, help="With --rehearse: keep its keys, records and registry data.")
@click.option("--force", is_flag=True, help="Also build and validate images that are unchanged.")
@format_option("text", "json")
@verbose_option
def build_matrix_command(**options: Any) -> int:
    """Plan, lock, build and probe every selected image, and record its verdict.

    Without --profile and --select, build the newest image that is expected to work on this machine's driver
    and GPUs, and say why; without a GPU, the one for most data-center GPUs.

    A pushed image gets a signed statement of what it was made from. Only images with such a statement by a
    builder in trust.yaml are accepted from a registry.

    The images are measured on this machine. To measure the matrix's other host classes, push the images with
    --push and run this command with --pull-from on a machine of each class; or let a scheduler do it with
    --on. `fleet` follows, continues and ends what was submitted.

    On a machine with GPUs of several models, each model is measured on its own. What is measured on a GPU in
    a container is signed with this machine's key, which the first run makes and registers in the trust file.
    """
    asked = Request(**options)
    check(asked)
    if asked.rehearse:
        from .rehearse import RehearsalOptions, rehearse

        return rehearse(RehearsalOptions.of(asked))
    # Only after the check, which needs none of the many modules of a build.
    from .building import perform

    return perform(asked)
