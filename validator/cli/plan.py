"""`plan`: list the cells with their predictions."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ..reports.printable import counted
from .options import format_option, matrix_option, print_status, profile_option, select_option, verbose_option
from .staleness import say_if_stale, say_recommended


@click.command("plan")
@matrix_option
@profile_option
@select_option
@format_option("table", "json", "github", "github-images")
@verbose_option
def command(matrix_path: Path, profile: str | None, selectors: tuple[str, ...], format_: str) -> None:
    """List the cells with their predictions and reasons, without running anything.

    The format github is a value for strategy.matrix in a GitHub workflow (read with fromJSON) with one job
    per cell. If there are more than 256 cells, it is several such values, each on a line of its own.
    github-images has one job per image, for jobs that build.
    """
    from ..matrix.plan import github_image_matrix, github_matrices
    from ..model.prediction import count_words
    from .planning import load_plan

    plan = load_plan(matrix_path, profile, selectors)
    if format_ == "json":
        click.echo(json.dumps([cell.as_json() for cell in plan.cells], indent=2))
    elif format_ == "github":
        for matrix in github_matrices(plan.cells):
            click.echo(json.dumps(matrix))
    elif format_ == "github-images":
        click.echo(json.dumps(github_image_matrix(plan.images)))
    else:
        from ..reports.terminal import plan_table, show

        show(plan_table(plan.cells))
    words = count_words(cell.prediction for cell in plan.cells)
    counts = ", ".join(f"{number} {word}" for word, number in words.items())
    images, cells = counted(len(plan.images), "image"), counted(len(plan.cells), "cell")
    print_status(f"{images}, {cells}: {counts}; {len(plan.excluded)} excluded")
    for reason in dict.fromkeys(cell.reason for cell in plan.excluded):
        print_status(f"  Excluded: {reason}")
    say_recommended(plan.images)
    say_if_stale()
