"""Lay out the page's grid and its charts: the position of every cell and every mark.

The rows of the grid are host classes, and the columns are releases with their CUDA and cuDNN. The Pythons of
a release share a place in it, as in the other reports. Each of them is a cell that opens by itself. The chart
shows XLA's speedup and step times by release.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ...compat.facts import UnknownGpu
from ...compat.hardware import gpu
from ...compat.policies import is_recommended, why_recommended
from ...compat.releases import release
from ...model.prediction import Outcome
from ...model.report import Spread
from ...model.spec import AS_BUILT, LATEST, Choice, HostClass, ImageSpec, Variant
from ...versions import DriverRelease, Version, is_numbers, leading_numbers
from ..overview import WORST_FIRST, Column, Row, column_of, worst
from .measurements import MODES, Speed, factor, milliseconds

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
    hosts = {name: _planned_host(machine) for name, machine in machines.items()}
    for row in rows:
        if row.record is not None and row.host not in hosts:
            # A machine that is not a host class of the matrix is described by the facts in its record.
            facts = row.record.facts
            model = next(iter(facts.gpu_names), None)
            driver = f"driver {facts.driver}" if facts.driver else "no NVIDIA driver"
            machine = (_gpu(model), driver) if model is not None else WITHOUT_GPU
            hosts[row.host] = Host(row.host, facts.driver or NONE, model or NONE, machine)
    proven = {row.host for row in rows if row.record is not None}

    def order(item: tuple[str, Host]) -> tuple[bool, bool]:
        """Return a sort key: measured machines first, and among them those with a GPU."""
        measured = item[0] in proven
        return not measured, measured and item[1].gpu == NONE

    hosts = dict(sorted(hosts.items(), key=order))
    columns = list(dict.fromkeys(column_of(image) for image in images))
    heads = [_head([image for image in images if column_of(image) == column]) for column in columns]
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
        heads=tuple(heads),
        places=tuple(
            tuple(_place(rows, host, column, cells) for column, cells in enumerate(line))
            for host, line in enumerate(grid)
        ),
        image_of=tuple(image_numbers[row.image] for row in rows),
        host_of=tuple(host_numbers[row.host] for row in rows),
    )


def cuda_of(image: ImageSpec) -> str:
    return image.cuda.version if image.cuda else NONE


def cudnn_of(image: ImageSpec) -> str:
    return image.cudnn.version if image.cudnn else NONE


def _place(rows: Sequence[Row], host: int, column: int, cells: list[int]) -> Place | None:
    if not cells:
        return None
    measured = [word for number in cells if (word := rows[number].verdict)]

    def attention(number: int) -> list[int]:
        """Return a sort key: measured cells before predicted ones, each from worst to best."""
        words = (rows[number].verdict, rows[number].predicted)
        return [WORST_FIRST.index(word) if word else len(WORST_FIRST) for word in words]

    return Place(
        host=host,
        column=column,
        cells=tuple(cells),
        predicted=worst(rows[number].predicted for number in cells),
        measured=worst(measured),
        counted=len(measured),
        limited=any(rows[number].limits for number in cells),
        first=min(cells, key=attention),
    )


def _planned_host(host: HostClass) -> Host:
    """Return a host class with its GPU and driver in full: `NVIDIA H100` and `driver 580`."""
    if not host.has_gpu:
        return Host(host.identifier, NONE, NONE, WITHOUT_GPU)
    driver = f"driver {host.driver}"
    if host.compat:
        driver += f", with the cuda-compat package {host.compat}"
    capability = host.compute_capability
    model = _gpu(host.gpu) if host.gpu else f"GPU with compute capability {capability}"
    return Host(host.identifier, str(host.driver), host.gpu or capability.sm, (model, driver))


def _unique(values: Any) -> list[str]:
    return list(dict.fromkeys(values))


def _numbers(version: str) -> tuple[int, tuple[int, ...], str]:
    """Return a sort key that puts `none` last, and text that is not a version before it."""
    if is_numbers(version):
        return 0, leading_numbers(version), ""
    return 1 + (version == NONE), (), version


# Name images and machines in full, in words for somebody who does not know this project.


#: The two parts of the name of a machine without a GPU.
WITHOUT_GPU = ("No GPU", "only the CPU")


def image_name(image: ImageSpec) -> str:
    """Return `TensorFlow 2.21.0, CUDA 12.5, cuDNN 9.3, Python 3.12`."""
    parts = [release_name(image), f"Python {image.python}"]
    if image.base is not None:
        parts.append(f"on {image.base}")
    if extra := extra_name(image):
        parts.append(extra)
    return ", ".join(parts)


def extra_name(image: ImageSpec) -> str | None:
    """Return what an image has in addition, such as `with JupyterLab`, or None."""
    if image.variant is Variant.JUPYTER:
        return "with JupyterLab"
    return f"with the additions of {image.additions.label}" if image.additions else None


def release_name(image: ImageSpec) -> str:
    """Return `TensorFlow 2.21.0, CUDA 12.5, cuDNN 9.3`, or `TensorFlow 2.21.0 without CUDA`."""
    if image.cuda is None or image.cudnn is None:
        return f"TensorFlow {image.tensorflow} without CUDA"
    return f"TensorFlow {image.tensorflow}, {_library('CUDA', image.cuda)}, {_library('cuDNN', image.cudnn)}"


def _head(images: Sequence[ImageSpec]) -> Head:
    """Return the heading of the column for images that differ only in their Python."""
    image, pythons = images[0], sorted({image.python for image in images}, key=_numbers)
    lines: tuple[str, ...] = ("without CUDA",)
    libraries = "This is TensorFlow for the CPU: it uses no GPU."
    if image.cuda is not None and image.cudnn is not None:
        lines = tuple(
            f"newest {name}" if choice.floats else f"{name} {choice.version}"
            for name, choice in (("CUDA", image.cuda), ("cuDNN", image.cudnn))
        )
        policies = {image.cuda.policy, image.cudnn.policy}
        if policies == {AS_BUILT}:
            libraries = "CUDA and cuDNN are those that this release was built with."
        elif is_recommended(image):
            libraries = f"Recommended: {why_recommended(release(image.tensorflow))}."
        elif policies == {LATEST}:
            libraries = "CUDA and cuDNN are the newest that pip installs with this release."
        else:
            libraries = "CUDA and cuDNN were chosen for this combination."
    return Head(lines, release_name(image), f"{libraries} Python {', '.join(pythons)}.")


def _library(name: str, choice: Choice) -> str:
    # A floating choice is known by its policy; its version depends on the day.
    return f"newest {name} ({choice.version})" if choice.floats else f"{name} {choice.version}"


def _gpu(model: str) -> str:
    try:
        return f"NVIDIA {gpu(model).name}"
    except UnknownGpu:
        return model


# For a combination that does not work, find the nearest one that does.
#
# Nearest is the same machine: the same GPU and driver. Among its combinations, one that was measured to work
# comes before one that is only predicted to, then the newest release, then the same Python. If nothing works
# there, it is the same GPU with another driver: the oldest newer one, since an upgrade is easier.


def nearest(rows: Sequence[Row], images: Sequence[ImageSpec]) -> dict[int, int]:
    """Return the number of the nearest row that works, by the number of each row that fails.

    images: the image of each row. A row without anything near is left out.
    """
    working: dict[str, list[int]] = {}
    same_gpu: dict[object, list[int]] = {}
    for number, row in enumerate(rows):
        if row.outcome is Outcome.WORKS:
            working.setdefault(row.host, []).append(number)
            if row.planned is not None:
                same_gpu.setdefault(_gpu_kind(row.planned.cell.host), []).append(number)
    #: By machine, image without its release, and Python: many rows have the same nearest one.
    known: dict[tuple[str, str, bool, object], int | None] = {}
    found = {}
    for number, row in enumerate(rows):
        if row.outcome is not Outcome.FAILS:
            continue
        image = images[number]
        key = (row.host, image.python, image.cuda is not None, image.additions)
        if key not in known:
            candidates = working.get(row.host, ())
            best = _best(candidates, rows, images, image)
            if best is None and row.planned is not None:
                host = row.planned.cell.host
                others = same_gpu.get(_gpu_kind(host), ())
                best = _best(_nearest_driver(others, rows, host), rows, images, image)
            known[key] = best
        if (nearby := known[key]) is not None:
            found[number] = nearby
    return found


def _best(
    candidates: Iterable[int], rows: Sequence[Row], images: Sequence[ImageSpec], wanted: ImageSpec
) -> int | None:
    """Return the candidate that is nearest to an image. With CUDA or without must be the same."""

    def rank(number: int) -> tuple[object, ...]:
        image = images[number]
        release = Version(image.tensorflow)
        return (
            rows[number].proven is Outcome.WORKS,
            not release.is_prerelease,
            release,
            image.additions == wanted.additions,
            image.python == wanted.python,
            Version(image.python),
        )

    same = [number for number in candidates if (images[number].cuda is None) == (wanted.cuda is None)]
    return max(same, key=rank, default=None)


def _nearest_driver(candidates: Iterable[int], rows: Sequence[Row], host: HostClass) -> list[int]:
    """Return the candidates with the nearest driver: the oldest newer one, else the newest older one."""
    drivers: dict[DriverRelease, list[int]] = {}
    for number in candidates:
        planned = rows[number].planned
        if planned is not None:
            drivers.setdefault(planned.cell.host.driver, []).append(number)
    newer = [driver for driver in drivers if driver > host.driver]
    if newer:
        return drivers[min(newer)]
    return drivers[max(drivers)] if drivers else []


def _gpu_kind(host: HostClass) -> object:
    return host.gpu or host.compute_capability


#: Sizes in the drawing's own units.
LEFT, RIGHT, TOP, PANEL, GAP, BOTTOM = 56.0, 16.0, 26.0, 150.0, 46.0, 58.0
_STEP, _LEAST_WIDTH = 84.0, 520.0
_TICKS = 4


@dataclass(frozen=True)
class Tick:
    """A line across a panel with its label."""

    y: float
    text: str
    reference: bool = False


@dataclass(frozen=True)
class Mark:
    """A median with its quartiles. series: `speedup`, or a mode."""

    series: str
    x: float
    y: float
    top: float
    bottom: float
    text: str


@dataclass(frozen=True)
class Panel:
    """One of the two drawings. lines: each series with its medians as the points of a polyline."""

    title: str
    top: float
    bottom: float
    ticks: tuple[Tick, ...]
    marks: tuple[Mark, ...]
    lines: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Point:
    """A release on the axis, with its measurement."""

    column: Column
    head: Head
    x: float
    speed: Speed


@dataclass(frozen=True)
class Chart:
    """The chart of a host class and device. The points go from the oldest release to the newest."""

    host: Host
    device: str
    width: float
    height: float
    points: tuple[Point, ...]
    panels: tuple[Panel, Panel]

    @property
    def identifier(self) -> str:
        return f"{self.host.identifier}/{self.device}"

    @property
    def machine(self) -> str:
        """Return `NVIDIA H100, driver 580`, or `the CPU of a machine without a GPU`."""
        if self.device == "GPU":
            return self.host.name
        return f"the CPU of {self.host.name if self.host.gpu == NONE else f'a machine with {self.host.name}'}"

    def summary(self) -> str:
        """Describe the chart for people who can't see it."""
        best = max(self.points, key=lambda point: point.speed.speedup.median)
        worst = min(self.points, key=lambda point: point.speed.speedup.median)
        low, factors = (
            f"{factor(point.speed.speedup.median)} (TensorFlow {point.column.tensorflow})"
            for point in (worst, best)
        )
        if len(self.points) > 1:
            factors = f"between {low} and {factors}"
        return f"With XLA, a step is {factors} as fast as a graph's, on {self.machine}."


def charts(layout: Layout, speeds: Iterable[Speed]) -> tuple[Chart, ...]:
    """Return a chart per host class and device with measurements, in the order of the grid, GPUs first."""
    numbers = {column: number for number, column in enumerate(layout.columns)}
    columns = {image.identifier: numbers[column_of(image)] for image in layout.images}
    hosts = {host.identifier: number for number, host in enumerate(layout.hosts)}
    groups: dict[tuple[str, str], dict[int, Speed]] = {}
    # Show the newest measurement of a column, whatever its Python.
    for speed in sorted(speeds, key=lambda speed: speed.finished):
        if speed.image in columns and speed.host in hosts:
            groups.setdefault((speed.host, speed.device), {})[columns[speed.image]] = speed
    ordered = sorted(groups, key=lambda key: (key[1] != "GPU", hosts[key[0]]))
    return tuple(
        _chart(layout, layout.hosts[hosts[host]], device, groups[host, device]) for host, device in ordered
    )


def _chart(layout: Layout, host: Host, device: str, found: dict[int, Speed]) -> Chart:
    numbers = sorted(found, reverse=True)
    inner = max(_STEP * len(numbers), _LEAST_WIDTH)
    step = inner / len(numbers)
    points = tuple(
        Point(layout.columns[number], layout.heads[number], LEFT + step * (place + 0.5), found[number])
        for place, number in enumerate(numbers)
    )
    middle = TOP + PANEL + GAP
    title = "Speedup by XLA over a graph"
    panels = (
        _panel(title, TOP, points, ("speedup",), lambda speed, _: speed.speedup, factor, 1.1),
        _panel("Time of a step", middle, points, MODES, lambda speed, mode: speed.steps[mode], milliseconds),
    )
    return Chart(host, device, LEFT + inner + RIGHT, middle + PANEL + BOTTOM, points, panels)


def _panel(
    title: str,
    top: float,
    points: Sequence[Point],
    names: Sequence[str],
    value: Callable[[Speed, str], Spread],
    label: Callable[[float], str],
    least: float = 0.0,
) -> Panel:
    highest = max(least, *(value(point.speed, name).q3 for point in points for name in names))
    # Round up to 1, 2, 5 or 10 times a power of ten.
    magnitude: float = 10.0 ** math.floor(math.log10(highest / _TICKS))
    step = next(times * magnitude for times in (1, 2, 5, 10) if times * magnitude >= highest / _TICKS * 0.999)
    ceiling = step * math.ceil(highest / step)
    bottom = top + PANEL

    def y(number: float) -> float:
        return bottom - PANEL * min(number, ceiling) / ceiling

    marks = tuple(
        Mark(
            name,
            # Shifted, so that the marks of a release do not cover each other.
            point.x + (number - (len(names) - 1) / 2) * 12,
            y(spread.median),
            y(spread.q3),
            y(spread.q1),
            f"{point.head.name}, {name}: {label(spread.median)} ({label(spread.q1)} to {label(spread.q3)})",
        )
        for point in points
        for number, name in enumerate(names)
        for spread in (value(point.speed, name),)
    )
    lines = tuple(
        (name, " ".join(f"{mark.x:.1f},{mark.y:.1f}" for mark in marks if mark.series == name))
        for name in names
    )
    values = [number * step for number in range(round(ceiling / step) + 1)]
    ticks = tuple(
        Tick(
            y(number),
            label(number) if label is milliseconds else f"{number:g} \N{MULTIPLICATION SIGN}",
            least > 0 and number == 1,
        )
        for number in values
    )
    if least > 0 and not any(tick.reference for tick in ticks):
        ticks += (Tick(y(1), "", True),)
    return Panel(title, top, bottom, ticks, marks, lines)
