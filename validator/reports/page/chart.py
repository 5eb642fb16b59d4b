"""Lay out the chart of XLA's speedup and of step times by release: the position of every mark."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ...model.report import Spread
from ..overview import Column, column_of
from .layout import NONE, Head, Host, Layout
from .measurements import MODES, Speed, factor, milliseconds

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
