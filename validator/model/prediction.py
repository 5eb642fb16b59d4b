"""The prediction of the compatibility rules for a cell before anything runs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from .spec import Cell


class Outcome(str, Enum):
    """`unknown` means that the facts do not decide, not that nobody checked."""

    WORKS = "works"
    FAILS = "fails"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Reason:
    """One reason of a prediction, with the fact that it is based on and the fact's source.

    outcome: what this reason on its own would predict. text: one sentence.
    fact: identifier of the fact in `validator/compat/data/`.
    source: where the fact was read (title, address or issue), on one line.
    advisory: True for a remark, which does not change the outcome, whatever the status of the fact.
    status: how sure the fact is, `verified`, `verified-local`, `derived` or `unverified`.
    """

    outcome: Outcome
    text: str
    fact: str
    source: str
    status: str = "verified"
    advisory: bool = False

    @property
    def label(self) -> str:
        """The outcome as people see it: an advisory supports no outcome."""
        return "advisory" if self.advisory else self.outcome.value


@dataclass(frozen=True)
class Prediction:
    """The outcome with its reasons, the deciding ones first."""

    outcome: Outcome
    reasons: tuple[Reason, ...]


@dataclass(frozen=True)
class PlannedCell:
    """A cell with its prediction, as `plan` lists it."""

    cell: Cell
    prediction: Prediction

    def as_json(self) -> dict[str, Any]:
        image, host = self.cell.image, self.cell.host
        return {
            "id": self.cell.identifier,
            "image": image.identifier,
            "tensorflow": image.tensorflow,
            "python": image.python,
            "variant": image.variant.value,
            "cuda": image.cuda.version if image.cuda else None,
            "cuda_policy": image.cuda.policy if image.cuda else None,
            "cudnn": image.cudnn.version if image.cudnn else None,
            "cudnn_policy": image.cudnn.policy if image.cudnn else None,
            "base": image.base,
            "host": host.identifier,
            "driver": str(host.driver) if host.has_gpu else None,
            "gpu": host.gpu,
            "compute_capability": str(host.compute_capability) if host.has_gpu else None,
            "runner": list(host.runner),
            "prediction": {
                "outcome": self.prediction.outcome,
                # Not with `asdict`, which takes ten times as long, and a plan has thousands of cells.
                "reasons": [dict(vars(reason)) for reason in self.prediction.reasons],
            },
        }
