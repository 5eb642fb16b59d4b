"""The facts with their sources, and the predictions with their reasons, as rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import cast

from ..compat import builds, facts
from ..model.prediction import PlannedCell, Reason
from .digests import digest_of
from .tables import Fact, Mode, PredictionRow, ReasonRow, Source, Status

#: The columns of a fact of their own. Everything else is its content.
_COLUMNS = ("id", "status", "sources")
#: The file whose rows were read in wheels. The source of such a fact has the id of the fact.
_BUILDS = "builds"


def fact_rows() -> Iterator[Fact]:
    """Yield every fact, in the order of the data files."""
    for file, section, row in facts.all_rows():
        known = builds.fact_of(row) if file == _BUILDS else facts.fact(row)
        yield Fact(
            id=known.id,
            file=file,
            section=section,
            status=row["status"],
            sources=(known.id,) if file == _BUILDS else tuple(row["sources"]),
            content={name: value for name, value in row.items() if name not in _COLUMNS},
        )


def source_rows() -> Iterator[Source]:
    """Yield every source that a fact names, sorted by id."""
    texts: dict[str, str] = {}
    for file, _, row in facts.all_rows():
        if file == _BUILDS:
            read = builds.fact_of(row)
            texts[read.id] = read.source
        else:
            texts |= {source: facts.source_line(source) for source in row["sources"]}
    for source, text in sorted(texts.items()):
        is_address = text.startswith("https://") and " " not in text
        yield Source(source, text, text if is_address else None)


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
                rank=predicted.rank,
                evidence=tuple(one.id for one in predicted.evidence),
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
