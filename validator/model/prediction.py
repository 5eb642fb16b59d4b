"""The prediction of the compatibility rules for a cell before anything runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

from .situation import EAGER, XLA
from .spec import Cell, ImageSpec

#: The codes of rules. They are stable: text may change, these don't.
Rule = Literal[
    "driver_too_old",
    "driver_older_than_gpu",
    "driver_dropped_gpu",
    "compat_package_unsupported",
    "no_kernels_for_gpu",
    "ptx_not_compiled_by_driver",
    "xla_without_gpu_target",
    "cudnn_without_gpu",
    "cudnn_older_than_built",
    "cudnn_of_another_major",
    "cudnn_without_cuda_build",
    "cuda_of_another_version",
    "python_without_wheel",
    "platform_without_cuda",
    "cpu_package",
    "cuda_libraries_not_installed",
    "library_path_not_set",
    "open_modules_needed",
    "open_modules_unsupported",
    "not_nvidia",
    "known_issue",
    "mixed_frameworks",
    "package_removed",
]


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
    rule: the rule that fails, or that can't be decided; None for a reason that supports `works`.
    mode: `eager` or `xla` if the reason concerns only operations that run this way, None if it concerns both.
    """

    outcome: Outcome
    text: str
    fact: str
    source: str
    status: str = "verified"
    advisory: bool = False
    rule: Rule | None = None
    mode: str | None = None

    @property
    def label(self) -> str:
        """The outcome as people see it: an advisory supports no outcome."""
        return "advisory" if self.advisory else self.outcome.value

    @property
    def sentence(self) -> str:
        """The text, with the mode in front of it where the reason speaks against only one."""
        if self.mode is None or self.label == Outcome.WORKS.value:
            return self.text
        return f"{'XLA' if self.mode == XLA else self.mode}: {self.text}"


@dataclass(frozen=True)
class Prediction:
    """The outcome with its reasons, the deciding ones first.

    eager: the outcome for operations that run one by one, None if only XLA was asked about. xla: the outcome
        for functions that XLA compiles, None if only eager operations were asked about.
    outcome: the worse of the two.
    missing: the facts that are not known and that `works` needs, as names of fields of `Situation`.
    """

    outcome: Outcome
    reasons: tuple[Reason, ...]
    eager: Outcome | None
    xla: Outcome | None
    missing: tuple[str, ...] = ()

    @property
    def modes(self) -> str:
        """`eager works, XLA fails` where the outcomes differ or only one was asked about; else no text."""
        if self.eager == self.xla:
            return ""
        outcomes = {"eager": self.eager, "XLA": self.xla}
        return ", ".join(f"{name} {outcome.value}" for name, outcome in outcomes.items() if outcome)

    def as_json(self) -> dict[str, Any]:
        return {
            "outcome": self.outcome,
            "eager": self.eager,
            "xla": self.xla,
            "missing": list(self.missing),
            # Not with `asdict`, which takes ten times as long, and a plan has thousands of cells.
            "reasons": [dict(vars(reason)) for reason in self.reasons],
        }


def decide(reasons: Iterable[Reason], missing: tuple[str, ...] = (), mode: str | None = None) -> Prediction:
    """Return `fails` if a reason fails, else `unknown` if one is unknown or a fact is missing, else `works`.

    mode: `eager` or `xla` to leave out the reasons that concern only the other one. The reasons that decide
    come first, remarks come last.
    """
    ordered = tuple(sorted(reasons, key=_order))
    modes = {reason.mode for reason in ordered}
    if mode is not None and len(modes) > 1:
        ordered = tuple(reason for reason in ordered if reason.mode in (None, mode))
    outcome = _outcome(ordered, missing)
    if mode is None and len(modes) > 1:
        eager = _outcome([reason for reason in ordered if reason.mode in (None, EAGER)], missing)
        xla = _outcome([reason for reason in ordered if reason.mode in (None, XLA)], missing)
        return Prediction(outcome, ordered, eager, xla, missing)
    return Prediction(
        outcome, ordered, None if mode == XLA else outcome, None if mode == EAGER else outcome, missing
    )


def _outcome(ordered: Sequence[Reason], missing: tuple[str, ...]) -> Outcome:
    """Return the outcome for ordered reasons: the first one decides."""
    first = ordered[0].outcome if ordered else Outcome.UNKNOWN
    return Outcome.UNKNOWN if missing and first is Outcome.WORKS else first


def _order(reason: Reason) -> int:
    if reason.outcome is Outcome.FAILS:
        return 0
    if reason.outcome is Outcome.UNKNOWN:
        return 1
    return 3 if reason.advisory else 2


def image_json(image: ImageSpec) -> dict[str, Any]:
    """Return the fields of an image, for a cell and for a combination that is not a cell."""
    return {
        "image": image.identifier,
        "tensorflow": image.tensorflow,
        "python": image.python,
        "variant": image.variant.value,
        "cuda": image.cuda.version if image.cuda else None,
        "cuda_policy": image.cuda.policy if image.cuda else None,
        "cudnn": image.cudnn.version if image.cudnn else None,
        "cudnn_policy": image.cudnn.policy if image.cudnn else None,
        "base": image.base,
    }


@dataclass(frozen=True)
class PlannedCell:
    """A cell with its prediction, as `plan` lists it."""

    cell: Cell
    prediction: Prediction

    def as_json(self) -> dict[str, Any]:
        host = self.cell.host
        return {
            "id": self.cell.identifier,
            **image_json(self.cell.image),
            "host": host.identifier,
            "driver": str(host.driver) if host.has_gpu else None,
            "gpu": host.gpu,
            "compute_capability": str(host.compute_capability) if host.has_gpu else None,
            "runner": list(host.runner),
            "prediction": self.prediction.as_json(),
        }
