"""Predicted beside measured: the values behind every form of the report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..model.codec import encode
from ..model.prediction import Outcome, PlannedCell
from ..model.record import Record, Verdict
from ..model.spec import ImageSpec

#: What a verdict says of a prediction; a verdict that is not here proves nothing about it.
_PROVES = {
    Verdict.CERTIFIED: Outcome.WORKS,
    Verdict.FAILED: Outcome.FAILS,
    Verdict.BROKEN: Outcome.FAILS,
}


@dataclass(frozen=True)
class Row:
    """One cell: what was predicted of it, and what was measured last.

    planned is None for a cell that was measured but is not in the plan (another machine's host class);
    record is None for one that was not measured.
    """

    cell: str
    image: str
    host: str
    planned: PlannedCell | None
    record: Record | None

    @property
    def agrees(self) -> bool | None:
        """Whether the measurement bears the prediction out; None where one of them says nothing."""
        if self.planned is None or self.record is None:
            return None
        predicted = self.planned.prediction.outcome
        proven = _PROVES.get(self.record.verdict)
        return None if proven is None or predicted is Outcome.UNKNOWN else predicted is proven

    def as_json(self) -> dict[str, Any]:
        record = self.record
        return {
            "id": self.cell,
            "image": self.image,
            "host": self.host,
            "prediction": encode(self.planned.prediction) if self.planned else None,
            "measured": None
            if record is None
            else {
                "record": record.id,
                "verdict": record.verdict.value,
                "reason": record.reason,
                "engine": record.engine,
                "finished": record.finished,
            },
            "agrees": self.agrees,
        }


def overview(planned: Iterable[PlannedCell], latest: Mapping[str, Record]) -> list[Row]:
    """One row a planned cell, in the plan's order, then what was measured of the same images elsewhere.

    latest: the newest record of each cell (`Store.latest`).
    """
    cells = list(planned)
    known = {cell.cell.identifier for cell in cells}
    images = {cell.cell.image.identifier for cell in cells}
    rows = [
        Row(
            cell.cell.identifier,
            cell.cell.image.identifier,
            cell.cell.host.identifier,
            cell,
            latest.get(cell.cell.identifier),
        )
        for cell in cells
    ]
    rows += [
        Row(record.cell, record.image, record.host_class, None, record)
        for record in latest.values()
        if record.cell not in known and record.image in images
    ]
    return rows


# The overview as a grid: host classes down, releases with their CUDA and cuDNN across.

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
