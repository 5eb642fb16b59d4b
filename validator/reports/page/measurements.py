"""What the page takes from the records: the newest of each cell whole, of older ones what a history tells."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...model.record import Layer, Record


@dataclass(frozen=True)
class Past:
    """One record of a cell, without its report."""

    record: str
    finished: str
    verdict: str
    reason: str
    engine: str
    driver: str | None
    image_digest: str | None
    lock_digest: str | None
    probe_version: str | None

    def changed_since(self, earlier: Past) -> tuple[str, ...]:
        """What else is another than at the earlier record: `lock`, `image`, `driver`, `probe`, `engine`."""
        pairs = {
            "lock": (self.lock_digest, earlier.lock_digest),
            "image": (self.image_digest, earlier.image_digest),
            "driver": (self.driver, earlier.driver),
            "probe": (self.probe_version, earlier.probe_version),
            "engine": (self.engine, earlier.engine),
        }
        return tuple(name for name, (now, then) in pairs.items() if now != then)


@dataclass(frozen=True)
class Measurements:
    """Everything the page shows of the records.

    latest: the newest record of each cell.
    history: of each cell, oldest first.
    speeds: of each cell, from the newest record that measured it.
    layers: of each image spec, from the newest record that knows them.
    """

    latest: dict[str, Record] = field(default_factory=dict)
    history: dict[str, list[Past]] = field(default_factory=dict)
    speeds: dict[str, Speed] = field(default_factory=dict)
    layers: dict[str, tuple[Layer, ...]] = field(default_factory=dict)


def gather(records: Iterable[Record]) -> Measurements:
    """Read records once, oldest first (`Store.all`)."""
    found = Measurements()
    for record in records:
        found.latest[record.cell] = record
        found.history.setdefault(record.cell, []).append(_past(record))
        if (speed := speed_of(record)) is not None:
            found.speeds[record.cell] = speed
        if record.layers:
            found.layers[record.image] = tuple(
                Layer(str(layer["digest"]), int(layer["size"])) for layer in record.layers
            )
    return found


def _past(record: Record) -> Past:
    driver = record.host.get("driver")
    return Past(
        record=record.id,
        finished=record.finished,
        verdict=record.verdict.value,
        reason=record.reason,
        engine=record.engine,
        driver=driver if isinstance(driver, str) else None,
        image_digest=record.image_digest,
        lock_digest=record.lock_digest,
        probe_version=record.probe_version,
    )


# What the check `xla_speedup` measured, as figures for the chart (docs/reference/report.md).

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


# How large the images are, and what they share.


@dataclass(frozen=True)
class Size:
    """One image. size: all of its layers, in bytes, unpacked. shared: what other images have too."""

    image: str
    size: int
    shared: int
    layers: int

    @property
    def own(self) -> int:
        return self.size - self.shared


@dataclass(frozen=True)
class Storage:
    """images: in order. together: bytes of all of them as if nothing were shared. stored: each layer once."""

    images: tuple[Size, ...]
    together: int
    stored: int


def storage(layers: Mapping[str, Sequence[Layer]], images: Sequence[str]) -> Storage:
    """Of those images whose layers are known.

    layers: of an image spec, by its identifier. images: the identifiers to tell of, in order.
    """
    # An image may have the same layer twice; it is stored once all the same.
    known = {
        image: {layer.digest: layer.size for layer in layers[image]} for image in images if image in layers
    }
    users = Counter(digest for found in known.values() for digest in found)
    sizes = tuple(
        Size(
            image,
            sum(found.values()),
            sum(size for digest, size in found.items() if users[digest] > 1),
            len(found),
        )
        for image, found in known.items()
    )
    stored = {digest: size for found in known.values() for digest, size in found.items()}
    return Storage(sizes, sum(size.size for size in sizes), sum(stored.values()))


def readable(size: int) -> str:
    """`885.8 MB`, `8.1 GB`."""
    for unit, least in (("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000)):
        if size >= least:
            return f"{size / least:.1f} {unit}"
    return f"{size} B"
