"""A finding of lint: one place in a file that can't work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .prediction import Rule


@dataclass(frozen=True, order=True)
class Place:
    """A position in a file, counted from 1, in characters."""

    file: str
    line: int
    column: int


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

    def as_json(self) -> dict[str, Any]:
        place = {"file": self.place.file, "line": self.place.line, "column": self.place.column}
        rest = ("code", "message", "fix", "fact", "source")
        return {**place, **{name: getattr(self, name) for name in rest}}
