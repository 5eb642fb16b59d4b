"""A finding of lint: one place in a file that can't work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypedDict

from .prediction import Rule


@dataclass(frozen=True, order=True)
class Place:
    """A position in a file, counted from 1, in characters."""

    file: str
    line: int
    column: int


class FindingDocument(TypedDict):
    """A finding of lint as JSON."""

    file: Annotated[str, "The file."]
    line: Annotated[int, "Where it is, counted from 1."]
    column: Annotated[int, "In characters, counted from 1."]
    code: Annotated[Rule, "The [code](lint.md) of the rule."]
    message: Annotated[str, "One sentence without a full stop."]
    fix: Annotated[str, "What to write instead, as sentences; empty if the message says it."]
    fact: Annotated[str, "The [fact](facts.md) that it is based on."]
    source: Annotated[str, "Where the fact was read."]


@dataclass(frozen=True, order=True)
class Finding:
    """One thing that can't work, at the pin or statement to change.

    code: that of the rule of `compat`. message: one sentence without a full stop. fix: what to write instead,
    as sentences; empty if the message says it. fact, source: as in `Reason`.
    """

    place: Place
    code: Rule
    message: str
    fix: str
    fact: str
    source: str

    def as_json(self) -> FindingDocument:
        return {
            "file": self.place.file,
            "line": self.place.line,
            "column": self.place.column,
            "code": self.code,
            "message": self.message,
            "fix": self.fix,
            "fact": self.fact,
            "source": self.source,
        }
