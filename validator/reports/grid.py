"""The overview as a grid: host classes down, releases with their CUDA and cuDNN across."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..model.record import Verdict
from ..model.spec import ImageSpec
from .overview import Row

#: Where Pythons differ, the grid shows the one that needs attention.
WORST_FIRST = ("broken", "failed", "fails", "unknown", "unproven", "works", "certified")


@dataclass(frozen=True)
class Column:
    """A release with its CUDA and cuDNN; the Pythons of it share a column."""

    tensorflow: str
    detail: str


@dataclass(frozen=True)
class Grid:
    """columns and hosts in the plan's order; entries: (host, column) to the words to show, predicted
    first, then measured where something was."""

    columns: tuple[Column, ...]
    hosts: tuple[str, ...]
    entries: dict[tuple[str, Column], tuple[str, ...]]


def grid(rows: Iterable[Row]) -> Grid:
    """The grid of all planned rows."""
    groups: dict[tuple[str, Column], list[Row]] = {}
    for row in rows:
        if row.planned is not None:
            groups.setdefault((row.host, column_of(row.planned.cell.image)), []).append(row)
    return Grid(
        tuple(dict.fromkeys(column for _, column in groups)),
        tuple(dict.fromkeys(host for host, _ in groups)),
        {place: _words(group) for place, group in groups.items()},
    )


def column_of(image: ImageSpec) -> Column:
    """`2.21.0` with `12.5/9.3`, or with `cpu`."""
    if image.cuda is None or image.cudnn is None:
        return Column(image.tensorflow, "cpu")
    return Column(image.tensorflow, f"{image.cuda.label}/{image.cudnn.label}")


def _words(group: list[Row]) -> tuple[str, ...]:
    predicted = {row.planned.prediction.outcome.value for row in group if row.planned}
    measured = {row.record.verdict.value for row in group if row.record}
    return tuple(
        next(word for word in WORST_FIRST if word in words) for words in (predicted, measured) if words
    )


#: Colours by word, as rich names them.
STYLES = {
    "works": "green",
    "fails": "red",
    "unknown": "yellow",
    Verdict.CERTIFIED.value: "bold green",
    Verdict.FAILED.value: "bold red",
    Verdict.BROKEN.value: "bold red",
    Verdict.UNPROVEN.value: "cyan",
}
