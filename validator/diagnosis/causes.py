"""The list of causes (`data/causes.yaml`): what each means, what it is known by, how it is mended."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from ..compat import facts
from ..compat.facts import source_line
from .messages import DATA
from .observations import Observation, Observations

#: How sure signs are, surest first: they leave no doubt; they fit better than anything else; they are worth
#: naming when there is nothing better.
CERTAIN, LIKELY, POSSIBLE = "certain", "likely", "possible"
STRENGTHS = (CERTAIN, LIKELY, POSSIBLE)


@dataclass(frozen=True)
class Sign:
    """One condition: something of this kind was seen, with one of these texts for each value named."""

    kind: str
    values: Mapping[str, tuple[str, ...]]

    def matches(self, observations: Observations) -> tuple[Observation, ...]:
        """What was seen of it."""
        return tuple(
            seen
            for seen in observations.of(self.kind)
            if all(seen.values.get(name) in wanted for name, wanted in self.values.items())
        )

    def __str__(self) -> str:
        values = ", ".join(f"{name} {' or '.join(wanted)}" for name, wanted in self.values.items())
        return f"{self.kind} ({values})" if values else self.kind


@dataclass(frozen=True)
class Signature:
    """Signs that together show a cause.

    all: every one must be there. none: none of these may. title: one that names the values that were seen,
    for where all of them were; empty where the cause's own title says it all.
    """

    all: tuple[Sign, ...]
    none: tuple[Sign, ...]
    strength: str
    title: str

    def matches(self, observations: Observations) -> tuple[Observation, ...]:
        """What shows the cause; empty when it is not shown."""
        if any(sign.matches(observations) for sign in self.none):
            return ()
        found = [sign.matches(observations) for sign in self.all]
        return tuple(seen for part in found for seen in part) if all(found) else ()


@dataclass(frozen=True)
class RemedyEntry:
    """As `model.diagnosis.Remedy`, with `{placeholders}` for values that were seen.

    when: what it fits, everything where empty. Of `tensorflow` and `capability` ranges (`>=2.14`); of `os`
    names of systems; of `seen` and `unseen` kinds, of which any, and none, must be there.
    """

    way: str
    says: str
    commands: tuple[str, ...]
    when: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class CauseEntry:
    """One cause as it stands in the list.

    ruled_out_by: signs that speak against it whatever else was seen.
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
    """Every known cause, in the order of the causal chain: what comes first is to be mended first."""
    document = facts.read(DATA / "causes.yaml")
    return tuple(_cause(row) for row in document)


def _cause(row: Mapping[str, Any]) -> CauseEntry:
    return CauseEntry(
        code=row["code"],
        title=row["title"],
        means=" ".join(row["means"].split()),
        signatures=tuple(_signature(entry) for entry in row["signs"]),
        ruled_out_by=_signs(row.get("ruled_out_by", ())),
        explains=tuple(row.get("explains", ())),
        remedies=tuple(_remedy(entry) for entry in row["remedies"]),
        sources=tuple(_source(key) for key in row["sources"]),
    )


def _remedy(entry: Mapping[str, Any]) -> RemedyEntry:
    when = {name: _texts(value) for name, value in entry.get("when", {}).items()}
    return RemedyEntry(entry["way"], entry["says"], tuple(entry.get("commands", ())), MappingProxyType(when))


def _texts(value: Any) -> tuple[str, ...]:
    """A list of texts, or one alone."""
    return tuple(value) if isinstance(value, list) else (value,)


def _signature(entry: Mapping[str, Any]) -> Signature:
    """`{kind: ...}` alone, or `{all: [...], none: [...]}`; either with `strength` and `title`."""
    rest = {name: value for name, value in entry.items() if name not in ("all", "none", "strength", "title")}
    wanted = entry.get("all", [rest])
    return Signature(
        all=_signs(wanted),
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


def _source(key: str) -> str:
    """A key of compat's list of sources, an issue as `owner/name#123`, or a line as it is."""
    return key if key.startswith("https://") or " " in key else source_line(key)
