"""Read the facts. Every row is a fact with an identifier, a status and its sources.

People edit `data/*.yaml`, which `scripts/compile-data` turns into the one JSON file that is read here. The
modules with the rules make typed tables of their rows.
"""

from __future__ import annotations

import bisect
import datetime
import functools
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..model.prediction import Outcome, Rank, Reason, Rule
from ..resources import newest_source
from ..versions import Version

# Errors for names that the facts do not know, each with the nearest known ones.


class UnknownNameError(InputError, ValueError):
    """A name or version that the facts do not know. nearest: the nearest known ones, best first."""

    def __init__(self, message: str, nearest: tuple[str, ...] = (), *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.nearest = nearest


class UnknownRelease(UnknownNameError):
    """A TensorFlow release of an unknown minor version."""


class UnknownGpu(UnknownNameError):
    """A GPU with an unknown name."""


class UnknownDriver(UnknownNameError):
    """A driver of a branch whose number is too great for a branch that may be released."""


class PolicyError(UnknownNameError):
    """A CUDA or cuDNN policy that a release can't be built with. axis: `cuda` or `cudnn`."""

    def __init__(self, axis: str, message: str, nearest: tuple[str, ...] = ()) -> None:
        super().__init__(message, nearest)
        self.axis = axis


def nearest_versions(asked: str, known: Iterable[str], count: int = 3) -> tuple[str, ...]:
    """Return the nearest known versions, by places in their sorted list; for a word, the newest ones."""
    ordered = sorted(dict.fromkeys(known), key=Version)
    try:
        place = bisect.bisect_left(ordered, Version(asked), key=Version)
    except ValueError:
        # Not a version (InvalidVersion), or one with more digits than Python converts.
        place = len(ordered)
    # The version lies between two indexes, so the one below and the one above are equally near.
    ranked = sorted(range(len(ordered)), key=lambda index: (abs(index - (place - 0.5)), -index))
    return tuple(ordered[index] for index in ranked[:count])


def nearest_clause(nearest: tuple[str, ...]) -> str:
    """Return `; the nearest is 12.5` or `; the nearest are 9.28, 9.27`; nothing if there is none."""
    if not nearest:
        return ""
    return f"; the nearest {'is' if len(nearest) == 1 else 'are'} {', '.join(nearest)}"


#: One row of a data file. JSON has text for keys, so numbers that are keys in YAML are text here.
Row = dict[str, Any]

DATA = Path(__file__).parent / "data"
COMPILED = DATA / "compiled.json"

DERIVED = "derived"
UNVERIFIED = "unverified"
#: The ranks of evidence that rows can have as their status. No rule uses these rows.
MEASURED, REPORTED = Rank.MEASURED.value, Rank.REPORTED.value
#: The statuses of facts, most certain first. The last two never decide an outcome by themselves.
STATUSES = (MEASURED, "verified", "verified-local", DERIVED, UNVERIFIED, REPORTED)
#: The compiled documents without a YAML file: `measurements/`, and what follows from all the others.
MEASUREMENTS = "measurements"
RECOMMENDED = "recommended"

#: An issue or pull request by repository and number. It needs no entry in sources.yaml.
_THREAD = re.compile(r"^[\w.-]+/[\w.-]+#\d+$")


@dataclass(frozen=True)
class Fact:
    """A fact that a reason is based on. source: where it was read, as one line that a person can follow."""

    id: str
    status: str
    source: str

    @property
    def decides(self) -> bool:
        """True if an outcome of `works` or `fails` may be based on this fact."""
        return self.status not in (UNVERIFIED, REPORTED)

    def with_(self, other: Fact) -> Fact:
        """Return this fact combined with another one: the less certain status, and the sources of both."""
        sources = dict.fromkeys((*self.source.split("; "), *other.source.split("; ")))
        return Fact(self.id, max(self.status, other.status, key=STATUSES.index), "; ".join(sources))

    def derived(self) -> Fact:
        """Return this fact for a conclusion from it that nobody has run on hardware."""
        return Fact(self.id, max(self.status, DERIVED, key=STATUSES.index), self.source)

    def works(self, text: str, *, mode: str | None = None) -> Reason:
        """Return a reason why it works. mode: as in `Reason`."""
        return self._reason(Outcome.WORKS, text, None, mode)

    def fails(self, text: str, rule: Rule, *, mode: str | None = None) -> Reason:
        """Return a reason why it fails. rule: the code of the rule that fails. mode: as in `Reason`."""
        return self._reason(Outcome.FAILS, text, rule, mode)

    def unknown(self, text: str, rule: Rule | None = None, *, mode: str | None = None) -> Reason:
        return self._reason(Outcome.UNKNOWN, text, rule, mode)

    def advises(self, text: str, *, mode: str | None = None) -> Reason:
        """Return a remark that does not change the outcome, whatever the status of the fact."""
        return Reason(Outcome.WORKS, text, self.id, self.source, self.status, True, None, mode)

    def _reason(self, outcome: Outcome, text: str, rule: Rule | None, mode: str | None) -> Reason:
        if not self.decides and outcome is not Outcome.UNKNOWN:
            # "X runs (not verified)" would read like a claim.
            text = f"{text} (not verified)"
            outcome = Outcome.UNKNOWN
        return Reason(outcome, text, self.id, self.source, self.status, False, rule, mode)


@functools.cache
def _documents() -> dict[str, dict[str, Any]]:
    content: dict[str, dict[str, Any]] = json.loads(COMPILED.read_bytes())
    return content


def rows(name: str, section: str) -> list[Row]:
    """Return the rows of one section of `data/<name>.yaml`. Raises KeyError for an unknown one."""
    found: list[Row] = _documents()[name][section]
    return found


def recommended(tensorflow: str) -> Row | None:
    """Return `cuda`, `cudnn` and `why` of the policy `recommended`; None for a release not in its table."""
    found: Row | None = _documents()[RECOMMENDED]["releases"].get(tensorflow)
    return found


def all_rows() -> Iterator[tuple[str, str, Row]]:
    """Yield every row of every file, with the names of its file and its section."""
    for name, document in _documents().items():
        for section, content in document.items():
            # The sources and the recommended versions are no facts, and not lists.
            if isinstance(content, list):
                yield from ((name, section, row) for row in content)


def fact(row: Row) -> Fact:
    """Return the identifier, status and sources of a row."""
    return Fact(row["id"], row["status"], "; ".join(source_line(key) for key in row["sources"]))


@functools.cache
def rule(name: str, identifier: str) -> Fact:
    """Return a fact that is a sentence and not a row of a table, by file and id. Raises KeyError."""
    known = {row["id"]: row for row in rows(name, "rules")}
    return fact(known[identifier])


@functools.cache
def source_line(key: str) -> str:
    """Return a source as a line that a person can follow. Raises KeyError for an unknown key."""
    if _THREAD.match(key):
        repository, number = key.split("#")
        return f"https://github.com/{repository}/issues/{number}"
    if key.startswith(f"{MEASUREMENTS}/"):
        return newest_source(key)
    line: str = _documents()["sources"][key]
    return line


def read_on() -> datetime.date:
    """Return the day on which the facts were last compared with the whole package index."""
    return min(datetime.date.fromisoformat(row["read"]) for row in rows("wheels", "cudnn"))
