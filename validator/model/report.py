"""What one probe run found. The probe writes it as JSON; this is how the host side reads it.

The format is described in docs/reference/report.md. `FORMAT` rises when a reader of the older one
would misread the newer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

FORMAT = 1


class ReportError(ValueError):
    """The text is not a probe's report, or one of a format that this version can't read."""


class CheckOutcome(str, Enum):
    """`error` is a fault of the check itself, `crash` and `timeout` are what the process did."""

    PASS = "pass"
    FAIL = "fail"
    SKIP = "skip"
    ERROR = "error"
    TIMEOUT = "timeout"
    CRASH = "crash"


@dataclass(frozen=True)
class CheckResult:
    """One question asked inside the environment, and its answer.

    required: whether certification needs it to pass.
    summary: one sentence for a person; for `skip` it is the reason.
    evidence: what was seen, as JSON.
    """

    id: str
    outcome: CheckOutcome
    summary: str
    required: bool = False
    evidence: dict[str, Any] = field(default_factory=dict)
    duration_s: float = 0.0

    def as_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "outcome": self.outcome.value,
            "summary": self.summary,
            "required": self.required,
            "evidence": self.evidence,
            "duration_s": self.duration_s,
        }


@dataclass(frozen=True)
class Report:
    """Everything one probe run found. `raw` is the document as the probe wrote it."""

    probe_version: str
    started: str
    finished: str
    host: dict[str, Any]
    environment: dict[str, Any]
    checks: tuple[CheckResult, ...]
    raw: dict[str, Any]

    @classmethod
    def from_json(cls, document: object) -> Report:
        """Read a report. Raises ReportError saying what is missing or of another type."""
        top = _expect(document, dict, "the report")
        found = top.get("format")
        if found != FORMAT:
            raise ReportError(
                f"the report has format {found!r}; this version reads format {FORMAT}"
                " (use the probe that this version ships, or the version that made the report)"
            )
        checks = [
            check_of_json(entry, f"checks[{number}]")
            for number, entry in enumerate(_expect(top.get("checks"), list, "checks"))
        ]
        return cls(
            probe_version=_expect(
                _expect(top.get("probe"), dict, "probe").get("version"), str, "probe.version"
            ),
            started=_expect(top.get("started"), str, "started"),
            finished=_expect(top.get("finished"), str, "finished"),
            host=_host(top.get("host")),
            environment=_environment(top.get("environment")),
            checks=tuple(checks),
            raw=top,
        )

    def check(self, identifier: str) -> CheckResult | None:
        """The result of one check, or None when the probe did not run it."""
        return next((check for check in self.checks if check.id == identifier), None)


def check_of_json(entry: object, where: str = "check") -> CheckResult:
    """The inverse of `CheckResult.as_json`. Raises ReportError naming the place."""
    fields = _expect(entry, dict, where)
    outcome = _expect(fields.get("outcome"), str, f"{where}.outcome")
    if outcome not in {member.value for member in CheckOutcome}:
        raise ReportError(f'{where}.outcome: "{outcome}" is not an outcome')
    return CheckResult(
        id=_expect(fields.get("id"), str, f"{where}.id"),
        outcome=CheckOutcome(outcome),
        summary=_expect(fields.get("summary"), str, f"{where}.summary"),
        required=_expect(fields.get("required", False), bool, f"{where}.required"),
        evidence=_expect(fields.get("evidence", {}), dict, f"{where}.evidence"),
        duration_s=_number(fields.get("duration_s", 0.0), f"{where}.duration_s"),
    )


def _host(value: object) -> dict[str, Any]:
    host: dict[str, Any] = _expect(value, dict, "host")
    for number, gpu in enumerate(_expect(host.get("gpus", []), list, "host.gpus")):
        _expect(gpu, dict, f"host.gpus[{number}]")
    return host


def _environment(value: object) -> dict[str, Any]:
    environment: dict[str, Any] = _expect(value, dict, "environment")
    packages: dict[str, Any] = _expect(environment.get("packages", {}), dict, "environment.packages")
    for name, version in packages.items():
        _expect(version, str, f"environment.packages.{name}")
    return environment


def _number(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ReportError(f"{where}: expected a number, found {type(value).__name__}")
    return float(value)


def _expect(value: object, kind: type, where: str) -> Any:
    if not isinstance(value, kind):
        raise ReportError(f"{where}: expected {kind.__name__}, found {type(value).__name__}")
    return value
