"""Combinations that are known to fail or to need care, and traits of releases and GPUs, as rows of data with
conditions.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..conditions import Condition, ConditionError, Language, fact_kind
from ..model.prediction import Reason
from ..versions import ComputeCapability
from . import facts, gpus, loose_values
from .facts import Fact

FAILS = "fails"
UNKNOWN = "unknown"
ADVISORY = "advisory"
#: What rows of the section `traits` mean: they say nothing for or against a combination.
TRAIT = "trait"

#: Kinds of conditions on the machine. `gpu` is the short name of a model; another model is not that one.
_CAPABILITY, _GPU = "capability", "gpu"
_OF_MACHINE = frozenset({_CAPABILITY, _GPU})
_OF_SOFTWARE = frozenset({"tensorflow", "python", "cudnn", "extra"})
#: Every kind that is not listed is a package with its version.
_LANGUAGE = Language({_CAPABILITY: "value", _GPU: "value", "extra": "value"}, default_main="version")


@dataclass(frozen=True)
class Known:
    """The facts that a condition may use, by name."""

    values: Mapping[str, str]


@dataclass(frozen=True)
class Combination:
    """One row of known_issues.yaml: it applies where its condition is true.

    by_gpu: True if the condition asks about the GPU. mode: `eager` or `xla` if the row concerns only
    operations that run this way.
    """

    when: Condition
    by_gpu: bool
    mode: str | None
    means: str
    text: str
    remedy: str
    fact: Fact

    def holds(self, known: Mapping[str, str]) -> bool | None:
        """Return whether the condition is true for values by kind; None if one that decides is missing."""
        return self.when.evaluate(lambda kind: _found(known, kind)).truth

    def reason(self) -> Reason:
        """Return the row as a reason for a cell."""
        text = f"{self.text}; {self.remedy}"
        if self.means == FAILS:
            return self.fact.fails(text, "known_issue", mode=self.mode)
        if self.means == UNKNOWN:
            return self.fact.unknown(text, "known_issue", mode=self.mode)
        return self.fact.advises(text, mode=self.mode)


def _found(known: Mapping[str, str], kind: str) -> Sequence[Known] | None:
    return (Known({"value": known[kind], "version": known[kind]}),) if kind in known else None


def of_software(
    version: str | None,
    python: str | None,
    cudnn: str | None,
    extra: bool | None,
    packages: Mapping[str, str],
) -> Mapping[str, str]:
    """Return the values that conditions may ask about. packages: name without suffix -> version."""
    known = {**packages, "tensorflow": version, "python": python, "cudnn": cudnn}
    found = {kind: value for kind, value in known.items() if value}
    return found if extra is None else {**found, "extra": "yes" if extra else "no"}


@functools.cache
def combinations() -> tuple[Combination, ...]:
    """Return every known combination, sorted by id."""
    return tuple(combination(row) for row in facts.rows("known_issues", "issues"))


@functools.cache
def traits() -> tuple[Combination, ...]:
    """Return every trait, sorted by id."""
    return tuple(
        combination({**row, "means": TRAIT, "remedy": ""}) for row in facts.rows("known_issues", "traits")
    )


@functools.cache
def by_kind() -> Mapping[str, Combination]:
    """Return every combination and trait by the kind that a condition on it asks for."""
    return {fact_kind(one.fact.id): one for one in (*combinations(), *traits())}


def trait_holds(identifier: str, **values: str) -> bool:
    """Return whether a trait is true for values by kind. Text after the numbers of a version is ignored."""
    trait = by_kind()[fact_kind(identifier)]
    return trait.holds({kind: loose_values.numbers(value) or value for kind, value in values.items()}) is True


@functools.cache
def named_packages() -> frozenset[str]:
    """Return the packages, other than NVIDIA's, on whose versions a combination depends."""
    kinds = {one.kind for known in combinations() for one in known.when.comparisons()}
    return frozenset(kind for kind in kinds - _OF_SOFTWARE - _OF_MACHINE if not kind.startswith("nvidia-"))


def on_image(known: Mapping[str, str]) -> tuple[Combination, ...]:
    """Return the combinations that apply to software on every GPU, and those that may apply on some."""
    found = ((one, one.holds(known)) for one in combinations())
    return tuple(one for one, truth in found if truth or (truth is None and one.by_gpu))


def on_gpu(
    possible: Iterable[Combination],
    known: Mapping[str, str],
    capability: ComputeCapability,
    model: str | None,
) -> tuple[Reason, ...]:
    """Return the reasons of the combinations that apply to software on a GPU.

    model: its short name; without one, it counts as a model that no condition names.
    """
    values = {**known, **of_gpu(capability, model)}
    return tuple(one.reason() for one in possible if one.holds(values))


def on_some_gpus(known: Mapping[str, str]) -> Iterator[Reason]:
    """Yield the reasons why software fails on some GPUs, each with the names of their models."""
    for one in combinations():
        if one.means != FAILS or one.holds(known) is not None:
            continue
        models = [
            model.name
            for model in gpus.gpus()
            if one.holds({**known, **of_gpu(model.compute_capability, model.slug)})
        ]
        if models:
            reason = one.reason()
            yield replace(reason, text=f"on {', '.join(models)}: {reason.text}")


def of_gpu(capability: ComputeCapability, model: str | None) -> Mapping[str, str]:
    """Return the values of a GPU that conditions may ask about. model: as for `on_gpu`."""
    return {_CAPABILITY: str(capability), _GPU: model or ""}


def combination(row: facts.Row) -> Combination:
    """Read a row of known_issues.yaml. Raises ConditionError."""
    condition = _LANGUAGE.parse(row["when"], row["id"])
    comparisons = tuple(condition.comparisons())
    for one in comparisons:
        for wanted in one.values.get("value", ()) if one.kind == _GPU else ():
            if wanted.text not in {known.slug for known in gpus.gpus()}:
                raise ConditionError(f"{row['id']}: {wanted.text} is not the short name of a known GPU")
    return Combination(
        when=condition,
        by_gpu=any(one.kind in _OF_MACHINE for one in comparisons),
        mode=row.get("mode"),
        means=row["means"],
        text=row["text"],
        remedy=row["remedy"],
        fact=facts.fact(row),
    )
