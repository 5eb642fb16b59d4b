"""The report of one run of the probe. The probe writes it as JSON; the host side reads it here.

docs/reference/report.md describes the format. Reports of format 2 hold codes with typed fields; reports of
format 1 hold a sentence for each check.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeVar

import msgspec

from .. import problems
from . import codec
from .codec import DocumentError
from .evidence import BY_CHECK, CudaLibraries, CudnnLoad, Evidence
from .facts import Environment, Host

#: The format that the probe writes. It changes when a reader of the older format would misread the newer one.
FORMAT = 2
#: The older format, which is still read.
FORMAT_WITH_SENTENCES = 1

E = TypeVar("E", bound=Evidence)


class ReportError(ValueError):
    """The text is not a probe's report, or has a format that this version can't read."""


class CheckOutcome(str, Enum):
    """`error`: the check itself has a fault. `crash` and `timeout`: how its process ended."""

    PASS = "pass"
    FAIL = "fail"
    SKIP = "skip"
    ERROR = "error"
    TIMEOUT = "timeout"
    CRASH = "crash"


class Finding(msgspec.Struct, frozen=True):
    """A statement or a problem of a check: a code of `validator/problems.py` with the fields listed there.

    severity: `fault` or `advisory`; None for a statement. entry: the whole object, fields included.
    """

    code: str
    severity: str | None = None
    entry: dict[str, Any] = {}


class CheckResult(msgspec.Struct, frozen=True):
    """One question asked inside the environment, and its answer.

    stage: `host` or `tensorflow`. required: True if the check must pass for certification.
    statement: what the check says when it did not fail, or how it ended. problems: what it found wrong.
    document: the check as the probe wrote it.
    """

    id: str
    outcome: CheckOutcome
    required: bool = False
    stage: str = "host"
    duration_s: float = 0.0
    summary: str | None = None
    statement: Finding | None = None
    problems: tuple[Finding, ...] = ()
    evidence: Evidence = Evidence()
    document: dict[str, Any] = {}

    @property
    def sentence(self) -> str:
        """The findings of the check, as one line for people."""
        return problems.summary(self.document) if self.summary is None else self.summary

    @property
    def went_wrong(self) -> bool:
        """True if it neither passed nor was skipped."""
        return self.outcome not in (CheckOutcome.PASS, CheckOutcome.SKIP)

    def recorded(self) -> dict[str, Any]:
        """Return the part of the check that a record holds."""
        said = (
            {"statement": self.document.get("statement"), "problems": self.document.get("problems", [])}
            if self.summary is None
            else {"summary": self.summary}
        )
        return {
            "id": self.id,
            "outcome": self.outcome.value,
            **said,
            "required": self.required,
            "evidence": self.evidence.raw,
            "duration_s": self.duration_s,
        }


class Probe(msgspec.Struct, frozen=True):
    """The program that wrote the report."""

    version: str


class Logs(msgspec.Struct, frozen=True):
    """The beginning and the end of what the processes of each stage printed."""

    host_stderr: str | None = None
    tensorflow_stderr: str | None = None


class Report(msgspec.Struct, frozen=True):
    """A report. started, finished: ISO 8601. fixture: True if a test made it up; it proves nothing.

    challenge: what the probe was asked to repeat (validator/model/measurement.py); None if there was no
    challenge.
    raw: the document as the probe wrote it, for those who store or print it.
    """

    format: int
    probe: Probe
    started: str
    finished: str
    host: Host
    environment: Environment
    checks: tuple[CheckResult, ...]
    logs: Logs = Logs()
    fixture: bool = False
    challenge: str | None = None
    raw: dict[str, Any] = {}

    def check(self, identifier: str) -> CheckResult | None:
        """Return the result of one check, or None when the probe did not run it."""
        return next((check for check in self.checks if check.id == identifier), None)

    def evidence(self, kind: type[E]) -> E:
        """Return the evidence of a check; it is empty when the probe did not run the check."""
        check = self.check(kind.check)
        return check.evidence if check is not None and isinstance(check.evidence, kind) else kind()


def read_report(data: bytes | str) -> Report:
    """Read a report from JSON. Raises ReportError with the place and the reason."""
    try:
        return _report(codec.parse(data))
    except DocumentError as error:
        raise ReportError(str(error)) from None


def report_of(document: object) -> Report:
    """Read a report from parsed JSON, such as a record's. Raises ReportError with place and reason."""
    try:
        codec.check_limits(document)
        return _report(document)
    except DocumentError as error:
        raise ReportError(str(error)) from None


def check_of(document: object, where: str = "check") -> CheckResult:
    """Read a check from a record, of either format. Raises ReportError with the place and the reason."""
    try:
        sentences = isinstance(document, dict) and "summary" in document
        return _check(document, where, FORMAT_WITH_SENTENCES if sentences else FORMAT)
    except DocumentError as error:
        raise ReportError(str(error)) from None


def _report(document: object) -> Report:
    top = codec.convert(document, dict[str, Any], "the report")
    found = top.get("format")
    if found not in (FORMAT, FORMAT_WITH_SENTENCES) or isinstance(found, bool):
        raise ReportError(
            f"the report has format {found!r}; this version reads {FORMAT_WITH_SENTENCES} and {FORMAT}"
            " (use the probe that this version ships, or the version that made the report)"
        )
    entries = codec.convert(top.get("checks"), list[Any], "checks")
    checks = tuple(_check(entry, f"checks[{number}]", found) for number, entry in enumerate(entries))
    parts = {**top, "checks": checks, "raw": top}
    if found == FORMAT_WITH_SENTENCES:
        parts["logs"] = _logs_of_any_shape(top.get("logs"))
    return codec.convert(parts, Report)


def _logs_of_any_shape(document: object) -> Logs:
    return codec.convert_what_fits(document if isinstance(document, dict) else {}, Logs)


def _check(entry: object, where: str, format_: int) -> CheckResult:
    document = codec.convert(entry, dict[str, Any], where)
    parts = {**document, "document": document, "evidence": {}}
    if format_ == FORMAT_WITH_SENTENCES:
        parts |= {"statement": None, "problems": (), "summary": document.get("summary")}
        codec.convert(parts["summary"], str, f"{where}.summary")
    else:
        parts |= {"summary": None, **_findings(document, where)}
    check = codec.convert(parts, CheckResult, where)
    return msgspec.structs.replace(check, evidence=_evidence(document, where, format_))


def _findings(document: Mapping[str, Any], where: str) -> dict[str, Any]:
    statement = document.get("statement")
    entries = codec.convert(document.get("problems", []), list[Any], f"{where}.problems")
    return {
        "statement": None if statement is None else _finding(statement, f"{where}.statement"),
        "problems": tuple(
            _finding(entry, f"{where}.problems[{number}]") for number, entry in enumerate(entries)
        ),
    }


def _finding(entry: object, where: str) -> Finding:
    fields = codec.convert(entry, dict[str, Any], where)
    return codec.convert({**fields, "entry": fields}, Finding, where)


def _evidence(document: Mapping[str, Any], where: str, format_: int) -> Evidence:
    found = codec.convert(document.get("evidence", {}), dict[str, Any], f"{where}.evidence")
    kind = BY_CHECK.get(str(document.get("id")), Evidence)
    fields = {**found, "raw": found}
    if format_ == FORMAT_WITH_SENTENCES:
        # Evidence of any shape was accepted.
        return codec.convert_what_fits(fields, kind)
    return codec.convert(fields, kind, f"{where}.evidence")


def versions_of(report: Report) -> dict[str, str]:
    """Return the versions that the probe found, never those that were requested.

    `python`, `tensorflow`, `cuda` (the runtime library's), `cudnn`; what was not found is left out.
    """
    libraries = report.evidence(CudaLibraries).libraries or ()
    cudnn = report.evidence(CudnnLoad).library
    found = {
        "python": report.environment.python,
        "tensorflow": report.environment.tensorflow,
        "cuda": next((entry.version for entry in libraries if "libcudart" in (entry.soname or "")), None),
        "cudnn": cudnn.version if cudnn else None,
    }
    return {name: version for name, version in found.items() if version}
