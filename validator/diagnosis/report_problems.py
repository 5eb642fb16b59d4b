"""List what the checks of a report found wrong, as codes with fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .. import problems
from ..model.report import CheckOutcome, CheckResult, Finding


@dataclass(frozen=True)
class ReportedProblem:
    """A problem or a statement of a check.

    fields: see validator/problems.json. where: its place in the report.
    """

    check: str
    outcome: CheckOutcome
    code: str
    fields: Mapping[str, Any]
    where: str
    is_statement: bool = False

    @property
    def severity(self) -> str:
        """`fault`, `advisory`, or nothing for a statement."""
        return str(self.fields.get("severity") or "")

    @property
    def clause(self) -> str:
        """The sentence without its subject."""
        return problems.clause({**self.fields, "code": self.code})

    @property
    def sentence(self) -> str:
        """The sentence."""
        return problems.sentence({**self.fields, "code": self.code})

    @property
    def quoted(self) -> Iterator[str]:
        """The fields that hold text that other software printed or raised."""
        kind = problems.CATALOGUE.get(self.code)
        for name, type_ in (kind.fields if kind else {}).items():
            value = self.fields.get(name)
            if type_.rstrip("?") == "quoted" and isinstance(value, str):
                yield value


def problems_of(check: CheckResult) -> Iterator[ReportedProblem]:
    """Yield the problems of a check, and its statement."""
    if check.statement is not None:
        yield _problem(check, check.statement, f"checks.{check.id}.statement", is_statement=True)
    for number, finding in enumerate(check.problems):
        yield _problem(check, finding, f"checks.{check.id}.problems[{number}]")


def _problem(check: CheckResult, found: Finding, where: str, is_statement: bool = False) -> ReportedProblem:
    return ReportedProblem(check.id, check.outcome, found.code, found.entry, where, is_statement=is_statement)
