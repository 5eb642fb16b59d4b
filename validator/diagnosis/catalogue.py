"""The data of the diagnosis (`data/`): the messages of software, the causes that they show, and the fixes."""

from __future__ import annotations

import functools
import json
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..compat import known_issues
from ..conditions import AllOf, Condition, Find, Language
from . import commands, patterns
from .observations import Certainty, Observation, Observations, tensorflow
from .patterns import Pattern

#: The data that people edit, and the file that `python -m validator.diagnosis.compile` makes from it.
DATA = Path(__file__).parent / "data"
PATH = DATA / "compiled.json"


@functools.cache
def section(name: str) -> Any:
    """Return one part of the data: `messages`, `causes`, `law`, `places`, `report` or another one."""
    return _document()[name]


def table(name: str) -> dict[str, Any]:
    """Return one of the tables of `remedies.yaml`."""
    found: dict[str, Any] = section("tables")[name]
    return found


@functools.cache
def _document() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(PATH.read_bytes())
    return document


#: The kind of observations of CUDA errors. Their value `place` says where: `cuinit`, `init` (another start of
#: CUDA) or `image` (the entry point of an image); it is absent for any other call.
CUDA_ERROR = "cuda_error"
CUINIT = "cuinit"


def completed(kind: str, values: Mapping[str, str]) -> Mapping[str, str]:
    """Return the values of an observation. A CUDA error gets its code and the name of the driver API, if they
    are known. A CUDA number becomes a version: 13.0 for 13000."""
    if kind != CUDA_ERROR:
        if kind in ("cuda", "driver_cuda") and "number" in values:
            number = int(values["number"])
            return MappingProxyType({"version": f"{number // 1000}.{number % 1000 // 10}"})
        return values
    code = values.get("code") or _codes().get(values.get("name", ""))
    if code is None:
        return values
    name = _names().get(code)
    return MappingProxyType({**values, "code": code, **({"name": name} if name else {})})


@functools.cache
def _names() -> Mapping[str, str]:
    return {row["code"]: row["name"] for row in section("cuda_errors")}


@functools.cache
def _codes() -> Mapping[str, str]:
    """Return the code for each name of either API."""
    return {row[api]: row["code"] for row in section("cuda_errors") for api in ("name", "runtime")}


#: The kind of a line that reports a fault and matches nothing else.
UNRECOGNIZED = "unrecognized"
#: The kind of a line that reports a fault and matters only where no cause is found: a known message, the
#: first line of a traceback, or one of the lines before a crash.
FAULT = "fault"
#: The kind of a line in which people say in their own words what is wrong. `of` is the code of the cause.
SAID = "said"
#: The kinds of questions: those that people ask without a fault, and those that people with one ask too.
#: `of` is the key of the answers.
PLAIN_QUESTION, ASKED = "plain_question", "asked"
#: Kinds of words that count only if a person says them, not in a line that a program printed.
WORDS = (SAID, PLAIN_QUESTION, ASKED, "failure_said", "not_working_said", "hang_said")
#: The kind of a line with a command. `commands.py` says what it shows.
COMMAND = "command"
_FAULTS = (UNRECOGNIZED, FAULT)
#: The kind that is observed if somebody says that they want or have no GPU.
CPU_WANTED = "cpu_wanted"
#: The kind of a line that names an error of CUDA.
_ERROR = "cuda_error"


@dataclass(frozen=True)
class Message:
    """One family of messages.

    kind: what it shows. pattern: for one clean line; its named groups are values. values: fixed values.
    harmless: one sentence that says why it may be ignored; None if it may not.
    fact: it only describes the environment, so it does not explain the line that it is in.
    certainty: `stated` if people write it in their own words; a program prints it otherwise.
    wordless, words, needs: see `patterns.Pattern`.
    """

    kind: str
    pattern: str
    values: Mapping[str, str] = field(default_factory=dict)
    harmless: str | None = None
    fact: bool = False
    certainty: Certainty = Certainty.OBSERVED
    wordless: bool = False
    words: tuple[str, ...] = ()
    needs: patterns.AllOf = ()


class Catalogue:
    """Match lines against all messages.

    outside: the kinds that do not explain the line that they are in.
    """

    def __init__(self, messages: tuple[Message, ...]) -> None:
        self.messages = messages
        self.outside = {FAULT, *commands.KINDS, *(message.kind for message in messages if message.fact)}
        self._finder = patterns.finder(
            Pattern(message.pattern, message.wordless, message.words, message.needs) for message in messages
        )
        self._positions = {message.pattern: position for position, message in enumerate(messages)}
        self._as_fault = {
            message.pattern: replace(message, kind=FAULT) for message in messages if message.kind in _FAULTS
        }

    def may_show_anything(self, block: bytes) -> bool:
        """Return False only if no line of a block shows anything. One call for many lines saves time."""
        return self._finder.may_match(block)

    def matches(self, line: str) -> list[Message]:
        """Return the messages that a line shows, in the catalogue's order.

        If the line also reports a fault, that comes last: as `unrecognized` if the line shows nothing else,
        as `fault` if it does, and not at all if what it shows is harmless. A CUDA error in a harmless line of
        a program does not count, and neither do a version of CUDA that it advises and words that fit a cause.
        """
        matching = [self.messages[position] for position in self._finder.matching(line)]
        if any(one.harmless and one.certainty is not Certainty.STATED for one in matching):
            matching = [
                message
                for message in matching
                if message.kind not in (_ERROR, *WORDS)
                and (message.kind, message.certainty) != ("cuda", Certainty.STATED)
            ]
        told = [message for message in matching if message.kind not in _FAULTS]
        if len(told) == len(matching):
            return told
        fault = next(message for message in matching if message.kind in _FAULTS)
        explaining = [message for message in told if not message.fact]
        if not explaining:
            return [*told, fault]
        if any(message.harmless for message in explaining):
            return told
        return [*told, self._as_fault[fault.pattern]]

    def values(self, message: Message, line: str) -> Iterator[Mapping[str, str]]:
        """Yield the values of a message in a line that shows it, once for each different set of values."""
        position = self._positions[message.pattern]
        if not self._finder.has_groups(position):
            yield message.values
            return
        seen = []
        for match in self._finder.groups(position, line):
            groups = {name: value.strip() for name, value in match.items()}
            if groups not in seen:
                seen.append(groups)
                yield MappingProxyType({**message.values, **groups})


@functools.cache
def catalogue() -> Catalogue:
    """Return the catalogue of all known messages."""
    return Catalogue(_messages())


@functools.cache
def printed() -> Catalogue:
    """Return the catalogue of what programs print, without what people say. It is for long logs, in which the
    words of people take more time than all the rest."""
    return Catalogue(tuple(message for message in _messages() if message.certainty is not Certainty.STATED))


@functools.cache
def _messages() -> tuple[Message, ...]:
    return tuple(_message(row) for row in section("messages"))


def _message(row: Mapping[str, Any]) -> Message:
    certainty = Certainty(row.get("certainty", Certainty.OBSERVED))
    return Message(**{**row, "certainty": certainty, "words": tuple(row["words"])})


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
    """Return a function that finds observations by kind, or the concluded fact of a kind without any.

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
    return tuple(cause(row, language()) for row in section("causes"))


@functools.cache
def language() -> Language:
    """Return the language of the conditions in the data, with the named conditions."""
    return language_with(section("conditions"))


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
    for row in section("answers"):
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
        for number, row in enumerate(section("law"))
    )
