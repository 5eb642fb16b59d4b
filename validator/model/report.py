"""The report of one run of the probe. The probe writes it as JSON; the host side reads it here.

docs/reference/report.md lists the fields with the descriptions that are here. A check holds codes with typed
fields, no sentences.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from .. import problems
from . import codec
from .codec import DocumentError
from .evidence import BY_CHECK, CudaLibraries, CudnnLoad, Evidence
from .facts import Environment, Host
from .prediction import Limit

#: The format that the probe writes. It changes when a reader of the older format would misread the newer one.
FORMAT = 2

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

    severity: `fault`, `advisory` or `limit`; None for a statement. entry: the whole object, fields included.
    """

    code: str
    severity: str | None = None
    entry: dict[str, Any] = {}


def _is_limit(found: Finding) -> bool:
    """Return True if a problem has a limit's code and its fields. Reports can call any problem a limit."""
    kind = problems.CATALOGUE.get(found.code)
    told = all(isinstance(found.entry.get(name), str) for name in ("gpu", "error"))
    return told and kind is not None and kind.severity == problems.LIMIT


class CheckResult(msgspec.Struct, frozen=True):
    """One question asked inside the environment, and its answer.

    document: the check as the probe wrote it.
    """

    id: Annotated[str, Meta(description="Which check it is.")]
    outcome: Annotated[
        CheckOutcome,
        Meta(
            description="`pass`; `fail`; `skip`; `error`: a fault of the check itself; `timeout`; `crash`:"
            " the process ended in the middle of it."
        ),
    ]
    stage: Annotated[
        str,
        Meta(
            description="`host` checks run without TensorFlow, `tensorflow` checks in the process that"
            " imported it, `own` checks look at what was added to the image, after both and each in a process"
            " of its own, `end` checks after all others."
        ),
    ] = "host"
    title: Annotated[str, Meta(description="What it asks.")] = ""
    required: Annotated[
        bool,
        Meta(description="Whether the check must pass for certification. `skip` is not a pass."),
    ] = False
    depth: Annotated[
        str,
        Meta(description="`quick` checks always run, `full` checks only with `--depth full` or when named."),
    ] = "quick"
    requires: Annotated[
        tuple[str, ...],
        Meta(
            description="What must exist for the question to make sense: `gpu`, `cuda-build`, `lock`, or"
            " `device` (a GPU and a build with CUDA, or a lock with `tensorflow-cpu`). Without it, the check"
            " is skipped."
        ),
    ] = ()
    limit_s: Annotated[float, Meta(description="The seconds after which the check is stopped.")] = 0.0
    statement: Annotated[
        Finding | None,
        Meta(
            description="A [code](../../validator/problems.json) with its fields: what passed, why the check"
            " was skipped, or how it ended; null for `fail`."
        ),
    ] = None
    problems: Annotated[
        tuple[Finding, ...],
        Meta(
            description="What the check found wrong: each a `code`, a `severity` (`fault`, `advisory` or"
            " `limit`) and the fields of the code. A check fails if one of them is a fault."
        ),
    ] = ()
    evidence: Annotated[
        Evidence,
        Meta(
            description="What was seen. After an exception: its `traceback`. After a `crash`: the `signal`"
            " or exit `status`, and the `last_lines` that were printed. After a `timeout`: where it hung."
        ),
    ] = Evidence()
    duration_s: Annotated[float, Meta(description="The seconds it took.")] = 0.0
    document: dict[str, Any] = {}

    @property
    def sentence(self) -> str:
        """The findings of the check, as one line for people."""
        return problems.summary(self.document)

    @property
    def limits(self) -> tuple[Limit, ...]:
        """What failed only in full float32. A check that did not pass has none: what fails by default is a
        fault."""
        if self.outcome is not CheckOutcome.PASS:
            return ()
        return tuple(
            Limit(entry.code, entry.entry["gpu"], entry.entry["error"])
            for entry in self.problems
            if entry.severity == problems.LIMIT and _is_limit(entry)
        )

    @property
    def went_wrong(self) -> bool:
        """True if it neither passed nor was skipped."""
        return self.outcome not in (CheckOutcome.PASS, CheckOutcome.SKIP)

    def recorded(self) -> dict[str, Any]:
        """Return the part of the check that a record holds."""
        return {
            "id": self.id,
            "outcome": self.outcome.value,
            "statement": self.document.get("statement"),
            "problems": self.document.get("problems", []),
            "required": self.required,
            "evidence": self.evidence.raw,
            "duration_s": self.duration_s,
        }


class CheckDescription(msgspec.Struct, frozen=True):
    """A check that the probe can run, as its `--list` describes it.

    depth: `quick` or `full`. requires: what the question needs to make sense, such as `gpu`. limit_s: in
    seconds.
    """

    id: str
    stage: str
    title: str
    required: bool
    depth: str
    requires: tuple[str, ...]
    limit_s: int | float


class Probe(msgspec.Struct, frozen=True):
    """The program that wrote the report."""

    version: Annotated[
        str,
        Meta(
            description="The declared version, `+`, and a digest of the probe's sources"
            " (`2.3.0+0123456789ab`); `+source` if it ran from a source tree."
        ),
    ]


_PRINTED = Meta(description="What the processes of this stage printed, including standard output.")
_LENGTH = Meta(description="How many bytes that was.")


class Logs(msgspec.Struct, frozen=True):
    """The beginning and the end of what the processes of each stage printed."""

    host_stderr: Annotated[str | None, _PRINTED] = None
    host_stderr_bytes: Annotated[int | None, _LENGTH] = None
    tensorflow_stderr: Annotated[str | None, _PRINTED] = None
    tensorflow_stderr_bytes: Annotated[int | None, _LENGTH] = None
    own_stderr: Annotated[str | None, _PRINTED] = None
    own_stderr_bytes: Annotated[int | None, _LENGTH] = None
    end_stderr: Annotated[str | None, _PRINTED] = None
    end_stderr_bytes: Annotated[int | None, _LENGTH] = None
    truncated: Annotated[bool | None, Meta(description="Whether anything was left out.")] = None
    limit_bytes: Annotated[
        int | None,
        Meta(description="How much of each is kept, half from the start and half from the end."),
    ] = None


class Report(msgspec.Struct, frozen=True):
    """A report.

    fixture: True if a test made it up; it proves nothing.
    raw: the document as the probe wrote it, for those who store or print it.
    """

    format: Annotated[
        int,
        Meta(
            description="2. It is raised when a program that reads the older format would misread the newer"
            " one."
        ),
    ]
    probe: Annotated[Probe, Meta(description="The program that wrote the report.")]
    started: Annotated[str, Meta(description="UTC, ISO 8601.")]
    finished: Annotated[str, Meta(description="UTC, ISO 8601.")]
    host: Annotated[Host, Meta(description="The machine.")]
    environment: Annotated[Environment, Meta(description="The Python environment.")]
    checks: Annotated[tuple[CheckResult, ...], Meta(description="The outcomes, in the order of the checks.")]
    logs: Annotated[Logs, Meta(description="What the processes printed.")] = Logs()
    duration_s: Annotated[float | None, Meta(description="The seconds from start to end.")] = None
    challenge: Annotated[
        str | None,
        Meta(description="The text of `--challenge`, which the probe was asked to repeat, or null."),
    ] = None
    fixture: bool = False
    raw: dict[str, Any] = {}

    def check(self, identifier: str) -> CheckResult | None:
        """Return the result of one check, or None when the probe did not run it."""
        return next((check for check in self.checks if check.id == identifier), None)

    @property
    def limits(self) -> tuple[Limit, ...]:
        """What the checks saw fail only in full float32, in the order of the checks."""
        return tuple(limit for check in self.checks for limit in check.limits)

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
    """Read a check from a record. Raises ReportError with the place and the reason."""
    try:
        return _check(document, where)
    except DocumentError as error:
        raise ReportError(str(error)) from None


def _report(document: object) -> Report:
    top = codec.convert(document, dict[str, Any], "the report")
    found = top.get("format")
    if found != FORMAT or isinstance(found, bool):
        raise ReportError(
            f"the report has format {found!r}; this version reads {FORMAT}"
            " (use the probe that this version ships, or the version that made the report)"
        )
    entries = codec.convert(top.get("checks"), list[Any], "checks")
    checks = tuple(_check(entry, f"checks[{number}]") for number, entry in enumerate(entries))
    return codec.convert({**top, "checks": checks, "raw": top}, Report)


def _check(entry: object, where: str) -> CheckResult:
    document = codec.convert(entry, dict[str, Any], where)
    parts = {**document, "document": document, "evidence": {}, **_findings(document, where)}
    check = codec.convert(parts, CheckResult, where)
    return msgspec.structs.replace(check, evidence=_evidence(document, where))


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


def _evidence(document: Mapping[str, Any], where: str) -> Evidence:
    found = codec.convert(document.get("evidence", {}), dict[str, Any], f"{where}.evidence")
    kind = BY_CHECK.get(str(document.get("id")), Evidence)
    return codec.convert({**found, "raw": found}, kind, f"{where}.evidence")


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
