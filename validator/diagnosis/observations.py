"""What was seen, in one vocabulary for pasted text and for reports: a kind with values, and a place."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

from ..model.diagnosis import Evidence
from .builds import number

#: Observations kept of one kind; a log may repeat itself a million times, each time with another value.
KEPT = 200
#: Characters of a line that are kept as evidence.
WIDTH = 400


Said = tuple[str, tuple[tuple[str, str], ...]]
Key = tuple[Said, bytes]
_NUMBERS = b"0123456789.:"


@dataclass(frozen=True)
class Observation:
    """One thing that was seen.

    kind: what, in snake_case; never a cause. values: what the message says besides, all of it text.
    text, where: the line, and its number or the report's field. harmless: why it may be ignored, if it may.
    """

    kind: str
    values: Mapping[str, str]
    text: str = ""
    where: str = ""
    harmless: str | None = None

    @cached_property
    def key(self) -> Key:
        """What makes two observations the same: what they say, and the line but for its numbers, which differ
        with every time stamp."""
        # Bytes are translated in a sixth of the time of text.
        return self.says, self.text.encode(errors="replace").translate(None, _NUMBERS)

    @property
    def says(self) -> Said:
        """Kind and values."""
        return self.kind, tuple(sorted(self.values.items()))


@dataclass
class _Counted:
    seen: Observation
    count: int


@dataclass
class Observations:
    """Everything that was seen, in the order in which it was; the same thing again only counts."""

    _kinds: dict[str, dict[Key, _Counted]] = field(default_factory=dict)

    def add(self, seen: Observation, times: int = 1) -> None:
        """Take one in, as seen that many times."""
        known = self._kinds.get(seen.kind)
        if known is None:
            known = self._kinds[seen.kind] = {}
        counted = known.get(seen.key)
        if counted is not None:
            counted.count += times
        elif len(known) < KEPT:
            known[seen.key] = _Counted(seen, times)

    def derive(self, kind: str, values: Mapping[str, str], *bases: Observation) -> None:
        """Add what follows from others; it stands where the first of them does."""
        text = " / ".join(dict.fromkeys(base.text for base in bases if base.text))
        where = bases[0].where if bases else ""
        self.add(Observation(kind, MappingProxyType(dict(values)), text[:WIDTH], where))

    def of(self, kind: str) -> tuple[Observation, ...]:
        """All of one kind."""
        return tuple(counted.seen for counted in self._kinds.get(kind, {}).values())

    def first(self, kind: str) -> Observation | None:
        """The first of a kind."""
        return next(iter(self.of(kind)), None)

    def value(self, kind: str, name: str) -> str | None:
        """A value of the first of a kind that has it."""
        return next((seen.values[name] for seen in self.of(kind) if name in seen.values), None)

    def has(self, kind: str) -> bool:
        """Whether anything of the kind was seen."""
        return kind in self._kinds

    def __iter__(self) -> Iterator[Observation]:
        for known in self._kinds.values():
            yield from (counted.seen for counted in known.values())

    def evidence(self, seen: Observation) -> Evidence:
        """An observation as evidence, with how often it was seen."""
        counted = self._kinds.get(seen.kind, {}).get(seen.key)
        return Evidence(seen.text[:WIDTH], seen.where, counted.count if counted else 1)


def evidence_of(observations: Observations, seen: Iterable[Observation]) -> tuple[Evidence, ...]:
    """Each line once, however many things it shows."""
    found: dict[tuple[str, str], Evidence] = {}
    for observation in seen:
        entry = observations.evidence(observation)
        found.setdefault((entry.where, entry.text), entry)
    return tuple(found.values())


# What several rules ask of the observations: the release in use, its packages, the platform.


def tensorflow(observations: Observations) -> Observation | None:
    """What tells the release in use: a version said outright, else that of the installed package."""
    said = observations.first("tensorflow")
    if said is not None and said.values.get("version"):
        return said
    names = ("tensorflow", "tensorflow-gpu", "tensorflow-cpu", "tensorflow-intel", "tf-nightly")
    installed = observations.first("package_installed")
    if installed is not None and normalized(installed.values["name"]) in names:
        return installed
    return next((found for name in names if (found := package(observations, name)) is not None), None)


def package(observations: Observations, name: str) -> Observation | None:
    """The installed package of that (normalized) name."""
    return next(
        (seen for seen in observations.of("package") if normalized(seen.values["name"]) == name), None
    )


def normalized(name: str) -> str:
    """A package's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def release(observations: Observations) -> tuple[str, Observation] | None:
    """The release in use, and what tells it; None where no number does."""
    seen = tensorflow(observations)
    return (seen.values["version"], seen) if seen is not None and number(seen.values["version"]) else None


def on_windows(observations: Observations) -> Observation | None:
    """What tells of native Windows."""
    if observations.has("wsl") or observations.has("container"):
        return None
    return next((seen for seen in observations.of("os") if seen.values.get("name") == "windows"), None)
