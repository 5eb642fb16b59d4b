"""Measure with a fleet: the part of `build-matrix --on` that follows building, and `fleet resume`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_MISSING, EXIT_OK, InputError
from ..reports.printable import counted, json_text
from ..system.files import write_atomically
from .options import print_status, working_directory

if TYPE_CHECKING:
    from ..fleet.protocol import Fleet
    from ..fleet.run_store import FleetRun, Runs, Tried
    from ..matrix.plan import Plan
    from ..pipeline.fleet import CellResult, CellResultDocument
    from ..pipeline.publisher import PublishedImage
    from ..pipeline.run import Result, Run, Runner
    from ..records.store import Store


def measure(
    plan: Plan,
    images: Sequence[Result],
    run: Run,
    fleet: Fleet,
    repository: str,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Submit the cells, wait for their answers, print the results and return the exit code.

    images: the results of building. repository: where the images are. as_json: print the results as JSON.
    """
    from ..fleet.run_store import Runs
    from ..pipeline.fleet import command_key, plan_units, preview, results_of

    cells = [planned.cell for planned in plan.cells]
    published = {
        result.spec.identifier: result.published for result in images if result.published is not None
    }
    not_built = [result for result in images if result.published is None]
    key = command_key(fleet.name, repository, cells, run)
    if dry_run:
        with Runs() as runs:
            planned = plan_units(cells, images, run, fleet, runs.owner)
        click.echo(preview(planned.works, fleet), nl=False)
        for result in not_built:
            print_status(f"{result.spec}: not submitted: {result.detail or result.status.value}")
        if not_built:
            print_status(f"`build-matrix --push {repository} --no-validate` builds and pushes images only.")
        _say_going(planned.going, None)
        return _exit_code([], not_built)
    with Runs() as runs, runs.submitting(key):
        planned = plan_units(cells, images, run, fleet, runs.owner)
        current = runs.open_run(key, fleet.name, _command(), {"store": run.store.location})
        _say_going(planned.going, current)
        runs.add(current, planned.works)
        print_status(
            f"{current.id}: {counted(len(planned.works) + planned.going.get(current.id, 0), 'cell')} for"
            f" {fleet.name}, {len(planned.unchanged)} unchanged."
        )
        try:
            tried = submit(fleet, runs, current, run.store, run.runner)
        except KeyboardInterrupt:
            _say_stopped(current)
            return EXIT_INTERRUPTED
    results = [*_unchanged(planned.unchanged, published), *results_of(tried, published)]
    _print(results, not_built, run.store, as_json=as_json)
    return _exit_code(results, not_built)


def refuse_other_store(run: FleetRun, store: Store) -> None:
    """Raise InputError if a run writes its records to another store."""
    if run.place.get("store") != store.location:
        raise InputError(
            f"{run.id} writes its records to {run.place.get('store')}, not to {store.location}",
            hint="name that store with --store, or its matrix with --matrix",
        )


def resume(
    run: FleetRun, runs: Runs, fleet: Fleet, store: Store, runner: Runner | None, *, as_json: bool
) -> int:
    """Continue a run whose process has ended, print its results and return the exit code."""
    from ..pipeline.fleet import results_of

    refuse_other_store(run, store)
    with runs.submitting(run.key):
        try:
            tried = submit(fleet, runs, run, store, runner)
        except KeyboardInterrupt:
            _say_stopped(run)
            return EXIT_INTERRUPTED
    results = results_of(tried)
    _print(results, [], store, as_json=as_json)
    return _exit_code(results, [])


def submit(fleet: Fleet, runs: Runs, run: FleetRun, store: Store, runner: Runner | None) -> list[Tried]:
    """Take a run to its end, and show how far it is."""
    from ..fleet.submitter import Submitter
    from ..pipeline.fleet import Recorder
    from .progress import FleetProgress

    with FleetProgress() as progress:
        recorder = Recorder(store, runner, progress.say, progress.show)
        return Submitter(fleet, runs, run, recorder).work()


def _say_going(going: Mapping[str, int], current: FleetRun | None) -> None:
    for owner, number in going.items():
        if current is None or owner != current.id:
            print_status(
                f"{counted(number, 'cell')} not submitted again: {owner} has them and has not ended."
                f" `fleet resume {owner}` continues it, `fleet cancel {owner}` cancels it."
            )


def _say_stopped(run: FleetRun) -> None:
    print_status(
        f"Stopped watching {run.id}. Its jobs go on. `fleet resume {run.id}` collects what they measure,"
        f" `fleet cancel {run.id}` ends them."
    )


def _command() -> tuple[str, ...]:
    """Return the command for `fleet status`, without the values of options that may hold a password."""
    words = sys.argv[1:]
    secret = ("--store", "--challenge", "--builder-key")
    hidden = [word.partition("=")[0] in secret for word in words]
    return tuple(
        f"{word.partition('=')[0]}=…" if hide and "=" in word else "…" if before and "=" not in last else word
        for word, hide, before, last in zip(words, hidden, [False, *hidden], ["", *words], strict=False)
    )


def _unchanged(records: Iterable[Any], published: Mapping[str, PublishedImage]) -> list[CellResult]:
    from ..model.record import Verdict
    from ..pipeline.fleet import CellResult

    return [
        CellResult(
            cell=record.cell,
            image=record.image,
            host_class=record.host_class,
            status="unchanged",
            detail=f"unchanged since {record.finished}",
            record_id=record.id,
            published=published.get(record.image),
            failed=record.verdict in (Verdict.FAILED, Verdict.BROKEN),
        )
        for record in records
    ]


def _print(
    results: Sequence[CellResult], not_built: Sequence[Result], store: Store, *, as_json: bool
) -> None:
    """Print one entry per cell, and one per image that was not built."""
    if as_json:
        _print_json(results, not_built, store)
        return
    from rich.table import Table
    from rich.text import Text

    from ..reports.terminal import show, styled

    table = Table("cell", "result", "why", box=None, pad_edge=False)
    table.columns[0].no_wrap = True
    for result in sorted(results, key=lambda one: one.cell):
        record = store.get(result.record_id) if result.record_id else None
        if record is None:
            table.add_row(result.cell, result.status, Text(result.detail))
        else:
            other = f" (on {record.host_class})" if record.cell != result.cell else ""
            note = f" ({result.detail})" if result.detail else ""
            table.add_row(result.cell, styled(record.verdict.value), Text(record.reason + other + note))
    for image in not_built:
        what = styled(image.record.verdict.value) if image.record else image.status.value
        table.add_row(f"{image.spec}", what, Text(image.record.reason if image.record else image.detail))
    show(table)
    counts: dict[str, int] = {}
    for result in results:
        counts[result.status] = counts.get(result.status, 0) + 1
    counts |= {"not built": len(not_built)} if not_built else {}
    click.echo(", ".join(f"{number} {word}" for word, number in counts.items()) or "nothing to do")


def _print_json(results: Sequence[CellResult], not_built: Sequence[Result], store: Store) -> None:
    """Print one document, entry by entry: thousands of reports do not fit into the memory."""
    separator = "["
    for result in sorted(results, key=lambda one: one.cell):
        record = store.get(result.record_id).document() if result.record_id else None
        click.echo(f"{separator}\n{json_text(result.as_json(record))}", nl=False)
        separator = ","
    for image in not_built:
        entry: CellResultDocument = {
            "cell": None,
            "image": image.spec.identifier,
            "host_class": None,
            "status": image.status.value,
            "detail": image.detail,
            "attempts": 0,
            "published": None,
            "record": image.record.document() if image.record else None,
        }
        click.echo(f"{separator}\n{json_text(entry)}", nl=False)
        separator = ","
    click.echo("[]" if separator == "[" else "\n]")


def _exit_code(results: Sequence[CellResult], not_built: Sequence[Result]) -> int:
    from ..pipeline.run import Status

    if any(result.failed for result in results) or any(
        image.failed or image.status is Status.REFUSED for image in not_built
    ):
        return EXIT_FAILED
    if any(result.status in ("lost", "missing") for result in results) or not_built:
        return EXIT_MISSING
    return EXIT_INTERRUPTED if any(result.status == "cancelled" for result in results) else EXIT_OK


def described(run: FleetRun) -> str:
    """Return the command of a run in one line."""
    return shlex.join(run.command) if run.command else run.fleet


# Open the fleet that a command names, with the settings next to the matrix.


#: The default of `--on`: this machine, which is not a fleet.
LOCAL = "local"

fleet_file_option = click.option(
    "--fleet",
    "fleet_path",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The names of this site's nodes, partitions and queues.  [default: fleet.yaml next to the matrix]",
)


def fleet_path_for(matrix_path: Path, given: Path | None) -> Path:
    """Return the fleet file that was given, or the one next to the matrix."""
    from ..fleet.settings import NAME

    return given or working_directory(matrix_path) / NAME


def open_named_fleet(name: str, path: Path) -> Fleet:
    """Return a fleet. path: of its settings, which need not exist for a fleet that needs none.

    Raises InputError for an unknown name or wrong settings, MissingError if the fleet can't be used here.
    """
    from ..fleet.protocol import opener_of
    from ..fleet.settings import FleetSettings, read_settings

    opener = opener_of(name)
    try:
        return opener(read_settings(path) if path.exists() else FleetSettings())
    except ModuleNotFoundError as error:
        raise InputError(
            f"--on {name} needs the Python package {error.name}",
            hint=f'install this tool with its extra: pip install "tensorflow-gpu-matrix[{name}]"',
        ) from error


def write_proposal(name: str, path: Path) -> None:
    """Write the fleet file that a fleet's nodes suggest. Raises InputError if the file is there."""
    from ..fleet.protocol import survey_of
    from ..fleet.settings import FleetSettings, propose

    if path.exists():
        raise InputError(
            f"{path} already exists", hint="write to another file with --fleet, then copy what you need"
        )
    text = propose(survey_of(name)(FleetSettings()))
    write_atomically(path, text.encode())
    print_status(f"Wrote {path}. Check it, especially the lines marked CHECK.")
