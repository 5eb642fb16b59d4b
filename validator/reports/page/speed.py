"""What the check `xla_speedup` measured, as figures for the chart (docs/reference/report.md)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...model.record import Record

CHECK = "xla_speedup"
MODES = ("eager", "graph", "xla")


@dataclass(frozen=True)
class Spread:
    """A median with its quartiles."""

    median: float
    q1: float
    q3: float

    def inverted(self) -> Spread:
        """Of the reciprocals: how many times as fast, from what share of the time."""
        return Spread(1 / self.median, 1 / self.q3, 1 / self.q1)


@dataclass(frozen=True)
class Speed:
    """One training step, measured three ways in one run.

    device: `CPU` or `GPU`. batch: examples in a step. speedup: how many times as fast a step compiled by XLA
    is as one of a graph. steps: seconds of a step, by mode (`MODES`).
    """

    cell: str
    image: str
    host: str
    device: str
    batch: int | None
    finished: str
    speedup: Spread
    steps: Mapping[str, Spread]


def speed_of(record: Record) -> Speed | None:
    """None where it was not measured, did not pass, or can't be read."""
    check = next((check for check in record.checks if check.get("id") == CHECK), None)
    if check is None or check.get("outcome") != "pass":
        return None
    try:
        evidence = check["evidence"]
        modes = {mode["mode"]: _spread(mode["step_s"]) for mode in evidence["modes"]}
        batch = evidence["model"]["batch"]
        return Speed(
            cell=record.cell,
            image=record.image,
            host=record.host_class,
            device=str(evidence["device_type"]),
            batch=batch if isinstance(batch, int) else None,
            finished=record.finished,
            speedup=_spread(evidence["ratios"]["xla/graph"]["step_time"]).inverted(),
            steps={name: modes[name] for name in MODES},
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        # An older probe's evidence, or a report that was brought from elsewhere: there is no figure then.
        return None


def _spread(value: Mapping[str, Any]) -> Spread:
    numbers = [float(value[name]) for name in ("median", "q1", "q3")]
    if not all(math.isfinite(number) and number > 0 for number in numbers):
        raise ValueError("no figure")
    return Spread(*numbers)
