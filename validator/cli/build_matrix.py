"""`build-matrix`: the main job."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.table import Table
from rich.text import Text

from ..errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_MISSING, EXIT_OK
from ..model.record import Verdict
from ..pipeline.run import Result, Status
from ..reports.terminal import word
from .options import (
    depth_option,
    format_option,
    matrix_option,
    profile_option,
    refuse,
    say,
    select_option,
    store_option,
    store_url_for,
    verbose_option,
)

if TYPE_CHECKING:
    from ..engines.base import Engine
    from ..pipeline.publisher import Publisher
    from ..registry.names import Repository


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
    help="What builds and runs; auto takes docker where one answers.",
)
@click.option(
    "--base",
    type=click.Choice(["auto", "registry", "bootstrap"]),
    default="auto",
    show_default=True,
    help="Where docker's default base comes from; auto bootstraps one where no registry answers.",
)
@click.option(
    "--jobs", type=click.IntRange(1, 64), metavar="N", help="Images built at once.  [default: 1 per 4 cores]"
)
@click.option("--keep-going/--fail-fast", default=True, show_default=True, help="After a cell has failed.")
@click.option("--no-validate", is_flag=True, help="Build only; nothing is probed.")
@click.option(
    "--push",
    metavar="REGISTRY/NAME",
    help="Push every image there, under a tag such as 2.21.0-cuda12.5-cudnn9.3-py3.12, before it is probed.",
)
@click.option("--retag", is_flag=True, help="With --push: move tags that name another image.")
@click.option(
    "--pull-from",
    metavar="REGISTRY/NAME",
    help="Build nothing: probe the images that another run pushed there.",
)
@click.option(
    "--cache",
    metavar="REGISTRY/NAME",
    help="Keep the layers of builds there, under tags such as cache-tf2.21.0-…, and take them from there.",
)
@depth_option
@click.option("--force", is_flag=True, help="Build and validate even what is unchanged.")
@format_option("text", "json")
@verbose_option
def command(
    matrix_path: Path,
    profile: str | None,
    selectors: tuple[str, ...],
    store_url: str | None,
    engine_name: str,
    base: str,
    jobs: int | None,
    keep_going: bool,
    no_validate: bool,
    push: str | None,
    retag: bool,
    pull_from: str | None,
    cache: str | None,
    depth: str,
    force: bool,
    format_: str,
) -> int:
    """Plan, lock, build, probe and record: every selected image ends as a recorded verdict.

    Each image is measured on this machine. The other host classes of the matrix keep their predictions
    until somebody runs this there: with --pull-from, on the images that --push put into a registry.
    """
    if no_validate:
        refuse(("depth",), "says nothing beside --no-validate, which probes nothing")
    if engine_name == "venv":
        refuse(("base",), "is for the engine docker")
    from ..engines.docker import BasePolicy
    from ..pipeline.build_matrix import EngineChoice, build_matrix, choose_engine
    from ..pipeline.locking import refuse_wrong_locks
    from ..pipeline.run import Options, RegistryUse, Run
    from ..records.store import Store
    from ..system.sources import host_sources
    from .planning import locks_directory, planned
    from .progress import Progress

    # Before an engine is looked for: wrong input touches nothing.
    planned(matrix_path, profile, selectors)
    repository = _repository(push, pull_from, retag, no_validate, engine_name, cache)
    sources = host_sources()
    choice = EngineChoice.DOCKER if repository or cache else EngineChoice(engine_name)
    engine, description = choose_engine(choice, sources, BasePolicy(base), cache)
    say(f"Engine: {description}")
    plan = planned(
        matrix_path, profile, selectors, lambda python: None if engine.provides(python) else engine.name
    )
    refuse_wrong_locks(locks_directory(matrix_path), plan.images)
    use = RegistryUse.PULL if pull_from else RegistryUse.PUSH if push else RegistryUse.NONE
    jobs = jobs or max(1, (os.cpu_count() or 1) // 4)
    options = Options(jobs, keep_going, not no_validate, force, depth, use)
    publisher = _publisher(engine, repository, retag) if repository else None
    hosts = tuple(dict.fromkeys(cell.cell.host for cell in plan.cells))
    with Store(store_url_for(matrix_path, store_url)) as store, Progress(len(plan.images)) as progress:
        run = Run(engine, store, sources, locks_directory(matrix_path), hosts, options, progress, publisher)
        try:
            results = build_matrix(plan.images, run)
        finally:
            engine.close()
    if format_ == "json":
        click.echo(json.dumps([_as_json(result) for result in results], indent=2))
    else:
        _show(results)
    return _exit_code(results)


def _repository(
    push: str | None,
    pull_from: str | None,
    retag: bool,
    no_validate: bool,
    engine_name: str,
    cache: str | None,
) -> Repository | None:
    """The repository that the run has to do with. Raises UsageError for options that don't go together."""
    from ..registry.names import Repository

    if retag and not push:
        raise click.UsageError("--retag goes with --push")
    if push and pull_from:
        raise click.UsageError("--push and --pull-from do not go together")
    if pull_from and no_validate:
        raise click.UsageError("--pull-from with --no-validate leaves nothing to do")
    if pull_from and cache:
        raise click.UsageError("--pull-from builds nothing that --cache could help")
    if cache:
        Repository.parse(cache)
    given = push or pull_from
    if (given or cache) and engine_name == "venv":
        raise click.UsageError(
            "the venv engine makes no images that a registry could hold; use --engine docker"
        )
    return Repository.parse(given) if given else None


def _publisher(engine: Engine, repository: Repository, retag: bool) -> Publisher:
    from ..engines.base import ImageEngine
    from ..pipeline.publisher import Publisher
    from ..registry.client import Registry

    assert isinstance(engine, ImageEngine)
    return Publisher(engine, Registry(repository), retag)


def _show(results: list[Result]) -> None:
    from ..reports.terminal import show

    show(results_table(results))
    click.echo(totals(results))


def _as_json(result: Result) -> dict[str, object]:
    return {
        "image": result.spec.identifier,
        "status": result.status.value,
        "built": result.built,
        "detail": result.detail,
        "published": result.published.as_json() if result.published else None,
        "record": result.record.document() if result.record else None,
    }


def _exit_code(results: list[Result]) -> int:
    missing = [result for result in results if result.status is Status.MISSING]
    refused = [result for result in results if result.status is Status.REFUSED]
    for result in (*missing, *refused):
        hint = result.error.hint if result.error else None
        say(f"error: {result.detail}" + (f"\n  hint: {hint}" if hint else ""))
    if results and all(result.status is Status.SKIPPED for result in results):
        say("error: nothing was done: every image was skipped, each for the reason above")
        return EXIT_MISSING
    if any(result.status is Status.STOPPED for result in results):
        stopped = sum(result.status is Status.STOPPED for result in results)
        say(f"{stopped} of {len(results)} images were not finished; what was finished is kept. To go on:")
        say(f"  python -m validator {shlex.join(sys.argv[1:])}")
        if not any(result.failed for result in results) and not missing and not refused:
            return EXIT_INTERRUPTED
    if refused or any(result.failed for result in results):
        return EXIT_FAILED
    return EXIT_MISSING if missing else EXIT_OK


# The results of a run as a table and as one line.


def results_table(results: Sequence[Result]) -> Table:
    """One row an image."""
    table = Table("image", "result", "why", box=None, pad_edge=False)
    table.columns[0].no_wrap = True
    for result in results:
        record = result.record
        if record is None:
            table.add_row(result.spec.identifier, result.status.value, Text(result.detail))
        else:
            note = "" if result.status is Status.MEASURED else f" ({result.detail})"
            table.add_row(result.spec.identifier, word(record.verdict.value), Text(record.reason + note))
    return table


def totals(results: Sequence[Result]) -> str:
    """`1 built, 1 validated, 0 unchanged`, and what else there was: pushed, failed, refused, skipped…"""

    def count(status: Status) -> int:
        return sum(result.status is status for result in results)

    validated = sum(
        result.status is Status.MEASURED
        and result.record is not None
        and result.record.verdict is not Verdict.BROKEN
        for result in results
    )
    parts = [
        f"{sum(result.built for result in results)} built",
        f"{validated} validated",
        f"{count(Status.UNCHANGED)} unchanged",
    ]
    others = {
        "pushed": sum(result.published is not None and result.published.sent for result in results),
        "failed": sum(result.failed for result in results),
        "refused": count(Status.REFUSED),
        "skipped": count(Status.SKIPPED),
        "missing": count(Status.MISSING),
        "stopped": count(Status.STOPPED),
    }
    return ", ".join([*parts, *(f"{number} {name}" for name, number in others.items() if number)])
