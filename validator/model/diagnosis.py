"""What the diagnosis says: causes in the order to mend them, what is harmless, what was not understood."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_HEDGES = {"likely": "Likely: ", "possible": "Possibly: "}


@dataclass(frozen=True)
class Evidence:
    """What speaks for a finding.

    text: the line as it was pasted (without colours, quote marks and line ends), or a report's own words.
    where: `line 12` of a log, or a report's field such as `checks.driver`.
    count: how often the same was seen.
    """

    text: str
    where: str
    count: int = 1


@dataclass(frozen=True)
class Remedy:
    """How to mend a cause where TensorFlow was installed in one way.

    way: `any`, `pip`, `conda`, `docker`, `wsl` or `host` (the machine itself, as its administrator).
    says: one sentence.
    commands: shell commands, one a line, to be run in this order; empty where no command mends it.
    """

    way: str
    says: str
    commands: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cause:
    """One cause, found.

    code: stable, snake_case.
    title: one sentence that names it, with the values that were seen.
    means: what it means and why it has the effect that was met.
    evidence: what speaks for it, strongest first.
    remedies: for the ways of installing that the text speaks of first; never empty.
    sources: where the facts were read, one line each that a person can follow.
    explains: codes of other causes with signs of their own here that are only consequences of this one.
    strength: `certain`; `likely`, which fits better than anything else; or `possible`, a guess.
    """

    code: str
    title: str
    means: str
    evidence: tuple[Evidence, ...]
    remedies: tuple[Remedy, ...]
    sources: tuple[str, ...]
    explains: tuple[str, ...] = ()
    strength: str = "certain"

    @property
    def headline(self) -> str:
        """The title, as sure as its signs are."""
        return _HEDGES.get(self.strength, "") + self.title


@dataclass(frozen=True)
class Harmless:
    """A message that looks alarming and shows no fault.

    code: stable, snake_case.
    says: one sentence: what the message is, and why it may be ignored.
    """

    code: str
    says: str
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True)
class Diagnosis:
    """The answer. No cause and no line that was not understood means: no fault in what was read.

    causes: in the order to mend them; the first is the answer to "why".
    unknown: lines that speak of a fault and fit no signature.
    facts: what was recognized of the environment, such as `tensorflow`: `2.18.0`, `driver`: `535.183.01`.
    read: what was read, in a sentence (`312 lines`; `the first and last 32 MB of 1.1 GB`).
    next_step: what to run or to look at next, one sentence.
    """

    causes: tuple[Cause, ...]
    harmless: tuple[Harmless, ...]
    unknown: tuple[Evidence, ...]
    facts: Mapping[str, str] = field(default_factory=dict)
    read: str = ""
    next_step: str = ""
