"""The grid as the page shows it: host classes down, releases with their CUDA and cuDNN across.

The Pythons of a release share a place of the grid, as in the other reports; each of them is a cell of its own
that opens by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...model.record import Record
from ...model.spec import HostClass, ImageSpec
from ..overview import WORST_FIRST, Column, Row, column_of

#: What a filter shows where an image has no CUDA, or a machine no GPU.
NONE = "none"


@dataclass(frozen=True)
class Host:
    """A row of the grid, with what the filters ask of it."""

    identifier: str
    driver: str
    gpu: str


@dataclass(frozen=True)
class Place:
    """A host class and a column, with the rows of the overview that meet there, by number.

    predicted, measured: the word that needs attention most, or None.
    counted: how many of the cells were measured.
    first: of the cells, the one that needs attention most.
    """

    host: int
    column: int
    cells: tuple[int, ...]
    predicted: str | None
    measured: str | None
    counted: int
    first: int


@dataclass(frozen=True)
class Layout:
    """rows: those of the overview. images, hosts, columns: in the plan's order, with what was measured but
    not planned last. places: by row of the grid, then by column; None where there is no cell. image_of,
    host_of: of each row, by number."""

    rows: tuple[Row, ...]
    images: tuple[ImageSpec, ...]
    hosts: tuple[Host, ...]
    columns: tuple[Column, ...]
    places: tuple[tuple[Place | None, ...], ...]
    image_of: tuple[int, ...]
    host_of: tuple[int, ...]

    def filters(self) -> dict[str, list[str]]:
        """The values of each filter, in the order of the grid."""
        return {
            "tensorflow": _once(image.tensorflow for image in self.images),
            "python": sorted(_once(image.python for image in self.images), key=_numbers),
            "cuda": sorted(_once(cuda_of(image) for image in self.images), key=_numbers),
            "cudnn": sorted(_once(cudnn_of(image) for image in self.images), key=_numbers),
            "driver": _once(host.driver for host in self.hosts),
            "gpu": _once(host.gpu for host in self.hosts),
        }


def layout(rows: Sequence[Row]) -> Layout:
    """Arrange the rows of `overview`."""
    planned = [row.planned.cell for row in rows if row.planned]
    specs = {cell.image.identifier: cell.image for cell in planned}
    images = list(specs.values())
    hosts: dict[str, Host] = {cell.host.identifier: _planned_host(cell.host) for cell in planned}
    for row in rows:
        if row.record is not None:
            hosts.setdefault(row.host, _measured_host(row.record))
    columns = list(dict.fromkeys(column_of(image) for image in images))
    image_numbers = {name: number for number, name in enumerate(specs)}
    host_numbers = {name: number for number, name in enumerate(hosts)}
    column_numbers = {column: number for number, column in enumerate(columns)}
    grid: list[list[list[int]]] = [[[] for _ in columns] for _ in hosts]
    for number, row in enumerate(rows):
        grid[host_numbers[row.host]][column_numbers[column_of(specs[row.image])]].append(number)
    return Layout(
        rows=tuple(rows),
        images=tuple(images),
        hosts=tuple(hosts.values()),
        columns=tuple(columns),
        places=tuple(
            tuple(_place(rows, host, column, cells) for column, cells in enumerate(line))
            for host, line in enumerate(grid)
        ),
        image_of=tuple(image_numbers[row.image] for row in rows),
        host_of=tuple(host_numbers[row.host] for row in rows),
    )


def predicted_word(row: Row) -> str | None:
    return row.planned.prediction.outcome.value if row.planned else None


def measured_word(row: Row) -> str | None:
    return row.record.verdict.value if row.record else None


def cuda_of(image: ImageSpec) -> str:
    return image.cuda.version if image.cuda else NONE


def cudnn_of(image: ImageSpec) -> str:
    return image.cudnn.version if image.cudnn else NONE


def _place(rows: Sequence[Row], host: int, column: int, cells: list[int]) -> Place | None:
    if not cells:
        return None
    measured = [word for number in cells if (word := measured_word(rows[number]))]
    return Place(
        host=host,
        column=column,
        cells=tuple(cells),
        predicted=_worst(predicted_word(rows[number]) for number in cells),
        measured=_worst(measured),
        counted=len(measured),
        first=min(cells, key=lambda number: _attention(rows[number])),
    )


def _attention(row: Row) -> tuple[int, int]:
    """What was measured comes before what was only predicted; within each, the worst."""
    measured, predicted = measured_word(row), predicted_word(row)
    return (
        WORST_FIRST.index(measured) if measured else len(WORST_FIRST),
        WORST_FIRST.index(predicted) if predicted else len(WORST_FIRST),
    )


def _worst(words: Any) -> str | None:
    found = {word for word in words if word}
    return next((word for word in WORST_FIRST if word in found), None)


def _planned_host(host: HostClass) -> Host:
    if not host.has_gpu:
        return Host(host.identifier, NONE, NONE)
    return Host(host.identifier, str(host.driver), host.gpu or host.compute_capability.sm)


def _measured_host(record: Record) -> Host:
    """Of a machine that is no host class of the matrix, in its own words."""
    facts = record.facts
    return Host(record.host_class, facts.driver or NONE, next(iter(facts.gpu_names), NONE))


def _once(values: Any) -> list[str]:
    return list(dict.fromkeys(values))


def _numbers(version: str) -> tuple[int, ...]:
    """`none` last."""
    return (1,) if version == NONE else (0, *(int(part) for part in version.split(".")))
