"""Combinations that are known to fail or to need care, as rows of data with conditions."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..model.prediction import Reason
from ..versions import ComputeCapability, Range, release_comparer
from . import facts
from .facts import Fact

FAILS = "fails"
UNKNOWN = "unknown"
ADVISORY = "advisory"


@dataclass(frozen=True)
class Combination:
    """One row of known_issues.yaml. A condition that is None or empty always holds.

    capabilities: the first capability, and the one below which the condition holds, or None. unlocked: True
    if the condition on wheels holds when no lock gives their versions. from_extra: None for a condition that
    does not ask. mode: `eager` or `xla` if the row concerns only operations that run this way.
    """

    releases: tuple[Range, ...]
    pythons: tuple[str, ...]
    capabilities: tuple[ComputeCapability, ComputeCapability | None] | None
    from_extra: bool | None
    wheels: Mapping[str, Range] = field(hash=False)
    unlocked: bool
    mode: str | None
    means: str
    text: str
    remedy: str
    fact: Fact

    def holds_for_image(
        self, version: str, python: str | None, from_extra: bool | None, wheels: Mapping[str, str]
    ) -> bool:
        """Return True if every condition on the image holds. wheels: name without suffix -> version."""
        return (
            (not self.releases or any(one.contains(version) for one in self.releases))
            and (not self.pythons or python in self.pythons)
            and self.from_extra in (None, from_extra)
            and all(
                one.contains(wheels[name]) if name in wheels else self.unlocked
                for name, one in self.wheels.items()
            )
        )

    def holds_for_gpu(self, capability: ComputeCapability) -> bool:
        """Return True if the condition on the GPU holds."""
        if self.capabilities is None:
            return True
        first, below = self.capabilities
        return first <= capability and (below is None or capability < below)

    def reason(self) -> Reason:
        """Return the row as a reason for a cell."""
        text = f"{self.text}; {self.remedy}"
        if self.means == FAILS:
            return self.fact.fails(text, "known_issue", mode=self.mode)
        if self.means == UNKNOWN:
            return self.fact.unknown(text, "known_issue", mode=self.mode)
        return self.fact.advises(text, mode=self.mode)


@functools.cache
def combinations() -> tuple[Combination, ...]:
    """Return every known combination, sorted by id."""
    return tuple(_combination(row) for row in facts.rows("known_issues", "issues"))


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


def _combination(row: facts.Row) -> Combination:
    return Combination(
        releases=tuple(_range(text) for text in row.get("releases", "").split(" or ") if text),
        pythons=tuple(row.get("pythons", ())),
        capabilities=_capabilities(row.get("compute_capability")),
        from_extra=row.get("from_extra"),
        wheels={name: _range(text) for name, text in row.get("wheels", {}).items()},
        unlocked=row.get("unlocked", False),
        mode=row.get("mode"),
        means=row["means"],
        text=row["text"],
        remedy=row["remedy"],
        fact=facts.fact(row),
    )


def _capabilities(bounds: list[str] | None) -> tuple[ComputeCapability, ComputeCapability | None] | None:
    if bounds is None:
        return None
    first, below = (ComputeCapability.parse(bound) if bound else None for bound in (*bounds, None)[:2])
    return (first, below) if first else None


def _range(text: str) -> Range:
    return Range.parse(text, release_comparer)
