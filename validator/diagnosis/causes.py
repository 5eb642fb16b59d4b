"""The list of causes (`causes:` in `data/`): what each one means, which signs show it, and how to fix it."""

from __future__ import annotations

import functools
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

from ..compat import known_issues
from ..conditions import AllOf, Condition, Find, Language
from . import messages
from .observations import Observation, Observations, tensorflow

# Find what conditions ask about: observations, and the facts of the environment that follow from them.


#: The facts of the environment, each with the name of its main value. If a fact is not known, a condition on
#: it is unknown, not false.
FACTS = {
    "tensorflow": "version",
    "python": "version",
    "keras": "version",
    "cuda": "version",
    "cudnn": "version",
    "driver": "version",
    "driver_cuda": "version",
    "gpu": "name",
    "capability": "value",
    "system": "name",
}
#: The facts for which one value is chosen or concluded from all observations.
_CHOSEN = ("tensorflow", "capability", "system", "driver")


def finder(observations: Observations, values: Mapping[str, str]) -> Find[Observation]:
    """Return a function that finds observations by kind, and facts that were concluded where there is none.

    values: the facts of the environment by name.
    """

    def find(kind: str) -> Sequence[Observation] | None:
        found = observations.of(kind)
        if kind in observations.undecided:
            return None
        return found if found or kind not in FACTS else _fact(kind, observations, values)

    return find


def chosen_finder(observations: Observations, values: Mapping[str, str]) -> Find[Observation]:
    """Return a function like that of `finder`, for which only chosen values count, not all observed ones.

    Facts of compat are decided from these values too.
    """
    find = finder(observations, values)
    chosen = {name: values[name] for name in _CHOSEN if values.get(name)}

    def find_chosen(kind: str) -> Sequence[Observation] | None:
        if kind in _CHOSEN:
            return _fact(kind, observations, values)
        fact = known_issues.by_kind().get(kind)
        if fact is None:
            return find(kind)
        holds = fact.holds(chosen)
        if holds is None:
            return None
        return (Observation(kind, MappingProxyType({"holds": "yes"})),) if holds else ()

    return find_chosen


def _fact(kind: str, observations: Observations, values: Mapping[str, str]) -> Sequence[Observation] | None:
    value = values.get(kind)
    if not value:
        return None
    base = tensorflow(observations) if kind == "tensorflow" else None
    text, where = (base.text, base.where) if base is not None else ("", "")
    return (Observation(kind, MappingProxyType({FACTS[kind]: value}), text, where),)


#: How sure signs are, surest first: they leave no doubt; they fit this cause better than any other; they are
#: worth naming when there is nothing better.
CERTAIN, LIKELY, POSSIBLE = "certain", "likely", "possible"
STRENGTHS = (CERTAIN, LIKELY, POSSIBLE)

#: The condition of a remedy that always fits.
ALWAYS = AllOf(())


@dataclass(frozen=True)
class Sign:
    """A condition that shows a cause where it is true.

    title: names the values that were observed, and is used where all of them are known; empty if the cause's
    own title is enough.
    """

    when: Condition
    strength: str = CERTAIN
    title: str = ""


@dataclass(frozen=True)
class RemedyEntry:
    """Like `model.diagnosis.Remedy`, with `{placeholders}` for observed values.

    when: it fits unless this is false. sure: it fits only if that is true. interrupts: what it interrupts for
    others, a key of `remedies.INTERRUPTS`; empty if nothing. first: it solves most cases of the cause, so it
    comes before the reader's own way. capability: of the GPUs that it is for, assumed where the reader's is
    not known.
    """

    way: str
    says: str
    commands: tuple[str, ...]
    when: Condition = ALWAYS
    sure: bool = False
    interrupts: str = ""
    first: bool = False
    capability: str | None = None

    def fits(self, find: Find[Observation]) -> bool:
        return self.when.holds(find) is True if self.sure else self.when.may_hold(find)

    @cached_property
    def placeholders(self) -> frozenset[str]:
        """The names of the values that it has to be filled in with."""
        return frozenset(
            name
            for template in (self.says, *self.commands)
            for _, name, _, _ in string.Formatter().parse(template)
            if name
        )


@dataclass(frozen=True)
class CauseEntry:
    """One cause of the list.

    signs: each of them shows the cause. ruled_out_by: what rules it out, whatever else was observed.
    explains: codes of causes whose signs are only consequences where this one is found.
    sources: lines that a person can follow. last_resort: it is named only if no other cause is.
    """

    code: str
    title: str
    means: str
    signs: tuple[Sign, ...]
    ruled_out_by: Condition
    explains: tuple[str, ...]
    remedies: tuple[RemedyEntry, ...]
    sources: tuple[str, ...]
    last_resort: bool = False


@functools.cache
def causes() -> tuple[CauseEntry, ...]:
    """Return every known cause in the order of the causal chain: an earlier one has to be fixed first."""
    return tuple(cause(row, language()) for row in messages.section("causes"))


@functools.cache
def language() -> Language:
    """Return the language of the conditions in the data, with the named conditions."""
    return language_with(messages.section("conditions"))


def language_with(named: Mapping[str, Any]) -> Language:
    """Return the language of the conditions in the data, with these named conditions."""
    facts = {one.fact.id: one.when for one in known_issues.by_kind().values()}
    return Language(FACTS, named, facts=facts)


def cause(row: Mapping[str, Any], language: Language) -> CauseEntry:
    """Read a row of the data. Raises ConditionError."""
    code = row["code"]
    return CauseEntry(
        code=code,
        title=row["title"],
        means=row["means"],
        signs=tuple(
            _sign(entry, language, f"{code}.signs[{number}]") for number, entry in enumerate(row["signs"])
        ),
        ruled_out_by=language.any_of(row.get("ruled_out_by", ()), f"{code}.ruled_out_by"),
        explains=tuple(row.get("explains", ())),
        remedies=tuple(
            remedy(entry, language, f"{code}.remedies[{number}]")
            for number, entry in enumerate(row["remedies"])
        ),
        sources=tuple(row["sources"]),
        last_resort=row.get("last_resort", False),
    )


@functools.cache
def answers() -> Mapping[str, Sequence[RemedyEntry]]:
    """Return the answers to each question, in the order in which they are tried."""
    found: dict[str, list[RemedyEntry]] = {}
    for row in messages.section("answers"):
        entry = {name: value for name, value in row.items() if name != "of"}
        found.setdefault(row["of"], []).append(remedy(entry, language(), row["of"]))
    return found


def _sign(entry: Any, language: Language, where: str) -> Sign:
    """Read `{when: CONDITION, strength: ..., title: ...}`, or a condition by itself."""
    if not isinstance(entry, Mapping) or "when" not in entry:
        return Sign(language.parse(entry, where))
    when = language.parse(entry["when"], f"{where}.when")
    return Sign(when, entry.get("strength", CERTAIN), entry.get("title", ""))


def remedy(entry: Mapping[str, Any], language: Language, where: str) -> RemedyEntry:
    """Read a remedy, or an answer to a question. Raises ConditionError."""
    when = language.parse(entry["when"], f"{where}.when") if "when" in entry else ALWAYS
    return RemedyEntry(**{**entry, "when": when, "commands": tuple(entry.get("commands", ()))})


@dataclass(frozen=True)
class Rule:
    """A rule of the law of remedies: which commands can't help a reader, whatever the cause.

    commands: a pattern of commands; empty if the rule is about the remedies of `ways`, or about sentences.
    A remedy is left out with a command that matches. alone: only if all of its commands do. only: the command
    is left out alone. says: a pattern of sentences; a remedy is left out with its first one, and other
    sentences alone, in explanations too. instead: what to say in place of what is left out, if anything.
    """

    ruled_out_by: Condition
    commands: str = ""
    says: str = ""
    ways: tuple[str, ...] = ()
    alone: bool = False
    only: bool = False
    instead: str = ""


@functools.cache
def law() -> tuple[Rule, ...]:
    """Return the rules of the law of remedies."""
    return tuple(
        Rule(**{**row, "ruled_out_by": language().parse(row["ruled_out_by"], f"law[{number}]")})
        for number, row in enumerate(messages.section("law"))
    )
