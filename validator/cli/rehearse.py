"""`build-matrix --rehearse`: go the whole way to a pull without a GPU, with keys that are thrown away."""

from __future__ import annotations

import contextlib
import shlex
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..assemble.base_finder import BasePolicy
from ..assemble.destinations import destinations
from ..assemble.wheels import refuse_wrong_locks
from ..certify.machine import BUILDERS, add, new_party
from ..certify.signatures import Signer, make_key_pair
from ..certify.trust import NAME, read_trust_file
from ..delivery.choose import Host, parse_driver, parse_gpus
from ..delivery.pull import Engine
from ..delivery.rehearsal import ALIAS, Rehearsed, Stage, Step, loopback_registry, serve_command, steps
from ..engines.protocol import ImageEngine
from ..errors import EXIT_FAILED, EXIT_OK, MissingError
from ..locks import lock_files
from ..locks.lock_files import LockDirectory
from ..model.codec import now_utc
from ..model.record import REHEARSAL
from ..pipeline.build_matrix import build_matrix
from ..pipeline.makers import EngineChoice, ImageSettings, open_engine
from ..pipeline.publisher import Publisher
from ..pipeline.run import Options, RegistryUse, Result, Run
from ..records.store import Store
from ..registry.client import Registry
from ..registry.names import Repository
from ..reports.printable import json_text, one_line
from ..reports.terminal import rows_table, show
from ..system.package_sources import host_sources
from ..system.runs import temporary_directory
from .build_matrix import Request
from .options import print_status
from .planning import available_on, load_plan, locks_of
from .progress import Progress

if TYPE_CHECKING:
    from ..matrix.plan import Plan

#: The repository in the registry that is started for a rehearsal.
_PATH = "rehearsal"
#: The machine to recommend for, if the matrix names none with a GPU.
_HOST = ("580", "h100")


def rehearse(asked: Request) -> int:
    """Rehearse, print the steps and the commands for the real thing, and return the exit code."""
    plan = load_plan(asked.matrix_path, asked.profile, asked.selectors)
    refuse_wrong_locks(locks_of(asked.matrix_path), plan.images)
    repository = Repository.parse(asked.push) if asked.push else None
    with contextlib.closing(Engine()) as engine:
        if repository is None and not engine.is_local:
            raise MissingError(
                "the Docker Engine runs on another machine, which can't reach a registry on this one",
                hint="name a registry that both reach: --push REGISTRY/NAME",
            )
        with _directory(asked.keep) as directory, _registry(repository, directory) as found:
            done, good = _rehearse(asked, plan, found, directory, engine)
        if asked.as_json:
            click.echo(json_text({"rehearsal": True, "steps": [asdict(step) for step in done]}))
        else:
            rows = [(step.image, step.name, one_line(step.did)) for step in done]
            show(rows_table((REHEARSAL, "step", "what it did"), rows, whole=True))
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
    trust_path = directory / NAME
    add(trust_path, BUILDERS, new_party(builder, name=f"{REHEARSAL}-builder"))
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
                stage = Stage(registry, signer, trust, read_trust_file(trust_path), _host(plan), now_utc())
                for step in steps(stage, images, engine, lambda line: _say(f"pull: {line}")):
                    _say(f"{step.image}: {step.name}: {step.did}")
                    done.append(step)
    finally:
        # From another registry, the engine may have had the same image before, and would lose it.
        if not asked.keep and asked.push is None:
            repository = registry.repository
            for name in (repository.tagged(ALIAS), *(repository.at(image.digest) for image in images)):
                engine.remove(name)
    return done, good


def _measure(asked: Request, registry: Registry, directory: Path, builder: Signer) -> list[Result]:
    """Build, push, pull and probe the images. The locks, the records and the trust are in the directory."""
    sources, locks = host_sources(), LockDirectory(directory / "locks")
    settings = ImageSettings(
        BasePolicy(asked.base), locks=locks_of(asked.matrix_path).own, local=asked.matrix_path.parent
    )  # fmt: skip
    place = open_engine(EngineChoice.AUTO, sources, settings, needs_images=True, measures=True)
    assert place.maker is not None and isinstance(place.engine, ImageEngine)
    _say(f"engine: {place.description}")
    plan = load_plan(asked.matrix_path, asked.profile, asked.selectors, available_on(place.engine))
    locks.own.mkdir()
    for spec in plan.images:
        if (lock := locks_of(asked.matrix_path).read(spec.identifier)) is not None:
            lock_files.write(locks.own, lock)
    destination = destinations(registry.repository, place.maker.base_repository)
    publisher = Publisher(
        place.maker, destination, registry, read_trust_file(directory / NAME),
        place.engine, builder, retag=True, rehearsal=True,
    )  # fmt: skip
    options = Options(asked.images_at_once, depth=asked.depth, registry=RegistryUse.PUSH, rehearsal=True)
    hosts = tuple(dict.fromkeys(cell.cell.host for cell in plan.cells))
    try:
        with (
            Store(str(directory / "records.db")) as store,
            Progress(len(plan.images), f"{REHEARSAL}: ") as progress,
        ):
            run = Run(place.engine, store, sources, locks, hosts, options, progress, publisher)
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
    chosen = ["--profile", asked.profile] if asked.profile else []
    for selector in asked.selectors:
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
