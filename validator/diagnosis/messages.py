"""The messages that software prints (`messages:` in `data/`): which line shows which kind of thing."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from . import commands
from .observations import Certainty
from .patterns import AllOf, Pattern, finder

# Read the data that the diagnosis is made with. It is compiled from the YAML files in `data/`.


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


# Complete the code and the name of a CUDA error: a log has one of them, or the name in CUDA's runtime.


#: The kind of observations of CUDA errors. Their value `place` says where: `cuinit`, `init` (another start of
#: CUDA) or `image` (the entry point of an image); it is absent for any other call.
CUDA_ERROR = "cuda_error"
CUINIT = "cuinit"


def completed(kind: str, values: Mapping[str, str]) -> Mapping[str, str]:
    """Return the values of an observation. A CUDA error gets its code and the name of the driver API, if they
    are known."""
    if kind != CUDA_ERROR:
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
    needs: AllOf = ()


class Catalogue:
    """Match lines against all messages.

    outside: the kinds that do not explain the line that they are in.
    """

    def __init__(self, messages: tuple[Message, ...]) -> None:
        self.messages = messages
        self.outside = {FAULT, *commands.KINDS, *(message.kind for message in messages if message.fact)}
        self._finder = finder(
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
        as `fault` if it does, and not at all if what it shows is harmless. A CUDA error in a harmless line
        does not count, and neither do a version of CUDA that it advises and words that fit a cause.
        """
        matching = [self.messages[position] for position in self._finder.matching(line)]
        if any(message.harmless for message in matching):
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
