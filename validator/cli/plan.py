"""`plan`: the cells with their predictions."""

from __future__ import annotations

import json
from pathlib import Path

import click

from .options import format_option, matrix_option, profile_option, say, select_option, verbose_option


@click.command("plan")
@matrix_option
@profile_option
@select_option
@format_option("table", "json", "github", "github-images")
@verbose_option
def command(matrix_path: Path, profile: str | None, selectors: tuple[str, ...], format_: str) -> None:
    """List the cells with prediction and reason, without running anything.

    `github` writes the object that a workflow's strategy.matrix takes through fromJSON, one job a cell;
    `github-images` the same for the jobs that build, one an image.
    """
    from .planning import planned

    plan = planned(matrix_path, profile, selectors)
    if format_ == "json":
        click.echo(json.dumps([cell.as_json() for cell in plan.cells], indent=2))
    elif format_ == "github":
        from ..matrix.plan import github_matrix

        click.echo(json.dumps(github_matrix(plan.cells)))
    elif format_ == "github-images":
        from ..matrix.plan import github_image_matrix

        click.echo(json.dumps(github_image_matrix(plan.images)))
    else:
        from ..reports.terminal import plan_table, show

        show(plan_table(plan.cells))
    outcomes = [cell.prediction.outcome.value for cell in plan.cells]
    counts = ", ".join(f"{outcomes.count(word)} {word}" for word in ("works", "fails", "unknown"))
    say(f"{len(plan.images)} images, {len(plan.cells)} cells: {counts}; {len(plan.excluded)} excluded")
    for reason in dict.fromkeys(cell.reason for cell in plan.excluded):
        say(f"  excluded: {reason}")
