"""What the page takes from the records: the newest of each cell whole, of older ones what a history tells."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ...model.record import Layer, Record
from .speed import Speed, speed_of


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
