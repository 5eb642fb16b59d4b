"""Combinations that are known to fail or to need care, as rows of data with conditions."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..conditions import AllOf, Condition, ConditionError, Language
from ..model.prediction import Reason
from ..versions import ComputeCapability
from . import facts
from .facts import Fact

FAILS = "fails"
UNKNOWN = "unknown"
ADVISORY = "advisory"

_CAPABILITY = "capability"
#: Every kind that is not listed is a package with its version.
_LANGUAGE = Language({_CAPABILITY: "value", "extra": "value"}, default_main="version")


@dataclass(frozen=True)
class Known:
    """The facts that a condition may use, by name."""

    values: Mapping[str, str]


@dataclass(frozen=True)
class Combination:
    """One row of known_issues.yaml: it applies where both conditions are true.

    image: the condition on the software. capabilities: that on the GPU's compute capability, or None.
    mode: `eager` or `xla` if the row concerns only operations that run this way.
    """

    image: Condition
    capabilities: Condition | None
    mode: str | None
    means: str
    text: str
    remedy: str
    fact: Fact

    def holds_for_image(
        self, version: str, python: str | None, from_extra: bool | None, wheels: Mapping[str, str]
    ) -> bool:
        """Return True if the condition on the software is true. wheels: name without suffix -> version."""
        known = {"tensorflow": version, "python": python, **wheels}
        found = {name: Known({"version": value}) for name, value in known.items() if value}
        if from_extra is not None:
            found["extra"] = Known({"value": "yes" if from_extra else "no"})
        return self.image.holds(lambda kind: _one(found.get(kind)))

    def holds_for_gpu(self, capability: ComputeCapability) -> bool:
        """Return True if the condition on the GPU is true."""
        known = Known({"value": str(capability)})
        return self.capabilities is None or self.capabilities.holds(lambda _: (known,))

    def reason(self) -> Reason:
        """Return the row as a reason for a cell."""
        text = f"{self.text}; {self.remedy}"
        if self.means == FAILS:
            return self.fact.fails(text, "known_issue", mode=self.mode)
        if self.means == UNKNOWN:
            return self.fact.unknown(text, "known_issue", mode=self.mode)
        return self.fact.advises(text, mode=self.mode)


def _one(known: Known | None) -> Sequence[Known] | None:
    return None if known is None else (known,)


@functools.cache
def combinations() -> tuple[Combination, ...]:
    """Return every known combination, sorted by id."""
    return tuple(combination(row) for row in facts.rows("known_issues", "issues"))


@functools.cache
def named_packages() -> frozenset[str]:
    """Return the packages, other than NVIDIA's, on whose versions a combination depends."""
    kinds = {one.kind for known in combinations() for one in known.image.comparisons()}
    return frozenset(
        kind for kind in kinds - {"tensorflow", "python", "extra"} if not kind.startswith("nvidia-")
    )


def on_image(
    version: str, python: str | None, from_extra: bool | None, wheels: Mapping[str, str]
) -> tuple[Combination, ...]:
    """Return the combinations that apply to an image, whatever their condition on the GPU."""
    return tuple(one for one in combinations() if one.holds_for_image(version, python, from_extra, wheels))


@functools.lru_cache(maxsize=8192)
def on_gpu(identifiers: tuple[str, ...], capability: ComputeCapability) -> tuple[Reason, ...]:
    """Return the reasons of the combinations whose condition on the GPU holds."""
    return tuple(
        one.reason() for one in combinations() if one.fact.id in identifiers and one.holds_for_gpu(capability)
    )


def combination(row: facts.Row) -> Combination:
    """Read a row of known_issues.yaml. Raises ConditionError."""
    image, capabilities = _halves(row["when"], row["id"])
    return Combination(
        image=image,
        capabilities=capabilities,
        mode=row.get("mode"),
        means=row["means"],
        text=row["text"],
        remedy=row["remedy"],
        fact=facts.fact(row),
    )


def _halves(written: Any, where: str) -> tuple[Condition, Condition | None]:
    """Return the condition on the software and that on the GPU, which are judged at different times."""
    condition = _LANGUAGE.parse(written, where)
    parts = condition.conditions if isinstance(condition, AllOf) else (condition,)
    image, gpu = [], []
    for part in parts:
        kinds = {one.kind for one in part.comparisons()}
        if kinds == {_CAPABILITY}:
            gpu.append(part)
        elif _CAPABILITY in kinds:
            raise ConditionError(
                f"{where}: the condition on the capability is nested; move it into the outermost `all`"
            )
        else:
            image.append(part)
    return AllOf(tuple(image)), AllOf(tuple(gpu)) if gpu else None
