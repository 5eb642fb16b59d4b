"""`build-matrix`: build, probe and record the selected images."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from ..registry.names import Repository
from .fleet import LOCAL, fleet_file_option
from .options import (
    DIRECTORY,
    FILE,
    builder_options,
    cell_options,
    challenge_option,
    depth_option,
    flag,
    format_option,
    reject_options,
    store_option,
    trust_file_option,
    verbose_option,
)
from .program import Command


@click.command("build-matrix", cls=Command)
@cell_options
@store_option
@click.option(
    "--engine",
    "engine_name",
    type=click.Choice(["auto", "docker", "podman", "venv"]),
    default="auto",
    show_default=True,
    help="The engine for the environments. auto uses docker if it answers, else podman, else venv.",
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
    type=DIRECTORY,
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
@flag("--no-validate", help="Only build the images, without probing them.")
@click.option(
    "--push",
    metavar="REGISTRY/NAME",
    help="Push every image to this repository before it is probed, with a tag such as"
    " 2.21.0-cuda12.9-cudnn9.28-py3.12.",
)
@flag("--retag", help="With --push: move tags that already name another image.")
@click.option(
    "--mount-from",
    multiple=True,
    metavar="REGISTRY/NAME",
    help="With --push: reuse layers from this other repository instead of building them. They are mounted if"
    " it is in the same registry, and copied otherwise. May be repeated. The repository of the base is always"
    " looked at.",
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
@flag(
    "--dry-run",
    help="With --on: print what would be submitted for the images in the registry, and submit nothing.",
)
@depth_option
@challenge_option
@click.option(
    "--challenges",
    "challenges_path",
    type=FILE,
    metavar="FILE",
    help="Only measure the cells in this file, and answer their challenges. `certify challenges` writes it.",
)
@flag(
    "--rehearse",
    help="Rehearse everything up to a pull without a GPU, with throw-away keys and records, in a registry"
    " that is started for it, or the one of --push. Nothing that it makes counts.",
)
@flag("--keep", help="With --rehearse: keep its keys, records and registry data.")
@flag("--force", help="Also build and validate images that are unchanged.")
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
        from .rehearse import rehearse

        # `check` only rejects options on the command line, and environment variables can set these three.
        return rehearse(replace(asked, store_url=None, trust_path=None, builder_key=None))
    # Only after the check, which needs none of the many modules of a build.
    from .building import perform

    return perform(asked)


# The request to `build-matrix`, and which of its options contradict each other.


@dataclass(frozen=True)
class Request:
    """The options of `build-matrix`, by the names of their parameters.

    A rehearsal uses only those that are not in `_NOT_REHEARSED`.
    """

    matrix_path: Path
    profile: str | None
    selectors: tuple[str, ...]
    store_url: str | None
    engine_name: str
    base: str
    layout: Path | None
    jobs: int | None
    keep_going: bool
    no_validate: bool
    push: str | None
    retag: bool
    mount_from: tuple[str, ...]
    builder_key: str | None
    identity: str | None
    issuer: str | None
    trust_path: Path | None
    pull_from: str | None
    on: str
    fleet_path: Path | None
    dry_run: bool
    depth: str
    challenge: str | None
    challenges_path: Path | None
    rehearse: bool
    keep: bool
    force: bool
    format_: str

    @property
    def as_json(self) -> bool:
        return self.format_ == "json"

    @property
    def images_at_once(self) -> int:
        return self.jobs or max(1, (os.cpu_count() or 1) // 4)

    @property
    def with_fleet(self) -> bool:
        """True if a scheduler measures the images."""
        return self.on != LOCAL

    @property
    def measures_here(self) -> bool:
        """True if this machine measures the images."""
        return not (self.no_validate or self.layout or self.with_fleet)

    @property
    def fits_machine(self) -> bool:
        """True if the image is chosen for this machine, because nothing says which one to build."""
        says = self.profile or self.selectors or self.challenge or self.challenges_path or self.with_fleet
        return self.builds and not says

    @property
    def builds(self) -> bool:
        """True if images are built; otherwise they are only looked up in a registry."""
        return not (self.pull_from or self.dry_run)

    @property
    def repository(self) -> Repository | None:
        """The repository to push to or pull from. Raises InputError for a wrong name."""
        name = self.push or self.pull_from
        return Repository.parse(name) if name else None

    @property
    def other_repositories(self) -> list[Repository]:
        """The repositories to take layers from. Raises InputError for a wrong name."""
        return [Repository.parse(name) for name in self.mount_from]


#: A rehearsal has its own store, keys and trust file, and does every step.
_NOT_REHEARSED = (
    "store_url", "engine_name", "layout", "keep_going", "no_validate", "retag", "mount_from", "builder_key",
    "identity", "issuer", "trust_path", "pull_from", "challenge", "challenges_path", "force", "on",
    "fleet_path", "dry_run",
)  # fmt: skip


def check(asked: Request) -> None:
    """Raise UsageError if options contradict each other."""
    if asked.rehearse:
        reject_options(_NOT_REHEARSED, "can't be combined with --rehearse")
    else:
        reject_options(("keep",), "has no effect without --rehearse")
    if asked.with_fleet:
        reject_options(("no_validate", "layout", "keep_going"), f"can't be combined with --on {asked.on}")
        if not asked.push and not asked.pull_from:
            raise click.UsageError(
                f"--on {asked.on} needs --push or --pull-from: nodes pull the images by digest"
            )
    else:
        reject_options(("fleet_path", "dry_run"), "has no effect with --on local")
    if asked.no_validate:
        reject_options(("depth", "challenge", "challenges_path"), "has no effect with --no-validate")
    if asked.challenge is not None and asked.challenges_path is not None:
        raise click.UsageError("--challenge and --challenges can't be combined")
    if asked.layout is not None:
        reject_options(("push", "pull_from", "retag", "depth", "challenge"), "can't be combined with --oci")
    if asked.engine_name == "venv":
        reject_options(("base", "layout"), "has no effect with --engine venv")
    if not asked.push:
        reject_options(("mount_from", "builder_key", "identity", "issuer"), "has no effect without --push")
    if (asked.identity is None) != (asked.issuer is None):
        raise click.UsageError("--identity and --issuer belong together")
    if not asked.push:
        reject_options(("retag",), "has no effect without --push")
    if asked.push and asked.pull_from:
        raise click.UsageError("--push and --pull-from can't be combined")
    if asked.pull_from and asked.no_validate:
        raise click.UsageError("--pull-from and --no-validate can't be combined: nothing would be left to do")
    if asked.engine_name == "venv" and (asked.push or asked.pull_from):
        raise click.UsageError("--engine venv builds no images for a registry: use --engine docker")
