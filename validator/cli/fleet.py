"""`fleet`: the nodes of a scheduler, and the runs of `build-matrix --on`, which measures with it."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

import click

from ..errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_MISSING, EXIT_OK, InputError
from ..fleet.protocol import Capacity, Fleet, engine_of
from ..fleet.run_store import FleetRun, Runs, Tried, tally
from ..model.record import Verdict
from ..reports.printable import counted, json_text, printable
from ..system.files import write_atomically
from . import SuggestingGroup, options
from .options import Project, argument, flag, option, print_status

if TYPE_CHECKING:
    from rich.text import Text

    from ..matrix.plan import Plan
    from ..pipeline.fleet import CellResult
    from ..pipeline.run import Result, Run, Runner
    from ..records.store import Store


# Open the fleet that a command names, with the settings next to the matrix.


def open_named_fleet(name: str, path: Path) -> Fleet:
    """Return a fleet. path: of its settings, which need not exist for a fleet that needs none.

    Raises InputError for an unknown name or wrong settings, MissingError if the fleet can't be used here.
    """
    from ..fleet.settings import FleetSettings, read_settings

    engine = engine_of(name)
    try:
        fleet: Fleet = engine.open_fleet(read_settings(path) if path.exists() else FleetSettings())
        return fleet
    except ModuleNotFoundError as error:
        raise InputError(
            f"--on {name} needs the Python package {error.name}",
            hint=f'install this tool with its extra: pip install "tensorflow-gpu-matrix[{name}]"',
        ) from error


def write_proposal(name: str, path: Path) -> None:
    """Write the fleet file that a fleet's nodes suggest. Raises InputError if the file is there."""
    from ..fleet.settings import FleetSettings, propose

    if path.exists():
        raise InputError(
            f"{path} already exists", hint="write to another file with --fleet, then copy what you need"
        )
    text = propose(engine_of(name).survey(FleetSettings()))
    write_atomically(path, text.encode())
    print_status(f"Wrote {path}. Check it, especially the lines marked CHECK.")


def _require_scheduler(_: click.Context, __: click.Parameter, value: str | None) -> str:
    # click's own error would not name the values.
    if value is None:
        raise click.UsageError("--on is needed: give --on slurm or --on kubernetes")
    return value


on_option = option(
    "--on NAME  The scheduler: slurm or kubernetes.  [required]", "engine_name", callback=_require_scheduler
)


@click.group("fleet", cls=SuggestingGroup)
def fleet_command() -> None:
    """List a scheduler's nodes, and show, continue or cancel the runs of `build-matrix --on`."""


@fleet_command.command("inventory")
def inventory_command(
    engine_name: str = on_option,
    project: Project = options.project("cells fleet"),
    write: bool = flag(
        "--write  First write a proposed fleet file for the scheduler's nodes. If the scheduler does not know"
        " the driver of a kind of node, a short job reads it on one of them."
    ),
    format_: str = options.formats("table", "json"),
) -> int:
    """List the host classes, how many nodes each has, and how many cells of a profile they cover."""
    from .planning import load_plan

    if write:
        write_proposal(engine_name, project.fleet_file)
    plan = load_plan(*project.cells)
    cells = Counter(planned.cell.host.identifier for planned in plan.cells)
    with contextlib.closing(open_named_fleet(engine_name, project.fleet_file)) as fleet:
        found = {capacity.host_class: capacity for capacity in fleet.inventory()}
    entries: list[CapacityDocument] = []
    for name in sorted({*found, *cells}):
        capacity = found.get(name, Capacity(name, 0, 0, 0, "no node"))
        entries.append({
            "host_class": name, "nodes": capacity.nodes, "usable": capacity.usable,
            "gpus": capacity.gpus_per_node, "cells": cells[name], "detail": capacity.detail,
        })  # fmt: skip
    if format_ == "json":
        click.echo(json_text(entries))
    else:
        header = ("host class", "nodes", "usable", "GPUs each", "cells", "")
        options.print_rows(header, [[str(value) for value in each.values()] for each in entries])
    covered = sum(number for name, number in cells.items() if name in found and found[name].nodes)
    print_status(f"{covered} of {sum(cells.values())} cells have a node.")
    return EXIT_OK if covered or not cells else EXIT_MISSING


class CapacityDocument(TypedDict):
    """An entry of `fleet inventory --json`."""

    host_class: Annotated[str, "The host class."]
    nodes: Annotated[int, "Its nodes."]
    usable: Annotated[int, "Those that are not down or drained."]
    gpus: Annotated[int, "GPUs of each node."]
    cells: Annotated[int, "Cells of the profile."]
    detail: Annotated[str, "What else the scheduler says."]


class RunDocument(TypedDict):
    """An entry of `fleet status --json`."""

    run: Annotated[str, "Its name."]
    fleet: Annotated[str, "`slurm` or `kubernetes`."]
    created: Annotated[str, "UTC, ISO 8601."]
    ended: Annotated[str | None, "UTC, ISO 8601; null while it is not over."]
    submitted_now: Annotated[bool, "Whether a process works on it."]
    cells: Annotated[dict[str, dict[str, int]], "The number of cells in each state, by host class."]


class UnitDocument(TypedDict):
    """An entry of `fleet status RUN --json`: the last attempt of a cell."""

    cell: Annotated[str, "The cell."]
    state: Annotated[str, "`waiting`, `running`, `done`, `failed`, `lost`, `missing` or `cancelled`."]
    attempt: Annotated[int, "The number of the attempt, from 1."]
    unit: Annotated[str, "The name of the job."]
    node: Annotated[str, "Where it runs or ran; may be empty."]
    detail: Annotated[str, "What went wrong; may be empty."]
    record: Annotated[str | None, "The id of its record, or null."]


@fleet_command.command("status")
def status_command(
    run: str | None = argument(required=False), format_: str = options.formats("table", "json")
) -> None:
    """Show the progress of this machine's runs, or of each cell of one RUN, without asking a scheduler."""
    with Runs() as runs:
        if run is None:
            _show_runs(runs, format_)
            return
        # The last attempt of each cell.
        units = {tried.unit.cell: tried for tried in runs.units(runs.run(run))}
    rows: list[UnitDocument] = []
    for cell, tried in sorted(units.items()):
        rows.append({
            "cell": cell, "state": tried.word, "attempt": tried.unit.attempt, "unit": tried.name,
            "node": tried.node, "detail": tried.why, "record": tried.record_id or None,
        })  # fmt: skip
    if format_ == "json":
        click.echo(json_text(rows))
    else:
        shown = [(row["cell"], row["state"], str(row["attempt"]), row["node"], row["detail"]) for row in rows]
        options.print_rows(("cell", "state", "attempt", "node", ""), shown)


def _show_runs(runs: Runs, format_: str) -> None:
    from ..reports.terminal import show
    from .progress import tally_table

    # Ended runs are listed only as JSON: what they brought is in the store of records.
    found = [one for one in runs.all() if format_ == "json" or not one.ended]
    tallies = {one.id: tally(runs.units(one)) for one in found}
    if format_ == "json":
        documents: list[RunDocument] = [
            {
                "run": one.id, "fleet": one.fleet, "created": one.created, "ended": one.ended or None,
                "submitted_now": not one.ended and runs.is_submitted(one),
                "cells": {name: dict(counts) for name, counts in tallies[one.id].items()},
            }
            for one in found
        ]  # fmt: skip
        click.echo(json_text(documents))
        return
    if not found:
        print_status("No run is open. `build-matrix --on slurm` or `--on kubernetes` starts one.")
    for one in found:
        stopped = f" No process is working on it: run `fleet resume {one.id}`."
        going = "" if runs.is_submitted(one) else stopped
        command = shlex.join(one.command) if one.command else one.fleet
        print_status(f"{one.id} on {one.fleet}, since {one.created}: {command}.{going}")
        show(tally_table(tallies[one.id]))


@fleet_command.command("cancel")
def cancel_command(run: str = argument(), project: Project = options.project("store fleet")) -> None:
    """Cancel the jobs of a RUN. Existing records are kept."""
    from ..records.store import Store

    with Runs() as runs:
        found = runs.run(run)
        if found.ended:
            raise InputError(f"{found.id} ended at {found.ended}", hint="there is nothing to cancel")
        runs.ask_to_cancel(found)
        if runs.is_submitted(found):
            print_status(f"The process that submits {found.id} cancels it.")
            return
        opened = open_named_fleet(found.fleet, project.fleet_file)
        with contextlib.closing(opened) as fleet, runs.submitting(found.key), Store(project.store) as store:
            refuse_other_store(found, store)
            tried = submit(fleet, runs, found, store, None)
    counts = sum(tally(tried).values(), Counter())
    print_status(f"Cancelled {found.id}: {', '.join(f'{number} {word}' for word, number in counts.items())}.")


@fleet_command.command("logs")
def logs_command(
    cell: str = argument(),
    run_name: str | None = option("--run RUN  Look in this run.  [default: the newest with the cell]"),
    project: Project = options.project("fleet"),
) -> int:
    """Print what the last attempt at a CELL wrote. CELL is a cell or the name of a unit."""
    with Runs() as runs:
        for run in [runs.run(run_name)] if run_name else runs.all():
            mine = [tried for tried in runs.units(run) if cell in (tried.unit.cell, tried.name)]
            if mine:
                break
        else:
            raise InputError(
                f"no run has the cell {cell}", hint="`fleet status RUN` lists the cells of a run"
            )
    tried = mine[-1]
    if not tried.handle:
        print_status(f"{tried.name} was not submitted: {tried.detail or tried.stage.value}")
        return EXIT_MISSING
    with contextlib.closing(open_named_fleet(run.fleet, project.fleet_file)) as fleet:
        text = fleet.logs(tried.handle)
    if not text:
        print_status(f"{tried.name} has no log on {run.fleet}: {tried.detail or tried.word}")
        return EXIT_MISSING
    click.echo(printable(text))
    return EXIT_OK


@fleet_command.command("resume")
def resume_command(
    run: str = argument(),
    project: Project = options.project("store trust fleet"),
    format_: str = options.formats("text", "json"),
) -> int:
    """Continue a RUN whose process has ended. The command that began it continues it, too."""
    from ..pipeline.fleet import results_of
    from ..records.store import Store
    from .building import fleet_runner_of

    with Runs() as runs:
        found = runs.run(run)
        if found.ended:
            raise InputError(f"{found.id} ended at {found.ended}", hint="there is nothing to resume")
        classes = {tried.unit.host_class for tried in runs.units(found)}
        runner = fleet_runner_of(classes, project.trust_file, asked=False)
        opened = open_named_fleet(found.fleet, project.fleet_file)
        with contextlib.closing(opened) as fleet, Store(project.store) as store:
            refuse_other_store(found, store)
            with runs.submitting(found.key):
                try:
                    tried = submit(fleet, runs, found, store, runner)
                except KeyboardInterrupt:
                    _say_stopped(found)
                    return EXIT_INTERRUPTED
            results = results_of(tried)
            _print(results, store, as_json=format_ == "json")
            return _exit_code(results)


@fleet_command.command("manifests")
def manifests_command(
    namespace: str = option("--namespace NAME  The namespace for the jobs.", required=True),
    user: str = option(
        "--user NAME  The cluster's user who runs `build-matrix --on kubernetes`.", required=True
    ),
) -> None:
    """Print the namespace and the permissions that an administrator of a Kubernetes cluster sets up once.

    Pipe it to `kubectl apply -f -`. The user may then submit jobs in this namespace and read the nodes, and
    nothing else. A network policy keeps the jobs away from the network.
    """
    import yaml

    from ..fleet.kubernetes_objects import rights

    click.echo(yaml.safe_dump_all(rights(namespace, user), sort_keys=False), nl=False)


# Measure with a fleet: the part of `build-matrix --on` that follows building, and of `fleet resume`.


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
    from ..pipeline.fleet import CellResult, command_key, plan_units, preview, results_of
    from ..pipeline.run import Status

    cells = [planned.cell for planned in plan.cells]
    published = {
        result.spec.identifier: result.published for result in images if result.published is not None
    }
    not_built = [
        CellResult(
            None, image.spec.identifier, None, image.status.value, image.detail, record=image.record,
            failed=image.failed or image.status is Status.REFUSED,
        )
        for image in images
        if image.published is None
    ]  # fmt: skip
    key = command_key(fleet.name, repository, cells, run)
    if dry_run:
        with Runs() as runs:
            planned = plan_units(cells, images, run, fleet, runs.owner)
        click.echo(preview(planned.works, fleet), nl=False)
        for result in not_built:
            print_status(f"{result.image}: not submitted: {result.detail or result.status}")
        if not_built:
            print_status(f"`build-matrix --push {repository} --no-validate` builds and pushes images only.")
        _say_going(planned.going, None)
        return _exit_code(not_built)
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
    unchanged = [
        CellResult(
            record.cell, record.image, record.host_class, "unchanged", f"unchanged since {record.finished}",
            published=published.get(record.image), record_id=record.id,
            failed=record.verdict in (Verdict.FAILED, Verdict.BROKEN),
        )
        for record in planned.unchanged
    ]  # fmt: skip
    results = [*unchanged, *results_of(tried, published), *not_built]
    _print(results, run.store, as_json=as_json)
    return _exit_code(results)


def refuse_other_store(run: FleetRun, store: Store) -> None:
    """Raise InputError if a run writes its records to another store."""
    if run.place.get("store") != store.location:
        raise InputError(
            f"{run.id} writes its records to {run.place.get('store')}, not to {store.location}",
            hint="name that store with --store, or its matrix with --matrix",
        )


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


def _print(results: Sequence[CellResult], store: Store, *, as_json: bool) -> None:
    """Print one entry per cell, and then one per image that was not built."""
    in_order = sorted(results, key=lambda one: (one.cell is None, one.cell or ""))
    if as_json:
        # Entry by entry: thousands of reports do not fit into the memory.
        separator = "["
        for result in in_order:
            click.echo(f"{separator}\n{json_text(result.as_json(store))}", nl=False)
            separator = ","
        click.echo("[]" if separator == "[" else "\n]")
        return
    from ..reports.terminal import rows_table, show, styled

    rows: list[tuple[str, str | Text, str]] = []
    for result in in_order:
        name, record = result.cell or result.image, result.record_in(store)
        if record is None:
            rows.append((name, result.status, result.detail))
        else:
            other = f" (on {record.host_class})" if result.cell not in (None, record.cell) else ""
            note = f" ({result.detail})" if result.cell and result.detail else ""
            rows.append((name, styled(record.verdict.value), record.reason + other + note))
    show(rows_table(("cell", "result", "why"), rows, whole=True))
    counts = Counter(result.status if result.cell else "not built" for result in in_order)
    click.echo(", ".join(f"{number} {word}" for word, number in counts.items()) or "nothing to do")


def _exit_code(results: Sequence[CellResult]) -> int:
    if any(result.failed for result in results):
        return EXIT_FAILED
    if any(result.cell is None or result.status in ("lost", "missing") for result in results):
        return EXIT_MISSING
    return EXIT_INTERRUPTED if any(result.status == "cancelled" for result in results) else EXIT_OK
