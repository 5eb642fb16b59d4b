"""Read a probe's report into observations: fields and problems by `data/report.yaml`, logs like any text."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from .. import problems
from ..conditions import Comparison, Language
from ..model.diagnosis import shortened
from ..model.report import CheckResult, Finding, Report
from .catalogue import FAULT, UNRECOGNIZED, Catalogue, completed, section
from .observations import WIDTH, Observation, Observations
from .read_log import observe
from .text import read_text

#: The text of an absent value. Only a pattern that is exactly this text matches it.
_NULL = "null"
#: What the probe writes around a check and around what it provokes (`section` in validator/probe/child.py).
_MARK = re.compile(r"\[probe (begin|end): (check|provoked by) (\S+)\]$")
_PROVOKED = re.compile(
    r"triggered tf\.function retracing|unsupported operations .*\bPyFunc\b"
    r"|tf2xla conversion failed while converting __inference_one_step_on_data_\d+\["
)
#: The main value of a problem in conditions.
_CODE = "code"


@dataclass(frozen=True)
class FieldRow:
    """A field of the report that shows something.

    path: names joined by dots; `*` is every entry of a list or every key.
    pattern: for the whole text of the field (`null`, `true`, a number, a string); named groups are values.
    key: the name of the value that holds the key that the last `*` stands for.
    """

    kind: str
    path: tuple[str, ...]
    pattern: str
    values: Mapping[str, str]
    key: str


@dataclass(frozen=True)
class ProblemRow:
    """Problems of a check that show something.

    when: a condition on one problem: the kind is its check, the values are its fields, its code and the
    outcome of the check. fields: name of the value -> name of the field.
    """

    kind: str
    when: Comparison
    values: Mapping[str, str]
    fields: Mapping[str, str]

    def matches(self, problem: _Problem) -> bool:
        """Return whether a problem is one of these. A statement is one only if the condition has a code."""
        if problem.check.id != self.when.kind or (problem.is_statement and _CODE not in self.when.values):
            return False
        fields = {name: _text(value) for name, value in problem.finding.entry.items()}
        outcome = problem.check.outcome.value
        return bool(self.when.accepts({**fields, _CODE: problem.finding.code, "outcome": outcome}))


@dataclass(frozen=True)
class _Problem:
    """A problem or a statement of a check. where: its place in the report."""

    check: CheckResult
    finding: Finding
    where: str
    is_statement: bool = False


def observe_report(report: Report, catalogue: Catalogue) -> Observations:
    """Return everything that the report shows."""
    observations = Observations()
    for row in field_rows():
        for value, where in _places(report.raw, row.path):
            observation = _of_field(row, value, where)
            if observation is not None:
                observations.add(observation)
    reported = [problem for check in report.checks for problem in _problems_of(check)]
    for problem_row in problem_rows():
        for problem in reported:
            if problem_row.matches(problem):
                observations.add(_of_problem(problem_row, problem))
    for where, text in _printed(report, reported):
        for observation in observe(read_text(text), catalogue, where):
            # Lines that no pattern recognizes are left out, because the check itself reports what went wrong.
            if observation.kind not in (UNRECOGNIZED, FAULT):
                observations.add(observation)
    for check in report.checks:
        outcome = check.outcome.value
        if check.went_wrong:
            kind, text, values = "check_not_passed", f"{outcome}: {check.sentence}", {"outcome": outcome}
        elif outcome == "pass":
            kind, text, values = "check_passed", check.sentence, {}
        else:
            continue
        shown = shortened(f"{check.id}: {text}", WIDTH)
        values = {"check": check.id, **values}
        observations.add(Observation(kind, MappingProxyType(values), shown, f"checks.{check.id}"))
    return observations


def _problems_of(check: CheckResult) -> Iterator[_Problem]:
    """Yield the statement of a check, and its problems."""
    if check.statement is not None:
        yield _Problem(check, check.statement, f"checks.{check.id}.statement", is_statement=True)
    for number, finding in enumerate(check.problems):
        yield _Problem(check, finding, f"checks.{check.id}.problems[{number}]")


def _printed(report: Report, reported: Sequence[_Problem]) -> Iterator[tuple[str, str]]:
    """Yield the output of other software with its place: the logs, and what failed checks caught of it."""
    printed = {
        "logs.host_stderr, ": without_provoked(report.logs.host_stderr or ""),
        "logs.tensorflow_stderr, ": without_provoked(report.logs.tensorflow_stderr or ""),
    }
    for check in report.checks:
        if check.went_wrong:
            quoted = [text for problem in reported if problem.check is check for text in _quoted(problem)]
            printed[f"checks.{check.id}, "] = "\n".join([*quoted, *check.evidence.printed])
    yield from ((where, text) for where, text in printed.items() if text.strip())


def _quoted(problem: _Problem) -> Iterator[str]:
    """Yield the fields of a problem that hold text that other software printed or raised."""
    kind = problems.CATALOGUE.get(problem.finding.code)
    for name, type_ in (kind.fields if kind else {}).items():
        value = problem.finding.entry.get(name)
        if type_.rstrip("?") == "quoted" and isinstance(value, str):
            yield value


def without_provoked(log: str) -> str:
    """Return the log of a probe without the lines that its checks provoked; those left keep their numbers.

    Three things count as provoked: the lines between the probe's two marks; the warning about retracing,
    because each function is traced in every mode; and, up to probe 2.2, which wrote no marks, XLA's refusal
    of a step that calls Python, which tells the probe that XLA compiles at all. A check may print such marks
    itself, or die before the second one. So a section counts only if it is complete, and names the check
    around it.
    """
    lines = log.split("\n")
    check: str | None = None
    begun: tuple[int, str] | None = None
    provoked: set[int] = set()
    for number, line in enumerate(lines):
        mark = _MARK.search(line)
        if mark is None:
            continue
        edge, kind, name = mark.groups()
        if kind == "check":
            check, begun = name if edge == "begin" else None, None
        elif edge == "begin":
            begun = (number, name) if check in (None, name) else None
        else:
            if begun is not None and begun[1] == name:
                provoked.update(range(begun[0] + 1, number))
            begun = None
    return "\n".join(
        "" if number in provoked or _PROVOKED.search(line) else _MARK.sub("", line)
        for number, line in enumerate(lines)
    )


@functools.cache
def field_rows() -> tuple[FieldRow, ...]:
    """Return the rows that are about fields."""
    return tuple(
        FieldRow(
            kind=row["kind"],
            path=tuple(row["field"].split(".")),
            pattern=row["pattern"],
            values=row.get("values", {}),
            key=row.get("key", ""),
        )
        for row in section("report")
        if "field" in row
    )


@functools.cache
def problem_rows() -> tuple[ProblemRow, ...]:
    """Return the rows that are about problems of checks."""
    language = Language(default_main=_CODE)
    return tuple(
        ProblemRow(
            kind=row["kind"],
            when=language.comparison(row["when"], row["kind"]),
            values=row.get("values", {}),
            fields=row.get("fields", {}),
        )
        for row in section("report")
        if "when" in row
    )


def _of_problem(row: ProblemRow, problem: _Problem) -> Observation:
    entry = {**problem.finding.entry, _CODE: problem.finding.code}
    fields = {
        "problem": problem.finding.code,
        # A statement has no severity.
        "severity": entry.get("severity") or None,
        "sentence": problems.clause(entry) or None,
        **{name: entry.get(field) for name, field in row.fields.items()},
    }
    values = {name: _text(value) for name, value in fields.items() if value is not None}
    shown = shortened(problems.sentence(entry), WIDTH)
    return Observation(row.kind, MappingProxyType({**values, **row.values}), shown, problem.where)


def _of_field(row: FieldRow, value: Any, where: str) -> Observation | None:
    if value is None and row.pattern != _NULL:
        return None
    text = _text(value)
    match = re.fullmatch(row.pattern, text, re.DOTALL | re.ASCII)
    if match is None:
        return None
    groups = {name: group for name, group in match.groupdict().items() if group is not None}
    if row.key:
        groups[row.key] = where.rpartition(".")[2]
    shown = completed(row.kind, MappingProxyType({**row.values, **groups}))
    return Observation(row.kind, shown, shortened(text, WIDTH), where)


def _places(document: Any, path: tuple[str, ...], where: str = "") -> Iterator[tuple[Any, str]]:
    """Yield each value at a path, and its place."""
    if not path:
        yield document, where
        return
    name, rest = path[0], path[1:]
    if isinstance(document, dict):
        for key in [key for key in document if name in ("*", key)]:
            yield from _places(document[key], rest, f"{where}.{key}".lstrip("."))
    elif isinstance(document, list) and name == "*":
        for number, entry in enumerate(document):
            yield from _places(entry, rest, f"{where}[{number}]")


def _text(value: Any) -> str:
    if value is None:
        return _NULL
    if isinstance(value, bool):
        return str(value).lower()
    # Bytes of a path or a variable that were not text are surrogates, which can't be encoded.
    return str(value).encode(errors="backslashreplace").decode()
