"""A plan in the form that a GitHub Actions workflow takes for `strategy.matrix`, through `fromJSON`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import InputError
from ..model.prediction import PlannedCell

#: Jobs that one matrix may have in a workflow run (GitHub Docs, "Running variations of jobs in a workflow").
MAX_JOBS = 256


def github_matrix(planned: Sequence[PlannedCell]) -> dict[str, list[dict[str, Any]]]:
    """`{"include": [...]}` with one row a cell, in the order of the plan.

    A row has `id`, `image`, `host`, `tensorflow`, `python`, `variant`, `prediction` (the outcome alone) and
    `runner`, a list of labels for `runs-on`. Raises InputError for more cells than GitHub takes.
    """
    if len(planned) > MAX_JOBS:
        raise InputError(
            f"the plan has {len(planned):,} cells; GitHub runs at most {MAX_JOBS} jobs of one matrix",
            hint="select fewer, such as --select tensorflow=newest, --select 'host=r580-*'"
            " or --select prediction=works",
        )
    return {"include": [_row(cell) for cell in planned]}


def _row(planned: PlannedCell) -> dict[str, Any]:
    image, host = planned.cell.image, planned.cell.host
    return {
        "id": planned.cell.identifier,
        "image": image.identifier,
        "host": host.identifier,
        "tensorflow": image.tensorflow,
        "python": image.python,
        "variant": image.variant.value,
        "prediction": planned.prediction.outcome.value,
        "runner": list(host.runner),
    }
