"""A plan in the form that a GitHub Actions workflow takes for `strategy.matrix`, through `fromJSON`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import InputError
from ..model.prediction import PlannedCell
from ..model.spec import ImageSpec

#: Jobs that one matrix may have in a workflow run (GitHub Docs, "Running variations of jobs in a workflow").
MAX_JOBS = 256


def github_matrix(planned: Sequence[PlannedCell]) -> dict[str, list[dict[str, Any]]]:
    """`{"include": [...]}` with one row a cell, in the order of the plan.

    A row has `id`, `image`, `host`, `tensorflow`, `python`, `variant`, `prediction` (the outcome alone) and
    `runner`, a list of labels for `runs-on`. Raises InputError for more cells than GitHub takes.
    """
    _refuse_too_many(len(planned), "cells")
    return {"include": [_row(cell) for cell in planned]}


def github_image_matrix(images: Sequence[ImageSpec]) -> dict[str, list[dict[str, Any]]]:
    """The same with one row an image, for the jobs that build: `image`, `tensorflow`, `python`, `variant`."""
    _refuse_too_many(len(images), "images")
    return {"include": [_image(image) for image in images]}


def _refuse_too_many(count: int, what: str) -> None:
    if count > MAX_JOBS:
        raise InputError(
            f"the plan has {count:,} {what}; GitHub runs at most {MAX_JOBS} jobs of one matrix",
            hint="select fewer, such as --select tensorflow=newest, --select 'host=r580-*'"
            " or --select prediction=works",
        )


def _row(planned: PlannedCell) -> dict[str, Any]:
    host = planned.cell.host
    return {
        "id": planned.cell.identifier,
        **_image(planned.cell.image),
        "host": host.identifier,
        "prediction": planned.prediction.outcome.value,
        "runner": list(host.runner),
    }


def _image(image: ImageSpec) -> dict[str, Any]:
    return {
        "image": image.identifier,
        "tensorflow": image.tensorflow,
        "python": image.python,
        "variant": image.variant.value,
    }
