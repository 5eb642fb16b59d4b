"""Do what `build-matrix` was asked for: build and measure the images, or rehearse the whole way to a pull.

Also choose who signs what is built and measured here, and measure the images of a received bundle.
"""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, TypedDict

import click

from ..assemble.base_finder import BasePolicy
from ..assemble.image import destinations
from ..assemble.wheels import Wheelhouse, refuse_wrong_locks
from ..certify import trust_file
from ..certify.signatures import Signer, is_installed, make_key_pair, parse_bundle
from ..certify.trust import Ledger, TrustFile, read_challenges
from ..compat.hardware import model_of
from ..delivery.choose import Host, parse_driver, parse_gpus
from ..delivery.pull import Engine
from ..delivery.rehearsal import ALIAS, Rehearsed, Stage, Step, loopback_registry, serve_command, steps
from ..engines import protocol
from ..engines.docker import DockerEngine
from ..engines.endpoint import connect, connect_podman
from ..engines.images import load_from_layout
from ..engines.protocol import ImageEngine
from ..errors import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_MISSING,
    EXIT_OK,
    InputError,
    MissingError,
    ValidatorError,
)
from ..fleet.protocol import Fleet
from ..locks import lock_files
from ..locks.lock_files import LockDirectory
from ..matrix.load import DEFAULT_PROFILE
from ..matrix.plan import Plan
from ..model.codec import encode, now_utc
from ..model.record import REHEARSAL, Unread
from ..model.spec import NO_GPU, ImageSpec, Lock
from ..offline.receive import MANIFEST, read_bundle
from ..pipeline.build_matrix import Publisher, build_matrix
from ..pipeline.bundle import measure as measure_bundled
from ..pipeline.makers import EngineChoice, ImageSettings, OpenedEngine, estimate, open_engine
from ..pipeline.run import Event, Options, ProgressFile, RegistryUse, Result, Run, Runner, Status
from ..records import record_files
from ..records.store import Store
from ..registry.client import Registry
from ..registry.names import Repository
from ..reports.printable import counted, json_text, one_line
from ..reports.terminal import show
from ..system.files import read_file, write_atomically
from ..system.package_sources import host_sources
from ..system.runs import temporary_directory
from . import options
from .build_matrix import Request
from .fleet import measure, open_named_fleet
from .options import Builder, print_status
from .planning import available_on, load_plan, locks_of, plan_for_this_machine
from .progress import (
    Progress,
    image_name,
    local_digest,
    results_table,
    say_environments,
    say_estimate,
    say_next_steps,
    totals,
)


@dataclass(frozen=True)
class Prepared:
    """Everything that a run needs, except the store and what watches the run.

    profile: the one that has the images, None for the default. repository: where images are pushed to or
    pulled from. challenges: for cells or image specs. fleet: None if nothing is submitted.
    """

    place: OpenedEngine
    plan: Plan
    profile: str | None
    repository: Repository | None
    challenges: Mapping[str, str] | None
    fleet: Fleet | None
    run: Callable[[Store, Callable[[Event], None]], Run]


def perform(asked: Request) -> int:
    """Prepare, build and measure the images, print the results, and return the exit code."""
    prepared = prepare(asked)
    with Store(asked.project.store) as store:
        run, results = build(asked, prepared, store)
        if prepared.fleet is not None:
            measured = replace(run, challenges=prepared.challenges)
            where = str(prepared.repository)
            with contextlib.closing(prepared.fleet) as fleet:
                return measure(
                    prepared.plan, results, measured, fleet, where, asked.dry_run, asked.format_ == "json"
                )
    return report(asked, prepared, results)


def prepare(asked: Request) -> Prepared:
    """Check the input, then open what the run needs, and say what it takes.

    The input is checked before an engine is looked for, so that wrong input touches nothing.
    """
    challenges = challenges_for(load_plan(*asked.project.cells), asked.challenge, asked.challenges_path)
    name, others = asked.push or asked.pull_from, [Repository.parse(name) for name in asked.mount_from]
    repository = Repository.parse(name) if name else None
    # Without a trust file, nothing in a registry is accepted.
    trust = asked.project.read_trust(needed=asked.pull_from is not None)
    fleet = open_named_fleet(asked.on, asked.project.fleet_file) if asked.with_fleet else None
    sources, locks = host_sources(), locks_of(asked.project.matrix_path)
    settings = ImageSettings(
        BasePolicy(asked.base), asked.layout, locks.own, asked.project.matrix_path.parent, renew=asked.force
    )
    choice, needs_images = EngineChoice(asked.engine_name), repository is not None
    place = open_engine(choice, sources, settings, needs_images=needs_images, measures=asked.measures_here)
    print_status(f"Engine: {place.description}")
    missing: dict[str, str] = {}
    available, profile = available_on(place.engine, missing), asked.project.profile
    fitting = plan_for_this_machine(asked.project.matrix_path, available) if asked.fits_machine else None
    if fitting is None:
        plan = load_plan(*asked.project.cells, available)
    else:
        plan, chosen = fitting
        print_status(chosen.why)
        profile = None if chosen.profile == DEFAULT_PROFILE else chosen.profile
    pythons = {image.python for image in plan.images}
    if not pythons & missing.keys():
        for python, why in missing.items():
            print_status(f"Python {', '.join(sorted(pythons))} is used instead of {python}: {why}.")
    options.say_recommended(plan.images)
    refuse_wrong_locks(locks, plan.images)
    if asked.builds:

        def is_here(spec: ImageSpec, lock: Lock) -> bool:
            made_anew = asked.force or repository is not None
            return not made_anew and place.engine.existing(spec, lock) is not None

        with contextlib.closing(Wheelhouse(sources)) as wheelhouse:
            say_estimate(estimate(plan.images, locks, wheelhouse.missing, is_here))
    publisher, trust_path = None, asked.project.trust_file
    if repository is not None:
        signer = None
        if asked.builds:
            signer = builder_of(trust_path, asked.builder)
            trust = asked.project.read_trust(needed=False)
        publisher = _publisher(place, Registry(repository), trust, signer, *others)
        publisher = replace(publisher, retag=asked.retag)
    use = RegistryUse.PUSH if asked.push else RegistryUse.NONE
    how = Options(
        asked.images_at_once, asked.keep_going, asked.measures_here, asked.force, asked.depth,
        use if asked.builds else RegistryUse.PULL,
    )  # fmt: skip
    runner, challenged = None, challenges is not None
    if asked.with_fleet and not asked.dry_run:
        runner = fleet_runner_of((host.identifier for host in plan.hosts), trust_path, asked=challenged)
    elif asked.measures_here:
        runner = runner_of(place.engine, trust_path, asked=challenged)

    def run(store: Store, on_event: Callable[[Event], None]) -> Run:
        # With a fleet, the challenges are answered after building.
        now = None if fleet is not None else challenges
        return Run(place.engine, store, sources, locks, plan.hosts, how, on_event, publisher, runner, now)

    return Prepared(place, plan, profile, repository, challenges, fleet, run)


def _publisher(
    place: OpenedEngine, registry: Registry, trust: TrustFile, signer: Signer | None, *others: Repository
) -> Publisher:
    assert place.maker is not None
    destination = destinations(registry.repository, place.maker.bases.repository, others)
    engine = place.engine if isinstance(place.engine, ImageEngine) else None
    return Publisher(place.maker, destination, registry, trust, engine, signer)


def build(asked: Request, prepared: Prepared, store: Store) -> tuple[Run, list[Result]]:
    """Build the images, and measure them here unless a fleet does that or nothing does. Close the engine."""
    images = prepared.plan.images
    watched = ProgressFile(asked.project.progress, asked.project.profile_name, len(images))
    with Progress(len(images)) as progress, watched:

        def on_event(event: Event) -> None:
            progress(event)
            watched(event)

        run = prepared.run(store, on_event)
        try:
            return run, build_matrix(images, run)
        finally:
            prepared.place.engine.close()


def report(asked: Request, prepared: Prepared, results: list[Result]) -> int:
    """Print the results and what to do with the images, and return the exit code."""
    if asked.format_ == "json":
        click.echo(json_text([result_json(result, asked.layout) for result in results]))
    else:
        show(results_table(results))
        click.echo(totals(results))
    if prepared.place.maker is not None:
        holder = prepared.place.engine
        kind = holder.name if isinstance(holder, ImageEngine) else "auto"
        say_next_steps(results, asked.push or asked.pull_from, prepared.profile, asked.layout, kind)
    else:
        engine, locks = prepared.place.engine, locks_of(asked.project.matrix_path)
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
        str, "`measured`, `unchanged`, `built` (and not probed), `skipped`, `refused`, `missing`, `stopped`."
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
        "digest": result.published.digest if result.published is not None else local_digest(result),
        "reference": image_name(result, layout),
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


# `--rehearse`: go the whole way to a pull without a GPU, with keys that are thrown away.


#: The repository in the registry that is started for a rehearsal.
_PATH = "rehearsal"
#: The machine to recommend for, if the matrix names none with a GPU.
_HOST = ("580", "h100")


def rehearse(asked: Request) -> int:
    """Rehearse, print the steps and the commands for the real thing, and return the exit code."""
    plan = load_plan(*asked.project.cells)
    refuse_wrong_locks(locks_of(asked.project.matrix_path), plan.images)
    repository = Repository.parse(asked.push) if asked.push else None
    with contextlib.closing(Engine()) as engine:
        if repository is None and not engine.is_local:
            raise MissingError(
                "the Docker Engine runs on another machine, which can't reach a registry on this one",
                hint="name a registry that both reach: --push REGISTRY/NAME",
            )
        with _directory(asked.keep) as directory, _registry(repository, directory) as found:
            done, good = _rehearse(asked, plan, found, directory, engine)
        if asked.format_ == "json":
            click.echo(json_text({"rehearsal": True, "steps": [asdict(step) for step in done]}))
        else:
            rows = [(step.image, step.name, one_line(step.did)) for step in done]
            options.print_rows((REHEARSAL, "step", "what it did"), rows, whole=True)
        if repository is not None:
            tags = sorted({ALIAS, *(step.did.partition(" ")[0] for step in done if step.name == "push")})
            _say(
                f"{repository} keeps these tags, which no command uses: {', '.join(tags)}; the engine keeps"
                " what it pulled"
            )
    _say(
        "every step was done, and nothing that was made counts."
        if good
        else "it ended with errors, which are in the table."
    )
    _say_the_real_thing(asked)
    return EXIT_OK if good else EXIT_FAILED


@contextlib.contextmanager
def _directory(keep: bool) -> Iterator[Path]:
    """Make the directory for keys, trust file, locks, records and the registry's data."""
    if not keep:
        with temporary_directory(REHEARSAL) as directory:
            yield directory
        return
    directory = Path(tempfile.mkdtemp(prefix=f"validator-{REHEARSAL}-"))
    try:
        yield directory
    finally:
        _say(f"the keys, the trust file, the locks, the records and the registry's data are in {directory}")
        if (directory / "registry").exists():
            _say(f"start its registry again with: {shlex.join(serve_command(directory / 'registry'))}")


@contextlib.contextmanager
def _registry(repository: Repository | None, directory: Path) -> Iterator[Registry]:
    if repository is not None:
        yield Registry(repository)
        return
    try:
        with loopback_registry(directory / "registry") as address:
            _say(f"started a registry at {address}")
            yield Registry(Repository(address, _PATH))
    except MissingError as error:
        if error.hint is None or "registry" not in error.hint:
            raise
        raise MissingError(str(error), hint=f"{error.hint}: --push REGISTRY/NAME") from error


def _rehearse(
    asked: Request, plan: Plan, registry: Registry, directory: Path, engine: Engine
) -> tuple[list[Step], bool]:
    """Return the steps that were done, and True if all of them succeeded."""
    # Before anything is built: a registry that can't be used, or a program that is missing.
    registry.tags()
    builder, signer = (
        Signer(key=str(make_key_pair(directory / name, "", throw_away=True)[0]), password="")
        for name in ("builder", "release")
    )
    trust_path = directory / trust_file.NAME
    trust_file.add(
        trust_path, trust_file.BUILDERS, trust_file.new_party(builder, name=f"{REHEARSAL}-builder")
    )
    results = _measure(asked, registry, directory, builder)
    done = [step for result in results for step in _steps_of(result)]
    images = [
        Rehearsed(result.record, result.published.tag)
        for result in results
        if result.published is not None and result.record is not None and result.record.image_digest
    ]
    good = not any(result.failed for result in results) and len(images) == len(results)
    try:
        if images:
            with signer.trust() as trust:
                stage = Stage(
                    registry, signer, trust, trust_file.read_trust_file(trust_path), _host(plan), now_utc()
                )
                for step in steps(stage, images, engine, lambda line: _say(f"pull: {line}")):
                    _say(f"{step.image}: {step.name}: {step.did}")
                    done.append(step)
    finally:
        # Keep images from another registry: the engine may have had them before the rehearsal.
        if not asked.keep and asked.push is None:
            repository = registry.repository
            for name in (repository.tagged(ALIAS), *(repository.at(image.digest) for image in images)):
                engine.remove(name)
    return done, good


def _measure(asked: Request, registry: Registry, directory: Path, builder: Signer) -> list[Result]:
    """Build, push, pull and probe the images. The locks, the records and the trust are in the directory."""
    sources, locks, matrix_path = host_sources(), directory / "locks", asked.project.matrix_path
    known = locks_of(matrix_path)
    settings = ImageSettings(BasePolicy(asked.base), locks=known.own, local=matrix_path.parent)
    place = open_engine(EngineChoice.AUTO, sources, settings, needs_images=True, measures=True)
    _say(f"engine: {place.description}")
    plan = load_plan(*asked.project.cells, available_on(place.engine))
    locks.mkdir()
    for spec in plan.images:
        if (lock := known.read(spec.identifier)) is not None:
            lock_files.write(locks, lock)
    trust = trust_file.read_trust_file(directory / trust_file.NAME)
    publisher = replace(_publisher(place, registry, trust, builder), retag=True, rehearsal=True)
    how = Options(asked.images_at_once, depth=asked.depth, registry=RegistryUse.PUSH, rehearsal=True)
    try:
        with (
            Store(str(directory / "records.db")) as store,
            Progress(len(plan.images), f"{REHEARSAL}: ") as progress,
        ):
            own = LockDirectory(locks)
            run = Run(place.engine, store, sources, own, plan.hosts, how, progress, publisher)
            return build_matrix(plan.images, run)
    finally:
        place.engine.close()


def _steps_of(result: Result) -> Iterator[Step]:
    image = result.spec.identifier
    if result.published is not None:
        did = f"{result.published.tag} is {result.published.digest}"
        yield Step(image, "build", "assembled in the registry" if result.built else "it was there already")
        yield Step(image, "push", f"{did}; a throw-away builder key signed what it was made from")
    if result.record is None:
        yield Step(image, result.status.value, result.detail)
    elif result.published is None:
        yield Step(image, "build", f"{result.record.verdict.value}: {result.record.reason}")
    else:
        yield Step(image, "probe", f"{result.record.verdict.value}: {result.record.reason}")


def _host(plan: Plan) -> Host:
    """Return the first machine of the plan with a GPU."""
    for cell in plan.cells:
        host = cell.cell.host
        if host.has_gpu:
            return Host(host.driver, parse_gpus([host.gpu or str(host.compute_capability)]))
    driver, gpu = _HOST
    return Host(parse_driver(driver), parse_gpus([gpu]))


def _say_the_real_thing(asked: Request) -> None:
    where = asked.push or "REGISTRY/NAME"
    chosen = ["--profile", asked.project.profile] if asked.project.profile else []
    for selector in asked.project.selectors:
        chosen += ["--select", selector]
    _say("the real thing, of which only the second command needs a GPU:")
    for words in (
        ["build-matrix", *chosen, "--push", where],
        ["build-matrix", *chosen, "--pull-from", where],
        ["certify", "keygen", "--output-prefix", "team"],
        ["certify", "--registry", where, "--signing-key", "team.key"],
        ["promote", "--registry", where, "--key", "team.pub"],
        ["recommend", "--registry", where, "--key", "team.pub"],
        ["pull", "--registry", where, "--key", "team.pub"],
    ):
        print_status(f"  {shlex.join(['validator', *words])}")


def _say(text: str) -> None:
    print_status(f"{REHEARSAL}: {text}")


# Choose who signs what is built here.


_UNSIGNED = "What is built here can't be certified"


def builder_of(trust_path: Path, builder: Builder, *, needed: bool = False) -> Signer | None:
    """Return who signs what is built here; prints why nobody does, or whose signature will not count.

    needed: for an image that is already in a registry. Then what would be printed is a MissingError or a
    ValidatorError, and there is always a signer.
    """
    if not builder.is_named:
        registration = trust_file.register(trust_path, trust_file.BUILDERS)
        if needed and registration.signer is None:
            raise MissingError(registration.said or "this machine has no key")
        if registration.said:
            print_status(registration.said)
        return registration.signer
    if not needed and not is_installed():
        print_status(f"{_UNSIGNED}: the program cosign is not installed")
        return None
    password = os.environ.get("COSIGN_PASSWORD", "") if builder.builder_key else None
    signer = Signer(builder.builder_key, password, builder.identity, builder.issuer)
    with signer.trust() as own:
        name = own.signer
    known = trust_file.read_trust_file(trust_path).builders if trust_path.exists() else ()
    if any(one.signatory.signer == name for one in known):
        return signer
    stranger = f"{trust_path} has no builder {name}"
    if needed:
        raise ValidatorError(
            f"{stranger}, so nobody would accept what it signs",
            hint="use the key of a builder in that file, or name another file with --trust",
        )
    print_status(f"{_UNSIGNED}: {stranger}")
    return signer


# Set up `build-matrix` to sign what it measures: the machine's key, and the challenges that are answered.


def challenges_for(plan: Plan, challenge: str | None, file: Path | None) -> Mapping[str, str] | None:
    """Return the challenges that were given, by cell or by image spec; None if there are none."""
    if file is not None:
        return {entry.asked: value for value, entry in read_challenges(file).by_value.items()}
    if challenge is None:
        return None
    if len(plan.images) != 1:
        raise click.UsageError(
            f"--challenge is for one measurement, but {len(plan.images)} images are selected;"
            " use --select image=NAME, or --challenges FILE"
        )
    asked = plan.cells[0].cell.identifier if len(plan.cells) == 1 else plan.images[0].identifier
    return {asked: challenge}


def runner_of(engine: protocol.Engine, trust_path: Path, *, asked: bool) -> Runner | None:
    """Return what signs this machine's measurements, or None where nothing can be signed.

    If a measurement on a GPU can't be signed, one line says why. asked: somebody else will certify, who
    gave the challenges and has their own trust file. Otherwise, this machine is registered in `trust_path` if
    it was not yet. Raises InputError if the key or the file can't be used.
    """
    outside = engine.outside()
    if isinstance(outside, Unread):
        if outside not in (Unread.NO_GPU_OFFERED, Unread.NVML_SILENT):
            print_status(f"Measurements here are at most unproven: {outside.sentence}.")
        return None
    if not outside.gpus:
        return None
    if not engine.isolates:
        print_status(
            "What is measured here can't be certified: only the containers of --engine docker keep it away"
            " from this machine's key."
        )
        return None
    signer = _signer_of((model_of(gpu.name) for gpu in outside.gpus), trust_path, asked=asked)
    return _runner(signer, labels_trusted=False) if signer is not None else None


def fleet_runner_of(host_classes: Iterable[str], trust_path: Path, *, asked: bool) -> Runner | None:
    """Return what signs the measurements of a fleet: this machine's key, for the cluster as one runner.

    host_classes: those that will be measured. asked: see `runner_of`.
    """
    models = sorted({name.partition("-")[2] for name in host_classes if name != NO_GPU})
    if not models:
        return None
    signer = _signer_of(models, trust_path, asked=asked, remark=" Its key signs for all nodes.")
    if signer is None:
        return None
    return _runner(signer, labels_trusted=trust_file.trusts_labels(trust_path, signer))


def _signer_of(models: Iterable[str], trust_path: Path, *, asked: bool, remark: str = "") -> Signer | None:
    """Return this machine's key, or print what is missing.

    Unless `asked`, register this machine for these GPU models in the trust file, and print that and `remark`.
    """
    if not asked:
        registration = trust_file.register(trust_path, trust_file.RUNNERS, tuple(dict.fromkeys(models)))
        if registration.said:
            print_status(f"{registration.said}.{remark}")
        return registration.signer
    signer = trust_file.own_signer(trust_file.RUNNERS)
    if signer is None:
        print_status(
            "What is measured here can't be certified: this machine has no key. Make one with `runner init`,"
            " and add the line that it prints to the trust.yaml of whoever certifies."
        )
    return signer


def _runner(signer: Signer, *, labels_trusted: bool) -> Runner:
    def sign(statement: bytes) -> str:
        return parse_bundle(signer.sign(statement)).canonical.decode()

    return Runner(sign, lambda cell: Ledger().issue(cell).value, labels_trusted)


# `./measure` of a received bundle starts this with the tool that is in the bundle.


def measure_received() -> int:
    """Measure an image, and add each record to a file as soon as it is there.

    Its arguments: the bundle's directory, the tag, `docker` or `podman`, the name to load under, the file.
    """
    directory, tag, choice, reference, file = sys.argv[1:]
    received, output = Path(directory), Path(file)
    bundle = read_bundle(read_file(received / MANIFEST))
    image = next(image for image in bundle.images if image.tag == tag)
    endpoint = connect_podman() if choice == "podman" else connect()
    engine = DockerEngine(endpoint)
    with contextlib.closing(engine):
        print_status(f"Engine: {engine.describe()}")
        load_from_layout(endpoint, reference, received / "images", image.digest, print_status)
        name = endpoint.client.images.get(reference).id
        if name is None:
            raise InputError(f"{reference}: the engine does not say which image it has loaded")
        runner = runner_of(engine, received / "trust" / "trust.yaml", asked=True)
        for record in measure_bundled(
            received, bundle, image, engine, lambda asked: engine.probe_image(name, asked, print_status),
            runner, print_status,
        ):  # fmt: skip
            text = io.StringIO()
            record_files.write([record], text)
            before = output.read_bytes() if output.exists() else b""
            write_atomically(output, before + text.getvalue().encode())
    return EXIT_OK
