"""Do what `build-matrix` was asked for: prepare, build and measure the images, and report the results."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import click

from ..assemble.base_finder import BasePolicy
from ..assemble.destinations import destinations
from ..assemble.wheels import Wheelhouse, refuse_wrong_locks
from ..certify.signatures import Signer
from ..certify.trust import TrustFile, read_trust_file
from ..engines.protocol import Built, ImageEngine
from ..errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_MISSING, EXIT_OK, MissingError
from ..fleet.protocol import Fleet
from ..locks.lock_files import LockDirectory
from ..matrix.load import DEFAULT_PROFILE
from ..matrix.plan import Plan
from ..model.codec import encode
from ..model.spec import NO_GPU, HostClass, Lock, image_reference
from ..pipeline.build_matrix import build_matrix
from ..pipeline.makers import EngineChoice, ImageSettings, OpenedEngine, estimate, open_engine
from ..pipeline.publisher import Publisher
from ..pipeline.run import Event, Options, ProgressFile, RegistryUse, Result, Run, Runner, Status
from ..records.store import Store
from ..registry.client import Registry
from ..registry.names import Repository, image_tag
from ..reports.printable import counted, json_text
from ..reports.terminal import show
from ..system.package_sources import PackageSources, host_sources
from .build_matrix import Request
from .fleet import fleet_path_for, measure, open_named_fleet
from .options import print_status, progress_directory, say_recommended, store_url_for, trust_path_for
from .planning import available_on, load_plan, locks_of, plan_for_this_machine
from .progress import Progress, results_table, totals
from .signing import builder_of, challenges_for, fleet_runner_of, runner_of

if TYPE_CHECKING:
    from ..model.spec import ImageSpec
    from ..pipeline.makers import Estimate


@dataclass(frozen=True)
class Prepared:
    """Everything that a run needs, except for the store and what watches it.

    profile: the one that has the images, None for the default. repository: where images are pushed to or
    pulled from. challenges: for cells or image specs. hosts: the host classes of the plan. publisher, runner,
    fleet: None if nothing is published, signed or submitted.
    """

    sources: PackageSources
    place: OpenedEngine
    plan: Plan
    profile: str | None
    locks: LockDirectory
    hosts: tuple[HostClass, ...]
    options: Options
    repository: Repository | None
    challenges: Mapping[str, str] | None
    publisher: Publisher | None
    runner: Runner | None
    fleet: Fleet | None


def perform(asked: Request) -> int:
    """Prepare, build and measure the images, print the results, and return the exit code."""
    prepared = prepare(asked)
    with Store(store_url_for(asked.matrix_path, asked.store_url)) as store:
        run, results = build(asked, prepared, store)
        if prepared.fleet is not None:
            measured = replace(run, challenges=prepared.challenges)
            where = str(prepared.repository)
            with contextlib.closing(prepared.fleet) as fleet:
                return measure(prepared.plan, results, measured, fleet, where, asked.dry_run, asked.as_json)
    return report(asked, prepared, results)


def prepare(asked: Request) -> Prepared:
    """Check the input, then open what the run needs, and say what it takes.

    The input is checked before an engine is looked for, so that wrong input touches nothing.
    """
    challenges = challenges_for(
        load_plan(asked.matrix_path, asked.profile, asked.selectors), asked.challenge, asked.challenges_path
    )
    repository, others = asked.repository, asked.other_repositories
    trust_path = trust_path_for(asked.matrix_path, asked.trust_path)
    if asked.pull_from or trust_path.exists():
        # Without it, nothing in a registry is accepted.
        read_trust_file(trust_path)
    fleet = None
    if asked.with_fleet:
        fleet = open_named_fleet(asked.on, fleet_path_for(asked.matrix_path, asked.fleet_path))
    sources, locks = host_sources(), locks_of(asked.matrix_path)
    settings = ImageSettings(
        BasePolicy(asked.base), asked.layout, locks.own, asked.matrix_path.parent, renew=asked.force
    )
    choice, needs_images = EngineChoice(asked.engine_name), repository is not None
    place = open_engine(choice, sources, settings, needs_images=needs_images, measures=asked.measures_here)
    print_status(f"Engine: {place.description}")
    missing: dict[str, str] = {}
    available, profile = available_on(place.engine, missing), asked.profile
    fitting = plan_for_this_machine(asked.matrix_path, available) if asked.fits_machine else None
    if fitting is None:
        plan = load_plan(asked.matrix_path, asked.profile, asked.selectors, available)
    else:
        plan, chosen = fitting
        print_status(chosen.why)
        profile = None if chosen.profile == DEFAULT_PROFILE else chosen.profile
    pythons = {image.python for image in plan.images}
    if not pythons & missing.keys():
        for python, why in missing.items():
            print_status(f"Python {', '.join(sorted(pythons))} is used instead of {python}: {why}.")
    say_recommended(plan.images)
    refuse_wrong_locks(locks, plan.images)
    if asked.builds:

        def is_here(spec: ImageSpec, lock: Lock) -> bool:
            made_anew = asked.force or repository is not None
            return not made_anew and place.engine.existing(spec, lock) is not None

        with contextlib.closing(Wheelhouse(sources)) as wheelhouse:
            say_estimate(estimate(plan.images, locks, wheelhouse.missing, is_here))
    publisher = _publisher(asked, place, repository, others, trust_path) if repository else None
    hosts = tuple(dict.fromkeys(cell.cell.host for cell in plan.cells))
    use = RegistryUse.PUSH if asked.push else RegistryUse.NONE
    options = Options(
        asked.images_at_once, asked.keep_going, asked.measures_here, asked.force, asked.depth,
        use if asked.builds else RegistryUse.PULL,
    )  # fmt: skip
    runner = _runner(asked, place, hosts, trust_path, challenged=challenges is not None)
    return Prepared(
        sources=sources, place=place, plan=plan, profile=profile, locks=locks, hosts=hosts, options=options,
        repository=repository, challenges=challenges, publisher=publisher, runner=runner, fleet=fleet,
    )  # fmt: skip


def _publisher(
    asked: Request,
    place: OpenedEngine,
    repository: Repository,
    others: Sequence[Repository],
    trust_path: Path,
) -> Publisher:
    signer: Signer | None = None
    if asked.builds:
        signer = builder_of(trust_path, asked.builder_key, asked.identity, asked.issuer)
    assert place.maker is not None
    trust = read_trust_file(trust_path) if trust_path.exists() else TrustFile()
    engine = place.engine if isinstance(place.engine, ImageEngine) else None
    destination = destinations(repository, place.maker.base_repository, others)
    return Publisher(place.maker, destination, Registry(repository), trust, engine, signer, asked.retag)


def _runner(
    asked: Request, place: OpenedEngine, hosts: Sequence[HostClass], trust_path: Path, *, challenged: bool
) -> Runner | None:
    """Return what signs the measurements; None if there are none, or nothing can sign them."""
    if asked.with_fleet and not asked.dry_run:
        return fleet_runner_of((host.identifier for host in hosts), trust_path, asked=challenged)
    if asked.measures_here:
        return runner_of(place.engine, trust_path, asked=challenged)
    return None


def build(asked: Request, prepared: Prepared, store: Store) -> tuple[Run, list[Result]]:
    """Build the images, and measure them here unless a fleet does that or nothing does. Close the engine."""
    images = prepared.plan.images
    watched = ProgressFile(
        progress_directory(asked.matrix_path), asked.profile or DEFAULT_PROFILE, len(images)
    )
    with Progress(len(images)) as progress, watched:

        def on_event(event: Event) -> None:
            progress(event)
            watched(event)

        run = Run(
            prepared.place.engine, store, prepared.sources, prepared.locks, prepared.hosts, prepared.options,
            on_event, prepared.publisher, prepared.runner,
            # With a fleet, the challenges are answered after building.
            None if prepared.fleet is not None else prepared.challenges,
        )  # fmt: skip
        try:
            return run, build_matrix(images, run)
        finally:
            prepared.place.engine.close()


def report(asked: Request, prepared: Prepared, results: list[Result]) -> int:
    """Print the results and what to do with the images, and return the exit code."""
    if asked.as_json:
        click.echo(json_text([result_json(result, asked.layout) for result in results]))
    else:
        show(results_table(results))
        click.echo(totals(results))
    if prepared.place.maker is not None:
        holder = prepared.place.engine
        kind = holder.name if isinstance(holder, ImageEngine) else "auto"
        say_next_steps(results, asked.push or asked.pull_from, prepared.profile, asked.layout, kind)
    else:
        engine, locks = prepared.place.engine, prepared.locks
        say_environments(
            built
            for spec in dict.fromkeys(result.spec for result in results)
            if (lock := locks.read(spec.identifier)) and (built := engine.existing(spec, lock))
        )
    return exit_code(results)


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


def result_json(result: Result, layout: Path | None = None) -> ResultDocument:
    """Return a result as JSON values. layout: the OCI layout that the image was written to."""
    return {
        "image": result.spec.identifier,
        "status": result.status.value,
        "built": result.built,
        "detail": result.detail,
        "digest": result.published.digest if result.published is not None else _local_digest(result),
        "reference": name_of(result, layout),
        "published": encode(result.published),
        "record": result.record.document() if result.record else None,
    }


def exit_code(results: list[Result]) -> int:
    """Return the exit code of a run, after printing why images are missing, refused or not finished."""

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
        print_status(f"  validator {shlex.join(sys.argv[1:])}")
    if having(Status.REFUSED) or any(result.failed for result in results):
        return EXIT_FAILED
    if having(Status.MISSING):
        return EXIT_MISSING
    return EXIT_INTERRUPTED if stopped else EXIT_OK


# Say before a build how much it takes, and after it what to do with the images.


#: At most this many images are listed with their digests.
_SHOWN = 10


def say_estimate(found: Estimate) -> None:
    """Print how much a run downloads and stores."""
    if found.there:
        print_status(f"{counted(found.there, 'image')} already here: nothing to download.")
    if found.images:
        here = found.wheels - found.download
        cached = f" ({_gb(here)} of wheels are in the cache)" if here else ""
        most = f"up to {_gb(found.download)} of wheels" if found.download else "nothing"
        print_status(
            f"{counted(found.images, 'image')}: {most} to download{cached};"
            f" the largest image takes about {_gb(found.largest)}."
        )
    if found.unlocked:
        print_status(f"{counted(found.unlocked, 'image')} still to lock, whose size is not known yet.")


def say_next_steps(
    results: Sequence[Result],
    repository: str | None,
    profile: str | None,
    layout: Path | None = None,
    engine: str = "auto",
) -> None:
    """Print the images of a run, how one of them is started here, and how they are measured on a GPU.

    layout: the OCI layout that the images were written to. engine: `docker`, `podman`, or `auto` if neither
    has them.
    """
    found = [(result, name) for result in results if (name := name_of(result, layout)) is not None]
    if not found:
        return
    print_status("Images:")
    for result, name in found[:_SHOWN]:
        # Not every engine finds a local image by this digest, so it is not a part of the name.
        digest = None if result.published is not None else _local_digest(result)
        print_status(f"  {name} ({digest})" if digest is not None else f"  {name}")
    if len(found) > _SHOWN:
        print_status(f"  and {len(found) - _SHOWN} more")
    if layout is not None:
        print_status(f"Load {'it' if len(found) == 1 else 'them'} into a Docker Engine:")
        print_status(f"  tar -C {shlex.quote(str(layout))} -c . | docker load")
        return
    result, name = found[0]
    where, line = _run_line(name, result.spec, engine)
    print_status(where)
    print_status(f"  {shlex.join(line)}")
    # A machine with a GPU pulls what was pushed, or builds it.
    unmeasured = [
        each.spec.identifier
        for each, _ in found
        if each.spec.variant.has_cuda and (each.record is None or each.record.host_class == NO_GPU)
    ]
    if unmeasured:
        words = ["validator", "build-matrix"]
        if profile is not None:
            words += ["--profile", profile]
        if len(unmeasured) == 1:
            words += ["--select", f"image={unmeasured[0]}"]
        if repository:
            words += ["--pull-from", repository]
        print_status("Measure it on a machine with a GPU:")
        print_status(f"  {shlex.join(words)}")


#: A step of training that each release runs. It says where the result was computed.
_TRAIN = (
    "import tensorflow as tf; model = tf.keras.Sequential([tf.keras.layers.Dense(1)]);"
    ' model.compile("sgd", "mse"); model.fit(tf.ones((8, 4)), tf.ones((8, 1)));'
    ' print("GPUs:", tf.config.list_physical_devices("GPU"))'
)
#: `library_path` of the engine, as a shell writes it.
_LIBRARIES = (
    'export LD_LIBRARY_PATH="$(ls -d "$VIRTUAL_ENV"/lib/python3*/site-packages/nvidia/*/lib | paste -sd: -)'
    '${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"'
)


def say_environments(made: Iterable[Built]) -> None:
    """Print how the virtual environments of a run are used."""
    found = list(made)
    if not found:
        return
    print_status("Environments:")
    for built in found[:_SHOWN]:
        print_status(f"  {built.reference}")
    if len(found) > _SHOWN:
        print_status(f"  and {len(found) - _SHOWN} more")
    needs_path = found[0].spec.variant.has_cuda
    print_status(f"Use it in a shell{', and let the loader find NVIDIA libraries' if needs_path else ''}:")
    print_status(f"  source {shlex.quote(found[0].reference)}/bin/activate")
    if needs_path:
        print_status(f"  {_LIBRARIES}")
    print_status("Then train a step:")
    print_status(f"  python -c {shlex.quote(_TRAIN)}")


def name_of(result: Result, layout: Path | None) -> str | None:
    """Return the name of an image, with the digest if it is in a registry; None if there is no image."""
    if result.published is not None:
        repository = result.published.reference.partition("@")[0]
        return f"{repository}:{result.published.tag}@{result.published.digest}"
    if _local_digest(result) is None:
        return None
    return f"{layout}:{image_tag(result.spec)}" if layout else image_reference(result.spec.identifier)


def _local_digest(result: Result) -> str | None:
    return result.digest or (result.record.image_digest if result.record else None)


def _run_line(name: str, spec: ImageSpec, kind: str) -> tuple[str, list[str]]:
    """Return where an image can be started, and the command. kind: the engine that has it."""
    from ..delivery.choose import this_host
    from ..delivery.commands import docker_command, podman_command
    from ..delivery.pull import Engine
    from ..delivery.start import Image, Start, User, devices_of, user_of

    image = Image(name, name, (), certified=False, port=spec.port)
    user, host, devices, directory = User(os.getuid(), os.getgid()), None, None, None
    try:
        engine = Engine(kind)
    except MissingError:
        start = Start(image, host, devices, user, terminal="-it")
        return "Start it on a machine with a Docker Engine:", docker_command(start)
    try:
        if engine.is_local:
            user, directory = user_of(engine.info, user.uid, user.gid), Path.cwd()
        with contextlib.suppress(MissingError):
            if spec.variant.has_cuda:
                host, devices = this_host(), devices_of(engine.info)
    finally:
        engine.close()
    where = ", with this directory as the working directory" if directory else ""
    start = Start(image, host, devices, user, directory, terminal="-it")
    command = podman_command(start) if engine.is_podman else docker_command(start)
    return f"Start it here{where}:", command


def _gb(size: int) -> str:
    return f"{size / 1e9:,.1f} GB"
