"""`build-matrix`: the main job."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_MISSING, EXIT_OK
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
    from ..pipeline.build_matrix import Result


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
    depth: str,
    force: bool,
    format_: str,
) -> int:
    """Plan, lock, build, probe and record: every selected image ends as a recorded verdict.

    Each image is measured on this machine. The other host classes of the matrix keep their predictions
    until somebody runs this there.
    """
    if no_validate:
        refuse(("depth",), "says nothing beside --no-validate, which probes nothing")
    if engine_name == "venv":
        refuse(("base",), "is for the engine docker")
    from ..engines.docker import BasePolicy
    from ..pipeline.build_matrix import Options, Work, build_matrix
    from ..pipeline.engines import EngineChoice, choose_engine
    from ..pipeline.locking import refuse_wrong_locks
    from ..records.store import Store
    from ..system.sources import host_sources
    from .planning import locks_directory, planned
    from .progress import Progress

    # Before an engine is looked for: wrong input touches nothing.
    planned(matrix_path, profile, selectors)
    sources = host_sources()
    engine, why = choose_engine(EngineChoice(engine_name), sources, BasePolicy(base))
    say(f"engine: {why}")
    plan = planned(
        matrix_path, profile, selectors, lambda python: None if engine.provides(python) else engine.name
    )
    refuse_wrong_locks(locks_directory(matrix_path), plan.images)
    options = Options(jobs or max(1, (os.cpu_count() or 1) // 4), keep_going, not no_validate, force, depth)
    hosts = tuple(dict.fromkeys(cell.cell.host for cell in plan.cells))
    with Store(store_url_for(matrix_path, store_url)) as store, Progress(len(plan.images)) as progress:
        work = Work(engine, store, sources, locks_directory(matrix_path), hosts, options, progress)
        try:
            results = build_matrix(plan.images, work)
        finally:
            engine.close()
    if format_ == "json":
        click.echo(json.dumps([_as_json(result) for result in results], indent=2))
    else:
        _show(results)
    return _exit_code(results)


def _show(results: list[Result]) -> None:
    from ..reports.terminal import show
    from .results import results_table, totals

    show(results_table(results))
    click.echo(totals(results))


def _as_json(result: Result) -> dict[str, object]:
    return {
        "image": result.spec.identifier,
        "status": result.status.value,
        "built": result.built,
        "detail": result.detail,
        "record": result.record.as_json() if result.record else None,
    }


def _exit_code(results: list[Result]) -> int:
    from ..pipeline.build_matrix import Status

    missing = [result for result in results if result.status is Status.MISSING]
    for result in missing:
        hint = result.error.hint if result.error else None
        say(f"error: {result.detail}" + (f"\n  hint: {hint}" if hint else ""))
    if any(result.status is Status.STOPPED for result in results):
        stopped = sum(result.status is Status.STOPPED for result in results)
        say(f"{stopped} of {len(results)} images were not finished; what was finished is kept. To go on:")
        say(f"  python -m validator {shlex.join(sys.argv[1:])}")
        if not any(result.failed for result in results) and not missing:
            return EXIT_INTERRUPTED
    if any(result.failed for result in results):
        return EXIT_FAILED
    return EXIT_MISSING if missing else EXIT_OK
