"""The predictions of a matrix and their reasons as rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import cast

from ..model.prediction import PlannedCell, Reason
from .digests import digest_of
from .tables import Mode, PredictionRow, ReasonRow, Status


class Predictions:
    """Turns cells into rows, and remembers what the other tables need: the reasons, each once, and names.

    names: the identifiers of all images and host classes. All of it is known once every cell was read.
    """

    def __init__(self) -> None:
        self.names: set[str] = set()
        self._reasons: dict[Reason, str] = {}

    def rows(self, cells: Iterable[PlannedCell]) -> Iterator[PredictionRow]:
        """Yield the row of each cell, in the order of the cells."""
        for planned in cells:
            image, host = planned.cell.image, planned.cell.host
            predicted = planned.prediction
            identifiers = image.identifier, host.identifier
            self.names.update(identifiers)
            yield PredictionRow(
                id=planned.cell.identifier,
                image=identifiers[0],
                host=identifiers[1],
                tensorflow=image.tensorflow,
                python=image.python,
                variant=image.variant,
                cuda=image.cuda.version if image.cuda else None,
                cuda_policy=image.cuda.policy if image.cuda else None,
                cudnn=image.cudnn.version if image.cudnn else None,
                cudnn_policy=image.cudnn.policy if image.cudnn else None,
                base=image.base,
                driver=str(host.driver) if host.has_gpu else None,
                gpu=host.gpu,
                compute_capability=str(host.compute_capability) if host.has_gpu else None,
                outcome=predicted.outcome,
                eager=predicted.eager,
                xla=predicted.xla,
                missing=predicted.missing,
                reasons=tuple(map(self._identifier, predicted.reasons)),
            )

    def reasons(self) -> Iterator[ReasonRow]:
        """Yield each reason of the cells that were read once, sorted by id."""
        for reason, identifier in sorted(self._reasons.items(), key=lambda entry: entry[1]):
            yield ReasonRow(
                id=identifier,
                outcome=reason.outcome,
                text=reason.text,
                fact=reason.fact,
                source=reason.source,
                status=cast(Status, reason.status),
                advisory=reason.advisory,
                rule=reason.rule,
                mode=cast(Mode | None, reason.mode),
            )

    def _identifier(self, reason: Reason) -> str:
        known = self._reasons.get(reason)
        if known is None:
            values = (reason.outcome.value, reason.text, reason.source, reason.status, reason.advisory)
            known = f"{reason.fact}/{digest_of(*values, reason.rule, reason.mode)}"
            self._reasons[reason] = known
        return known
