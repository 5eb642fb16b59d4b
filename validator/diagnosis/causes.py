"""The list of causes (`data/causes.yaml`): what each one means, which signs show it, and how to fix it."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from . import compiled
from .observations import Observation, Observations

#: How sure signs are, surest first: they leave no doubt; they fit this cause better than any other; they are
#: worth naming when there is nothing better.
CERTAIN, LIKELY, POSSIBLE = "certain", "likely", "possible"
STRENGTHS = (CERTAIN, LIKELY, POSSIBLE)


@dataclass(frozen=True)
class Sign:
    """One condition: something of this kind was observed, and each named value is one of these texts."""

    kind: str
    values: Mapping[str, tuple[str, ...]]

    def matches(self, observations: Observations) -> tuple[Observation, ...]:
        """Return the observations that meet the condition."""
        return tuple(
            one
            for one in observations.of(self.kind)
            if all(one.values.get(name) in wanted for name, wanted in self.values.items())
        )

    def __str__(self) -> str:
        values = ", ".join(f"{name} {' or '.join(wanted)}" for name, wanted in self.values.items())
        return f"{self.kind} ({values})" if values else self.kind


@dataclass(frozen=True)
class Signature:
    """Signs that together show a cause.

    all: every one of them must be there. none: none of these may be there. title: names the values that were
    observed, and is used where all of them are known; empty if the cause's own title is enough.
    """

    all: tuple[Sign, ...]
    none: tuple[Sign, ...]
    strength: str
    title: str

    def matches(self, observations: Observations) -> tuple[Observation, ...]:
        """Return the observations that show the cause; nothing if it is not shown."""
        if any(sign.matches(observations) for sign in self.none):
            return ()
        found = [sign.matches(observations) for sign in self.all]
        return tuple(one for part in found for one in part) if all(found) else ()


@dataclass(frozen=True)
class RemedyEntry:
    """Like `model.diagnosis.Remedy`, with `{placeholders}` for observed values.

    when: the conditions under which it fits; empty if it always does. `tensorflow` and `capability` have
    ranges (`>=2.14`), `os` has names of systems. `seen` and `unseen` have kinds: one of `seen`, and none of
    `unseen`, must have been observed.
    """

    way: str
    says: str
    commands: tuple[str, ...]
    when: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class CauseEntry:
    """One cause of the list.

    ruled_out_by: signs that rule it out, whatever else was observed.
    explains: codes of causes whose signs are only consequences where this one is found.
    sources: lines that a person can follow.
    """

    code: str
    title: str
    means: str
    signatures: tuple[Signature, ...]
    ruled_out_by: tuple[Sign, ...]
    explains: tuple[str, ...]
    remedies: tuple[RemedyEntry, ...]
    sources: tuple[str, ...]


@functools.cache
def causes() -> tuple[CauseEntry, ...]:
    """Return every known cause in the order of the causal chain: an earlier one has to be fixed first."""
    return tuple(_cause(row) for row in compiled.section("causes"))


def _cause(row: Mapping[str, Any]) -> CauseEntry:
    return CauseEntry(
        code=row["code"],
        title=row["title"],
        means=row["means"],
        signatures=tuple(_signature(entry) for entry in row["signs"]),
        ruled_out_by=_signs(row.get("ruled_out_by", ())),
        explains=tuple(row.get("explains", ())),
        remedies=tuple(_remedy(entry) for entry in row["remedies"]),
        sources=tuple(row["sources"]),
    )


def _remedy(entry: Mapping[str, Any]) -> RemedyEntry:
    when = {name: _texts(value) for name, value in entry.get("when", {}).items()}
    return RemedyEntry(entry["way"], entry["says"], tuple(entry.get("commands", ())), MappingProxyType(when))


def _signature(entry: Mapping[str, Any]) -> Signature:
    """Read `{kind: ...}`, or `{all: [...], none: [...]}`; either may have a `strength` and a `title`."""
    single = {
        name: value for name, value in entry.items() if name not in ("all", "none", "strength", "title")
    }
    return Signature(
        all=_signs(entry.get("all", [single])),
        none=_signs(entry.get("none", ())),
        strength=entry.get("strength", CERTAIN),
        title=entry.get("title", ""),
    )


def _signs(entries: Iterable[Mapping[str, Any]]) -> tuple[Sign, ...]:
    return tuple(
        Sign(
            entry["kind"],
            MappingProxyType({name: _texts(value) for name, value in entry.items() if name != "kind"}),
        )
        for entry in entries
    )


def _texts(value: Any) -> tuple[str, ...]:
    """Return a list of texts, or a single text, as a tuple."""
    return tuple(value) if isinstance(value, list) else (value,)
