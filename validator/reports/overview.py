"""Predicted beside measured: the values behind every form of the report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..model.prediction import Outcome, PlannedCell
from ..model.record import Record, Verdict

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
            "prediction": self.planned.prediction.as_json() if self.planned else None,
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
