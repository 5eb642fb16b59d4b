"""`fleet`: the nodes of a scheduler, and the runs of `build-matrix --on`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

import click

from ..errors import EXIT_MISSING, EXIT_OK, InputError
from ..reports.printable import json_text, printable
from . import fleet_run
from .fleet_run import fleet_file_option, fleet_path_for, open_named_fleet, write_proposal
from .options import (
    format_option,
    matrix_option,
    print_status,
    profile_option,
    select_option,
    store_option,
    store_url_for,
    trust_file_option,
    trust_path_for,
    verbose_option,
)
from .program import SuggestingGroup

if TYPE_CHECKING:
    from ..fleet.protocol import Capacity
    from ..fleet.run_store import FleetRun, Runs


def _require_scheduler(_: click.Context, __: click.Parameter, value: str | None) -> str:
    # click's own error would not name the values.
    if value is None:
        raise click.UsageError("--on is needed: give --on slurm or --on kubernetes")
    return value


on_option = click.option(
    "--on",
    "engine_name",
    metavar="NAME",
    callback=_require_scheduler,
    help="The scheduler: slurm or kubernetes.  [required]",
)


@click.group("fleet", cls=SuggestingGroup)
def fleet_command() -> None:
    """List a scheduler's nodes, and show, continue or cancel the runs of `build-matrix --on`."""


@fleet_command.command("inventory")
@on_option
@matrix_option
@profile_option
@select_option
@fleet_file_option
@click.option(
    "--write",
    is_flag=True,
    help="First write a proposed fleet file for the scheduler's nodes. If the scheduler does not know the"
    " driver of a kind of node, a short job reads it on one of them.",
)
@format_option("table", "json")
@verbose_option
def inventory_command(
    engine_name: str,
    matrix_path: Path,
    profile: str | None,
    selectors: tuple[str, ...],
    fleet_path: Path | None,
    write: bool,
    format_: str,
) -> int:
    """List the host classes, how many nodes each has, and how many cells of a profile they cover."""
    from ..fleet.protocol import Capacity
    from .planning import load_plan

    if write:
        write_proposal(engine_name, fleet_path_for(matrix_path, fleet_path))
    plan = load_plan(matrix_path, profile, selectors)
    cells = Counter(planned.cell.host.identifier for planned in plan.cells)
    fleet = open_named_fleet(engine_name, fleet_path_for(matrix_path, fleet_path))
    try:
        found = {capacity.host_class: capacity for capacity in fleet.inventory()}
    finally:
        fleet.close()
    entries = [
        _capacity_json(found.get(name, Capacity(name, 0, 0, 0, "no node")), cells[name])
        for name in sorted({*found, *cells})
    ]
    if format_ == "json":
        click.echo(json_text(entries))
    else:
        from rich.table import Table

        from ..reports.terminal import show

        table = Table("host class", "nodes", "usable", "GPUs each", "cells", "", box=None, pad_edge=False)
        for entry in entries:
            numbers = (str(entry[key]) for key in ("nodes", "usable", "gpus", "cells"))
            table.add_row(entry["host_class"], *numbers, entry["detail"])
        show(table)
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


def _capacity_json(capacity: Capacity, cells: int) -> CapacityDocument:
    return {
        "host_class": capacity.host_class,
        "nodes": capacity.nodes,
        "usable": capacity.usable,
        "gpus": capacity.gpus_per_node,
        "cells": cells,
        "detail": capacity.detail,
    }


@fleet_command.command("status")
@click.argument("run", required=False)
@format_option("table", "json")
@verbose_option
def status_command(run: str | None, format_: str) -> int:
    """Show the progress of this machine's runs, or of each cell of one RUN, without asking a scheduler."""
    from ..fleet.run_store import Runs

    with Runs() as runs:
        if run is not None:
            _show_cells(runs, runs.run(run), format_)
        else:
            _show_runs(runs, format_)
    return EXIT_OK


class RunDocument(TypedDict):
    """An entry of `fleet status --json`."""

    run: Annotated[str, "Its name."]
    fleet: Annotated[str, "`slurm` or `kubernetes`."]
    created: Annotated[str, "UTC, ISO 8601."]
    ended: Annotated[str | None, "UTC, ISO 8601; null while it is not over."]
    submitted_now: Annotated[bool, "Whether a process works on it."]
    cells: Annotated[dict[str, dict[str, int]], "The number of cells in each state, by host class."]


def _show_runs(runs: Runs, format_: str) -> None:
    from ..fleet.submitter import tally
    from ..reports.terminal import show
    from .progress import tally_table

    # Ended runs are listed only as JSON: what they brought is in the store of records.
    found = [one for one in runs.all() if format_ == "json" or not one.ended]
    tallies = {one.id: tally(runs.units(one)) for one in found}
    if format_ == "json":
        documents: list[RunDocument] = [
            {
                "run": one.id,
                "fleet": one.fleet,
                "created": one.created,
                "ended": one.ended or None,
                "submitted_now": not one.ended and runs.is_submitted(one),
                "cells": {name: dict(counts) for name, counts in tallies[one.id].items()},
            }
            for one in found
        ]
        click.echo(json_text(documents))
        return
    if not found:
        print_status("No run is open. `build-matrix --on slurm` or `--on kubernetes` starts one.")
    for one in found:
        stopped = f" No process is working on it: run `fleet resume {one.id}`."
        going = "" if runs.is_submitted(one) else stopped
        print_status(f"{one.id} on {one.fleet}, since {one.created}: {fleet_run.described(one)}.{going}")
        show(tally_table(tallies[one.id]))


class UnitDocument(TypedDict):
    """An entry of `fleet status RUN --json`: the last attempt of a cell."""

    cell: Annotated[str, "The cell."]
    state: Annotated[str, "`waiting`, `running`, `done`, `failed`, `lost`, `missing` or `cancelled`."]
    attempt: Annotated[int, "The number of the attempt, from 1."]
    unit: Annotated[str, "The name of the job."]
    node: Annotated[str, "Where it runs or ran; may be empty."]
    detail: Annotated[str, "What went wrong; may be empty."]
    record: Annotated[str | None, "The id of its record, or null."]


def _show_cells(runs: Runs, run: FleetRun, format_: str) -> None:
    from ..fleet.submitter import word_of

    # The last attempt of each cell.
    units = {tried.unit.cell: tried for tried in runs.units(run)}
    rows: list[UnitDocument] = [
        {
            "cell": cell,
            "state": word_of(tried),
            "attempt": tried.unit.attempt,
            "unit": tried.name,
            "node": tried.node,
            "detail": ": ".join(filter(None, (tried.fault.sentence if tried.fault else "", tried.detail))),
            "record": tried.record_id or None,
        }
        for cell, tried in sorted(units.items())
    ]
    if format_ == "json":
        click.echo(json_text(rows))
        return
    from rich.table import Table

    from ..reports.terminal import show

    table = Table("cell", "state", "attempt", "node", "", box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(str(row[key]) for key in ("cell", "state", "attempt", "node", "detail")))
    show(table)


@fleet_command.command("cancel")
@click.argument("run")
@matrix_option
@store_option
@fleet_file_option
@verbose_option
def cancel_command(run: str, matrix_path: Path, store_url: str | None, fleet_path: Path | None) -> int:
    """Cancel the jobs of a RUN. Existing records are kept."""
    from ..fleet.run_store import Runs
    from ..fleet.submitter import tally
    from ..records.store import Store

    with Runs() as runs:
        found = runs.run(run)
        if found.ended:
            raise InputError(f"{found.id} ended at {found.ended}", hint="there is nothing to cancel")
        runs.ask_to_cancel(found)
        if runs.is_submitted(found):
            print_status(f"The process that submits {found.id} cancels it.")
            return EXIT_OK
        fleet = open_named_fleet(found.fleet, fleet_path_for(matrix_path, fleet_path))
        try:
            with runs.submitting(found.key), Store(store_url_for(matrix_path, store_url)) as store:
                fleet_run.refuse_other_store(found, store)
                tried = fleet_run.submit(fleet, runs, found, store, None)
        finally:
            fleet.close()
    counts = sum(tally(tried).values(), Counter())
    print_status(f"Cancelled {found.id}: {', '.join(f'{number} {word}' for word, number in counts.items())}.")
    return EXIT_OK


@fleet_command.command("logs")
@click.argument("cell")
@click.option(
    "--run", "run_name", metavar="RUN", help="Look in this run.  [default: the newest with the cell]"
)
@matrix_option
@fleet_file_option
@verbose_option
def logs_command(cell: str, run_name: str | None, matrix_path: Path, fleet_path: Path | None) -> int:
    """Print what the last attempt at a CELL wrote. CELL is a cell or the name of a unit."""
    from ..fleet.run_store import Runs
    from ..fleet.submitter import word_of

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
    fleet = open_named_fleet(run.fleet, fleet_path_for(matrix_path, fleet_path))
    try:
        text = fleet.logs(tried.handle)
    finally:
        fleet.close()
    if not text:
        print_status(f"{tried.name} has no log on {run.fleet}: {tried.detail or word_of(tried)}")
        return EXIT_MISSING
    click.echo(printable(text))
    return EXIT_OK


@fleet_command.command("resume")
@click.argument("run")
@matrix_option
@store_option
@trust_file_option
@fleet_file_option
@format_option("text", "json")
@verbose_option
def resume_command(
    run: str,
    matrix_path: Path,
    store_url: str | None,
    trust_path: Path | None,
    fleet_path: Path | None,
    format_: str,
) -> int:
    """Continue a RUN whose process has ended. The command that began it continues it, too."""
    from ..fleet.run_store import Runs
    from ..records.store import Store
    from .signing import fleet_runner_of

    with Runs() as runs:
        found = runs.run(run)
        if found.ended:
            raise InputError(f"{found.id} ended at {found.ended}", hint="there is nothing to resume")
        classes = {tried.unit.host_class for tried in runs.units(found)}
        runner = fleet_runner_of(classes, trust_path_for(matrix_path, trust_path), asked=False)
        fleet = open_named_fleet(found.fleet, fleet_path_for(matrix_path, fleet_path))
        try:
            with Store(store_url_for(matrix_path, store_url)) as store:
                return fleet_run.resume(found, runs, fleet, store, runner, as_json=format_ == "json")
        finally:
            fleet.close()


@fleet_command.command("manifests")
@click.option("--namespace", required=True, metavar="NAME", help="The namespace for the jobs.")
@click.option(
    "--user",
    required=True,
    metavar="NAME",
    help="The cluster's user who runs `build-matrix --on kubernetes`.",
)
@verbose_option
def manifests_command(namespace: str, user: str) -> int:
    """Print the namespace and the permissions that an administrator of a Kubernetes cluster sets up once.

    Pipe it to `kubectl apply -f -`. The user may then submit jobs in this namespace and read the nodes, and
    nothing else. A network policy keeps the jobs away from the network.
    """
    import yaml

    from ..fleet.kubernetes import rights

    click.echo(yaml.safe_dump_all(rights(namespace, user), sort_keys=False), nl=False)
    return EXIT_OK
