"""`build-matrix`: build, probe and record the selected images."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import click

from ..errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_MISSING, EXIT_OK
from ..registry.client import Registry
from ..registry.names import Repository
from ..reports.printable import counted, json_text
from ..system.sources import host_sources
from .fleet_settings import LOCAL, fleet_file_option, fleet_path_for, open_named_fleet
from .options import (
    challenge_option,
    depth_option,
    format_option,
    matrix_option,
    print_status,
    profile_option,
    progress_directory,
    reject_options,
    select_option,
    store_option,
    store_url_for,
    verbose_option,
)
from .trust_options import builder_options, trust_file_option, trust_path_for

if TYPE_CHECKING:
    from ..certify.signing import Signer
    from ..fleet.protocol import Fleet
    from ..matrix.plan import Plan
    from ..pipeline.publisher import Publisher
    from ..pipeline.run import Result, Run
    from ..pipeline.workplace import Workplace

#: A rehearsal has its own store, keys and trust file, and does every step.
_NOT_REHEARSED = (
    "store_url", "engine_name", "layout", "keep_going", "no_validate", "retag", "mount_from", "builder_key",
    "identity", "issuer", "trust_path", "pull_from", "challenge", "challenges_path", "force", "on",
    "fleet_path", "dry_run",
)  # fmt: skip


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
    "--layers",
    type=click.Choice(["zstd", "gzip"]),
    default="zstd",
    show_default=True,
    help="How layers are encoded. zstd is pulled faster; gzip reuses the compressed data of the wheels, so it"
    " is made and pushed faster.",
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
    " 2.21.0-cuda12.5-cudnn9.3-py3.12.",
)
@click.option("--retag", is_flag=True, help="With --push: move tags that already name another image.")
@click.option(
    "--mount-from",
    multiple=True,
    metavar="REGISTRY/NAME",
    help="With --push: take over layers that this other repository of the same registry has, instead of"
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
def command(
    matrix_path: Path,
    profile: str | None,
    selectors: tuple[str, ...],
    store_url: str | None,
    engine_name: str,
    base: str,
    layers: str,
    layout: Path | None,
    jobs: int | None,
    keep_going: bool,
    no_validate: bool,
    push: str | None,
    retag: bool,
    mount_from: tuple[str, ...],
    builder_key: str | None,
    identity: str | None,
    issuer: str | None,
    trust_path: Path | None,
    pull_from: str | None,
    on: str,
    fleet_path: Path | None,
    dry_run: bool,
    depth: str,
    challenge: str | None,
    challenges_path: Path | None,
    rehearse: bool,
    keep: bool,
    force: bool,
    format_: str,
) -> int:
    """Plan, lock, build and probe every selected image, and record its verdict.

    A pushed image gets a signed statement of what it was made from. Only images with such a statement by a
    builder in trust.yaml are accepted from a registry.

    The images are measured on this machine. To measure the matrix's other host classes, push the images with
    --push and run this command with --pull-from on a machine of each class; or let a scheduler do it with
    --on. `fleet` follows, continues and ends what was submitted.

    On a machine with GPUs of several models, each model is measured on its own. What is measured on a GPU in
    a container is signed with this machine's key, which the first run makes and registers in the trust file.
    """
    jobs = jobs or max(1, (os.cpu_count() or 1) // 4)
    if rehearse:
        from .rehearse import Asked
        from .rehearse import rehearse as rehearsal

        reject_options(_NOT_REHEARSED, "can't be combined with --rehearse")
        return rehearsal(
            Asked(
                matrix_path, profile, selectors, base, layers, jobs, depth, push, keep, format_ == "json"
            )
        )  # fmt: skip
    reject_options(("keep",), "has no effect without --rehearse")
    with_fleet = on != LOCAL
    if with_fleet:
        reject_options(("no_validate", "layout", "keep_going"), f"can't be combined with --on {on}")
        if not push and not pull_from:
            raise click.UsageError(f"--on {on} needs --push or --pull-from: nodes pull the images by digest")
    else:
        reject_options(("fleet_path", "dry_run"), "has no effect with --on local")
    if no_validate:
        reject_options(("depth", "challenge", "challenges_path"), "has no effect with --no-validate")
    if challenge is not None and challenges_path is not None:
        raise click.UsageError("--challenge and --challenges can't be combined")
    if layout is not None:
        no_validate = True
        reject_options(("push", "pull_from", "retag", "depth", "challenge"), "can't be combined with --oci")
    if engine_name == "venv":
        reject_options(("base", "layers", "layout"), "has no effect with --engine venv")
    if not push:
        reject_options(("mount_from", "builder_key", "identity", "issuer"), "has no effect without --push")
    if (identity is None) != (issuer is None):
        raise click.UsageError("--identity and --issuer belong together")
    from ..assemble.bases import BasePolicy
    from ..assemble.layers import Layers
    from ..assemble.wheels import Wheelhouse
    from ..certify.trust_file import read_trust_file
    from ..matrix.load import DEFAULT_PROFILE
    from ..pipeline.build_matrix import build_matrix
    from ..pipeline.estimate import estimate
    from ..pipeline.locking import refuse_wrong_locks
    from ..pipeline.progress_file import ProgressFile
    from ..pipeline.run import Event, Options, RegistryUse, Run
    from ..pipeline.workplace import EngineChoice, Making, open_workplace
    from ..records.store import Store
    from .build_signing import builder_of
    from .measurement_signing import challenges_for, fleet_runner_of, runner_of
    from .next_steps import say_estimate, say_next_steps
    from .planning import load_plan, locks_of
    from .progress import Progress

    # Check the input before looking for an engine, so that wrong input touches nothing.
    challenges = challenges_for(load_plan(matrix_path, profile, selectors), challenge, challenges_path)
    repository = _repository(push, pull_from, retag, no_validate, engine_name)
    others = _others(mount_from, repository)
    trust_path = trust_path_for(matrix_path, trust_path)
    if pull_from or trust_path.exists():
        # Without it, nothing in a registry is accepted.
        read_trust_file(trust_path)
    fleet = open_named_fleet(on, fleet_path_for(matrix_path, fleet_path)) if with_fleet else None
    sources = host_sources()
    place = open_workplace(
        EngineChoice(engine_name),
        sources,
        Making(BasePolicy(base), Layers(layers), layout, locks_of(matrix_path).own, matrix_path.parent),
        needs_images=repository is not None,
        measures=not no_validate and not with_fleet,
    )
    engine = place.engine
    print_status(f"Engine: {place.description}")
    plan = load_plan(
        matrix_path, profile, selectors, lambda python: None if engine.provides(python) else engine.name
    )
    refuse_wrong_locks(locks_of(matrix_path), plan.images)
    # A dry run only looks the images up.
    looks = bool(pull_from or dry_run)
    if not looks:
        with contextlib.closing(Wheelhouse(sources)) as wheelhouse:
            say_estimate(estimate(plan.images, locks_of(matrix_path), wheelhouse.missing))
    use = RegistryUse.PULL if looks else RegistryUse.PUSH if push else RegistryUse.NONE
    options = Options(jobs, keep_going, not no_validate and not with_fleet, force, depth, use)
    publisher = None
    if repository:
        signer = builder_of(trust_path, builder_key, identity, issuer) if not looks else None
        publisher = _publisher(place, repository, trust_path, signer, retag, others)
    hosts = tuple(dict.fromkeys(cell.cell.host for cell in plan.cells))
    runner = None
    asked = challenges is not None
    if with_fleet and not dry_run:
        runner = fleet_runner_of((host.identifier for host in hosts), trust_path, asked=asked)
    elif not no_validate and not with_fleet:
        runner = runner_of(engine, trust_path, asked=asked)
    with Store(store_url_for(matrix_path, store_url)) as store:
        watched = ProgressFile(progress_directory(matrix_path), profile or DEFAULT_PROFILE, len(plan.images))
        with Progress(len(plan.images)) as progress, watched:

            def on_event(event: Event) -> None:
                progress(event)
                watched(event)

            run = Run(
                engine, store, sources, locks_of(matrix_path), hosts, options, on_event, publisher, runner,
                None if with_fleet else challenges,
            )  # fmt: skip
            try:
                results = build_matrix(plan.images, run)
            finally:
                engine.close()
        if fleet is not None:
            run = replace(run, challenges=challenges)
            return _measure_with_fleet(fleet, plan, results, run, repository, dry_run, format_)
    if format_ == "json":
        click.echo(json_text([_as_json(result, layout) for result in results]))
    else:
        _show(results)
    if place.maker is not None:
        say_next_steps(results, push or pull_from, profile, layout)
    return _exit_code(results)


def _measure_with_fleet(
    fleet: Fleet,
    plan: Plan,
    images: list[Result],
    run: Run,
    repository: Repository | None,
    dry_run: bool,
    format_: str,
) -> int:
    from .fleet_run import Measuring, measure

    try:
        return measure(Measuring(plan, images, run, fleet, str(repository), dry_run, format_ == "json"))
    finally:
        fleet.close()


def _repository(
    push: str | None,
    pull_from: str | None,
    retag: bool,
    no_validate: bool,
    engine_name: str,
) -> Repository | None:
    """Return the repository to push to or pull from. Raises UsageError for contradicting options."""

    if retag and not push:
        raise click.UsageError("--retag has no effect without --push")
    if push and pull_from:
        raise click.UsageError("--push and --pull-from can't be combined")
    if pull_from and no_validate:
        raise click.UsageError("--pull-from and --no-validate can't be combined: nothing would be left to do")
    name = push or pull_from
    if name and engine_name == "venv":
        raise click.UsageError("--engine venv builds no images for a registry: use --engine docker")
    return Repository.parse(name) if name else None


def _others(mount_from: Sequence[str], repository: Repository | None) -> list[Repository]:
    """Return the repositories to mount from. Raises UsageError for one of another registry."""
    others = [Repository.parse(name) for name in mount_from]
    for other in others:
        if repository is not None and other.host != repository.host:
            raise click.UsageError(
                f"--mount-from {other} is not in the registry of --push ({repository.host}): a registry only"
                " takes over layers from its own repositories"
            )
    return others


def _publisher(
    place: Workplace,
    repository: Repository,
    trust_path: Path,
    signer: Signer | None,
    retag: bool,
    mount_from: Sequence[Repository],
) -> Publisher:
    from ..assemble.registry_destination import destinations
    from ..certify.trust_file import TrustFile, read_trust_file
    from ..engines.base import ImageEngine
    from ..pipeline.publisher import Publisher

    assert place.maker is not None
    trust = read_trust_file(trust_path) if trust_path.exists() else TrustFile()
    engine = place.engine if isinstance(place.engine, ImageEngine) else None
    destination = destinations(repository, place.maker.base_repository, mount_from)
    return Publisher(place.maker, destination, Registry(repository), trust, engine, signer, retag)


def _show(results: list[Result]) -> None:
    from ..reports.terminal import show
    from .progress import results_table, totals

    show(results_table(results))
    click.echo(totals(results))


class ResultDocument(TypedDict):
    """The result of an image as JSON."""

    image: Annotated[str, "The identifier of the image spec."]
    status: Annotated[
        str,
        "`measured`, `unchanged`, `built` (and not probed), `skipped`, `refused`, `missing`, `stopped`.",
    ]
    built: Annotated[bool, "Whether this run built it."]
    detail: Annotated[str, "The reason, in a sentence; may be empty."]
    digest: Annotated[str | None, "The digest of the image; null if there is none."]
    reference: Annotated[
        str | None,
        "A name under which the image can be started or copied: in the registry, in the engine, or in the"
        " OCI layout; null if there is none.",
    ]
    published: Annotated[
        dict[str, object] | None,
        "The image in the registry; its fields are below. Null without `--push` and `--pull-from`.",
    ]
    record: Annotated[
        dict[str, Any] | None,
        "The record, of this run or (for `unchanged`) of an earlier one; null if there is none.",
    ]


def _as_json(result: Result, layout: Path | None = None) -> ResultDocument:
    """Return a result as JSON values. layout: the OCI layout that the image was written to."""
    from .next_steps import digest_of, name_of

    return {
        "image": result.spec.identifier,
        "status": result.status.value,
        "built": result.built,
        "detail": result.detail,
        "digest": digest_of(result),
        "reference": name_of(result, layout),
        "published": result.published.as_json() if result.published else None,
        "record": result.record.document() if result.record else None,
    }


def _exit_code(results: list[Result]) -> int:
    """Return the exit code of a run, after printing why images are missing, refused or not finished."""
    from ..pipeline.run import Status

    def having(status: Status) -> list[Result]:
        return [result for result in results if result.status is status]

    for result in (*having(Status.MISSING), *having(Status.REFUSED)):
        hint = result.error.hint if result.error else None
        print_status(f"error: {result.detail}" + (f"\n  hint: {hint}" if hint else ""))
    if results and len(having(Status.SKIPPED)) == len(results):
        print_status("error: nothing was done: every image was skipped, for the reasons above")
        return EXIT_MISSING
    if stopped := having(Status.STOPPED):
        print_status(
            f"{len(stopped)} of {counted(len(results), 'image')} not finished. Finished images are kept."
            " Continue with:"
        )
        print_status(f"  python -m validator {shlex.join(sys.argv[1:])}")
    if having(Status.REFUSED) or any(result.failed for result in results):
        return EXIT_FAILED
    if having(Status.MISSING):
        return EXIT_MISSING
    return EXIT_INTERRUPTED if stopped else EXIT_OK
