"""`build-matrix`: build, probe and record the selected images."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

import click

from . import Command, options
from .options import Builder, Project, flag, option

#: The default of `--on`: this machine, which is not a fleet.
LOCAL = "local"


# The request to `build-matrix`, and which of its options contradict each other.


@dataclass(frozen=True)
class Request:
    """The options of `build-matrix`, by the names of their parameters.

    A rehearsal uses only those that are not in `_NOT_REHEARSED`.
    """

    project: Project = options.project("cells store trust fleet")
    engine_name: str = option(
        "--engine auto|docker|podman|venv  The engine for the environments. auto uses docker if it answers,"
        " else podman, else venv.",
        default="auto",
    )
    base: str = option(
        "--base auto|registry|bootstrap  Where the default base image comes from. auto makes one of Debian"
        " packages without a registry.",
        default="auto",
    )
    layout: Path | None = option(
        "--oci DIRECTORY  Write the images to this directory, as an OCI image layout, without measuring them."
    )
    jobs: int | None = option(
        "--jobs N  How many images to build at once.  [default: 1 per 4 cores]", type=click.IntRange(1, 64)
    )
    keep_going: bool = option(
        "--keep-going/--fail-fast  Continue with the other images after one has failed.", default=True
    )
    no_validate: bool = flag("--no-validate  Only build the images, without probing them.")
    push: str | None = option(
        "--push REGISTRY/NAME  Push every image to this repository before it is probed, with a tag such as"
        " 2.21.0-cuda12.9-cudnn9.28-py3.12."
    )
    retag: bool = flag("--retag  With --push: move tags that already name another image.")
    mount_from: tuple[str, ...] = option(
        "--mount-from REGISTRY/NAME...  With --push: reuse layers from this other repository instead of"
        " building them. They are mounted if it is in the same registry, and copied otherwise. May be"
        " repeated. The repository of the base is always looked at."
    )
    builder: Builder = options.builder("--push", "what the images were made from")
    pull_from: str | None = option(
        "--pull-from REGISTRY/NAME  Probe the images that another run pushed to this repository, instead of"
        " building them."
    )
    on: str = option(
        "--on NAME  Where the images are measured: local, slurm or kubernetes. They are built here and"
        " pushed; nodes pull them by digest.",
        default=LOCAL,
    )
    dry_run: bool = flag(
        "--dry-run  With --on: print what would be submitted for the images in the registry, and submit"
        " nothing."
    )
    depth: str = options.depth
    challenge: str | None = options.challenge
    challenges_path: Path | None = option(
        "--challenges FILE  Only measure the cells in this file, and answer their challenges. `certify"
        " challenges` writes it.",
        type=options.FILE,
    )
    rehearse: bool = flag(
        "--rehearse  Rehearse everything up to a pull without a GPU, with throw-away keys and records, in a"
        " registry that is started for it, or the one of --push. Nothing that it makes counts."
    )
    keep: bool = flag("--keep  With --rehearse: keep its keys, records and registry data.")
    force: bool = flag("--force  Also build and validate images that are unchanged.")
    format_: str = options.formats("text", "json")

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
        says = (
            self.project.profile
            or self.project.selectors
            or self.challenge
            or self.challenges_path
            or self.with_fleet
        )
        return self.builds and not says

    @property
    def builds(self) -> bool:
        """True if images are built; otherwise they are only looked up in a registry."""
        return not (self.pull_from or self.dry_run)


@click.command("build-matrix", cls=Command)
def build_matrix_command(asked: Request = options.gathered(Request)) -> int:
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
    check(asked)
    if asked.rehearse:
        # `check` only rejects options on the command line, and environment variables can set these three.
        project = replace(asked.project, store_url=None, trust_path=None)
        asked = replace(asked, project=project, builder=replace(asked.builder, builder_key=None))
    # Only after the check, which needs none of the many modules of a build.
    from .building import perform, rehearse

    return rehearse(asked) if asked.rehearse else perform(asked)


#: A rehearsal has its own store, keys and trust file, and does every step.
_NOT_REHEARSED = (
    "store_url", "engine_name", "layout", "keep_going", "no_validate", "retag", "mount_from", "builder_key",
    "identity", "issuer", "trust_path", "pull_from", "challenge", "challenges_path", "force", "on",
    "fleet_path", "dry_run",
)  # fmt: skip


def check(asked: Request) -> None:
    """Raise UsageError if options contradict each other."""
    if asked.rehearse:
        options.reject(_NOT_REHEARSED, "can't be combined with --rehearse")
    else:
        options.reject(("keep",), "has no effect without --rehearse")
    if asked.with_fleet:
        options.reject(("no_validate", "layout", "keep_going"), f"can't be combined with --on {asked.on}")
        if not asked.push and not asked.pull_from:
            needs = "needs --push or --pull-from: nodes pull the images by digest"
            raise click.UsageError(f"--on {asked.on} {needs}")
    else:
        options.reject(("fleet_path", "dry_run"), "has no effect with --on local")
    if asked.no_validate:
        options.reject(("depth", "challenge", "challenges_path"), "has no effect with --no-validate")
    if asked.challenge is not None and asked.challenges_path is not None:
        raise click.UsageError("--challenge and --challenges can't be combined")
    if asked.layout is not None:
        options.reject(("push", "pull_from", "retag", "depth", "challenge"), "can't be combined with --oci")
    if asked.engine_name == "venv":
        options.reject(("base", "layout"), "has no effect with --engine venv")
    if not asked.push:
        options.reject(("mount_from", "retag"), "has no effect without --push")
    asked.builder.check(None if asked.push else "--push")
    if asked.push and asked.pull_from:
        raise click.UsageError("--push and --pull-from can't be combined")
    if asked.pull_from and asked.no_validate:
        raise click.UsageError("--pull-from and --no-validate can't be combined: nothing would be left to do")
    if asked.engine_name == "venv" and (asked.push or asked.pull_from):
        raise click.UsageError("--engine venv builds no images for a registry: use --engine docker")
