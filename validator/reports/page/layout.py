"""Lay out the page's grid, with host classes as rows and releases with their CUDA and cuDNN as columns.

The Pythons of a release share a place in the grid, as in the other reports. Each of them is a cell that opens
by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...model.record import Record
from ...model.spec import HostClass, ImageSpec
from ...versions import is_numbers, leading_numbers
from ..overview import WORST_FIRST, Column, Row, column_of
from .names import (
    WITHOUT_GPU,
    image_name,
    measured_machine,
    planned_machine,
    release_lines,
    release_meaning,
    release_name,
)

#: The filter value for images without CUDA and machines without a GPU.
NONE = "none"


@dataclass(frozen=True)
class Host:
    """A row of the grid, with its values for the filters.

    machine: the GPU and the driver in full, such as `NVIDIA H100` and `driver 580`.
    """

    identifier: str
    driver: str
    gpu: str
    machine: tuple[str, str]

    @property
    def name(self) -> str:
        """Return `NVIDIA H100, driver 580` or `a machine without a GPU`."""
        return "a machine without a GPU" if self.machine == WITHOUT_GPU else ", ".join(self.machine)


@dataclass(frozen=True)
class Head:
    """The heading of a column. lines: what it shows below the release. name: in full. meaning: sentences."""

    lines: tuple[str, ...]
    name: str
    meaning: str


@dataclass(frozen=True)
class Place:
    """A host class and a column, with the numbers of the overview's rows that belong there.

    predicted, measured: the worst outcome and verdict, or None.
    counted: the number of cells that were measured. limited: True if one of them has limits.
    first: the cell that needs attention most.
    """

    host: int
    column: int
    cells: tuple[int, ...]
    predicted: str | None
    measured: str | None
    counted: int
    limited: bool
    first: int


@dataclass(frozen=True)
class Layout:
    """The rows of the overview, arranged as a grid.

    images, columns: in the plan's order.
    hosts: the `measured_hosts` that were measured come first, those with a GPU before those without.
    heads: the heading of each column.
    places: by row of the grid, then by column; None if there is no cell.
    image_of, host_of: the numbers of each row's image and host.
    """

    rows: tuple[Row, ...]
    images: tuple[ImageSpec, ...]
    hosts: tuple[Host, ...]
    measured_hosts: int
    columns: tuple[Column, ...]
    heads: tuple[Head, ...]
    places: tuple[tuple[Place | None, ...], ...]
    image_of: tuple[int, ...]
    host_of: tuple[int, ...]

    def name(self, number: int) -> str:
        """Return the full name of a row's combination: its image and its machine."""
        image, host = self.images[self.image_of[number]], self.hosts[self.host_of[number]]
        return f"{image_name(image)} on {host.name}"

    def filters(self) -> dict[str, list[str]]:
        """Return the values of each filter, in the order of the grid."""
        return {
            "tensorflow": _unique(image.tensorflow for image in self.images),
            "python": sorted(_unique(image.python for image in self.images), key=_numbers),
            "cuda": sorted(_unique(cuda_of(image) for image in self.images), key=_numbers),
            "cudnn": sorted(_unique(cudnn_of(image) for image in self.images), key=_numbers),
            "driver": sorted(_unique(host.driver for host in self.hosts), key=_numbers),
            "gpu": sorted(_unique(host.gpu for host in self.hosts), key=lambda gpu: (gpu == NONE, gpu)),
        }


def layout(rows: Sequence[Row]) -> Layout:
    """Arrange the rows of `overview`."""
    planned = [row.planned.cell for row in rows if row.planned]
    specs = {cell.image.identifier: cell.image for cell in planned}
    images = list(specs.values())
    machines = {cell.host.identifier: cell.host for cell in planned}
    hosts: dict[str, Host] = {name: _planned_host(machine) for name, machine in machines.items()}
    for row in rows:
        if row.record is not None:
            hosts.setdefault(row.host, _measured_host(row.record))
    proven = {row.host for row in rows if row.record is not None}
    hosts = dict(sorted(hosts.items(), key=lambda item: _place_of_host(item[0] in proven, item[1])))
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
        measured_hosts=len(proven),
        columns=tuple(columns),
        heads=tuple(_head(column, images) for column in columns),
        places=tuple(
            tuple(_place(rows, host, column, cells) for column, cells in enumerate(line))
            for host, line in enumerate(grid)
        ),
        image_of=tuple(image_numbers[row.image] for row in rows),
        host_of=tuple(host_numbers[row.host] for row in rows),
    )


def measured_word(row: Row) -> str | None:
    return row.record.verdict.value if row.record else None


def cuda_of(image: ImageSpec) -> str:
    return image.cuda.version if image.cuda else NONE


def cudnn_of(image: ImageSpec) -> str:
    return image.cudnn.version if image.cudnn else NONE


def _place_of_host(measured: bool, host: Host) -> tuple[bool, bool]:
    """Return a sort key: measured machines first, and among them those with a GPU."""
    return not measured, measured and host.gpu == NONE


def _head(column: Column, images: Sequence[ImageSpec]) -> Head:
    found = [image for image in images if column_of(image) == column]
    pythons = sorted({image.python for image in found}, key=_numbers)
    return Head(release_lines(found[0]), release_name(found[0]), release_meaning(found[0], pythons))


def _place(rows: Sequence[Row], host: int, column: int, cells: list[int]) -> Place | None:
    if not cells:
        return None
    measured = [word for number in cells if (word := measured_word(rows[number]))]
    return Place(
        host=host,
        column=column,
        cells=tuple(cells),
        predicted=_worst(rows[number].predicted for number in cells),
        measured=_worst(measured),
        counted=len(measured),
        limited=any(rows[number].limits for number in cells),
        first=min(cells, key=lambda number: _attention(rows[number])),
    )


def _attention(row: Row) -> tuple[int, int]:
    """Return a sort key: measured cells before predicted ones, each from worst to best."""
    measured, predicted = measured_word(row), row.predicted
    return (
        WORST_FIRST.index(measured) if measured else len(WORST_FIRST),
        WORST_FIRST.index(predicted) if predicted else len(WORST_FIRST),
    )


def _worst(words: Any) -> str | None:
    found = {word for word in words if word}
    return next((word for word in WORST_FIRST if word in found), None)


def _planned_host(host: HostClass) -> Host:
    machine = planned_machine(host)
    if not host.has_gpu:
        return Host(host.identifier, NONE, NONE, machine)
    return Host(host.identifier, str(host.driver), host.gpu or host.compute_capability.sm, machine)


def _measured_host(record: Record) -> Host:
    """Describe a machine that is not a host class of the matrix by the facts in its record."""
    facts = record.facts
    gpu = next(iter(facts.gpu_names), NONE)
    return Host(record.host_class, facts.driver or NONE, gpu, measured_machine(record))


def _unique(values: Any) -> list[str]:
    return list(dict.fromkeys(values))


def _numbers(version: str) -> tuple[int, tuple[int, ...], str]:
    """Return a sort key that puts `none` last, and text that is not a version before it."""
    if is_numbers(version):
        return 0, leading_numbers(version), ""
    return 1 + (version == NONE), (), version
