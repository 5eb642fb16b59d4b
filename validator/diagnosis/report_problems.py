"""List what the checks of a report found wrong, as codes with fields.

Reports of format 2 hold codes. Reports of format 1 hold a sentence for each check, which is not read here:
their codes come from the evidence and the outcomes of the checks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from .. import problems
from ..model.report import CheckOutcome, CheckResult, Finding, Report


@dataclass(frozen=True)
class ReportedProblem:
    """A problem or a statement of a check.

    code: empty if only the outcome of the check is known. fields: see validator/problems.json.
    where: its place in the report. stated: the sentence, where a report of format 1 has one for this problem.
    """

    check: str
    outcome: CheckOutcome
    code: str
    fields: Mapping[str, Any]
    where: str
    stated: str = ""
    is_statement: bool = False

    @property
    def severity(self) -> str:
        """`fault`, `advisory`, or nothing for a statement."""
        return str(self.fields.get("severity") or "")

    @property
    def clause(self) -> str:
        """The sentence without its subject; nothing if only the outcome is known."""
        return self.stated or (problems.clause({**self.fields, "code": self.code}) if self.code else "")

    @property
    def sentence(self) -> str:
        """The sentence, or the outcome if nothing else is known."""
        if self.stated or not self.code:
            return self.stated or self.outcome.value
        return problems.sentence({**self.fields, "code": self.code})

    @property
    def quoted(self) -> Iterator[str]:
        """The fields that hold text that other software printed or raised."""
        kind = problems.CATALOGUE.get(self.code)
        for name, type_ in (kind.fields if kind else {}).items():
            value = self.fields.get(name)
            if type_.rstrip("?") == "quoted" and isinstance(value, str):
                yield value


def problems_of(check: CheckResult, report: Report) -> Iterator[ReportedProblem]:
    """Yield the problems of a check, and its statement."""
    if check.summary is not None:
        yield from _problems_of_format_1(check, report)
        return
    if check.statement is not None:
        yield _problem(check, check.statement, f"checks.{check.id}.statement", is_statement=True)
    for number, finding in enumerate(check.problems):
        yield _problem(check, finding, f"checks.{check.id}.problems[{number}]")


def _problem(check: CheckResult, found: Finding, where: str, is_statement: bool = False) -> ReportedProblem:
    return ReportedProblem(check.id, check.outcome, found.code, found.entry, where, is_statement=is_statement)


def _problems_of_format_1(check: CheckResult, report: Report) -> Iterator[ReportedProblem]:
    found = [
        *_listed(check, "variables", variable="name"),
        *_listed(check, "problems"),
        *_from_libraries(check),
        *_from_cudnn(check),
        *_from_capabilities(check),
        *_from_tensorflow(check, report),
    ]
    yield from found
    if not found and check.outcome is CheckOutcome.FAIL:
        # Which problem it was is only in the sentence.
        yield ReportedProblem(check.id, check.outcome, "", {}, f"checks.{check.id}.outcome")


def _listed(check: CheckResult, name: str, **renamed: str) -> Iterator[ReportedProblem]:
    """Yield the problems that the evidence lists by code."""
    for number, entry in _entries(check, name):
        if isinstance(entry.get("problem"), str):
            where = f"checks.{check.id}.evidence.{name}[{number}].problem"
            fields = {**entry, **{new: entry.get(old) for new, old in renamed.items()}}
            yield ReportedProblem(
                check.id, check.outcome, entry["problem"], fields, where, str(entry.get("wrong") or "")
            )


def _from_libraries(check: CheckResult) -> Iterator[ReportedProblem]:
    """Yield the libraries that the loader did not open in the phase that decides whether GPUs are used."""
    if check.id != "cuda_libraries" or check.outcome is not CheckOutcome.FAIL:
        return
    for number, entry in _entries(check, "libraries"):
        soname, error, others = entry.get("soname"), entry.get("error"), entry.get("others")
        if entry.get("phase") != "gate" or not isinstance(error, str) or not isinstance(others, list):
            continue
        where = f"checks.{check.id}.evidence.libraries[{number}]"
        same = [path for path in others if PurePosixPath(str(path)).name == soname]
        if same:
            fields = {"soname": soname, "path": same[0]}
            yield _fault(check, "library_installed_not_found", fields, where)
        elif error.partition(":")[0] == soname:
            names = sorted({PurePosixPath(str(path)).name for path in others})
            yield _fault(check, "library_not_found", {"soname": soname, "others": names}, where)
        else:
            yield _fault(check, "library_not_opened", {"soname": soname, "error": error}, where)


def _from_cudnn(check: CheckResult) -> Iterator[ReportedProblem]:
    library = check.evidence.raw.get("library") if check.id == "cudnn_load" else None
    if isinstance(library, dict) and isinstance(library.get("error"), str):
        where = f"checks.{check.id}.evidence.library.error"
        yield _fault(check, "cudnn_not_loaded", {"error": library["error"]}, where)


def _from_capabilities(check: CheckResult) -> Iterator[ReportedProblem]:
    if check.id != "compute_capability":
        return
    for number, entry in _entries(check, "gpus"):
        if entry.get("kernels") == "none":
            fields = {"gpu": entry.get("name"), "compute_capability": entry.get("compute_capability")}
            where = f"checks.{check.id}.evidence.gpus[{number}]"
            yield _fault(check, "no_kernels_for_gpu", fields, where)


def _from_tensorflow(check: CheckResult, report: Report) -> Iterator[ReportedProblem]:
    """Yield why `tensorflow_build` has no evidence: it needs a TensorFlow that is built with CUDA."""
    if check.id != "tensorflow_build":
        return
    installed = report.environment.tensorflow is not None
    where = f"checks.{check.id}.outcome"
    if check.outcome is CheckOutcome.FAIL and not installed and not check.evidence.raw:
        stated = "TensorFlow is not installed"
        yield ReportedProblem(check.id, check.outcome, "tensorflow_missing", {}, where, stated)
    if check.outcome is CheckOutcome.SKIP and installed:
        yield ReportedProblem(
            check.id, check.outcome, "tensorflow_without_cuda", {}, where, is_statement=True
        )


def _entries(check: CheckResult, name: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    listed = check.evidence.raw.get(name)
    for number, entry in enumerate(listed if isinstance(listed, list) else ()):
        if isinstance(entry, dict):
            yield number, entry


def _fault(check: CheckResult, code: str, fields: Mapping[str, Any], where: str) -> ReportedProblem:
    return ReportedProblem(check.id, check.outcome, code, {**fields, "severity": problems.FAULT}, where)
