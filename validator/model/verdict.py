"""The rule that turns a report into a verdict.

It trusts no flag: `certified` follows from what the checks saw and from nothing else, and a check that
is missing from the report counts as not passed.
"""

from __future__ import annotations

from dataclasses import dataclass

from .record import Origin, Verdict
from .report import CheckOutcome, CheckResult, Report

#: What must pass on a real GPU. The probe marks the same checks as required; a test compares the two.
REQUIRED_CHECKS = (
    "driver",
    "gpu_device_nodes",
    "environment",
    "python_stack",
    "cuda_libraries",
    "lock_match",
    "cudnn_load",
    "library_conflicts",
    "compute_capability",
    "tensorflow_build",
    "xla_toolchain",
    "gpu_visible",
    "gpu_compute",
    "xla_train_step",
    "silent_cpu",
)
_BAD = (CheckOutcome.FAIL, CheckOutcome.ERROR, CheckOutcome.TIMEOUT, CheckOutcome.CRASH)


@dataclass(frozen=True)
class Judgement:
    """A verdict with the sentence that explains it."""

    verdict: Verdict
    reason: str


def judge(report: Report, origin: Origin = Origin.HERE) -> Judgement:
    """The verdict of a report.

    A report that was brought from elsewhere is at most `unproven`: a file can be edited, and no image
    digest belongs to it that a certificate could be about.
    """
    bad = [check for check in report.checks if check.outcome in _BAD]
    required_bad = [check for check in bad if check.required or check.id in REQUIRED_CHECKS]
    if required_bad:
        return Judgement(Verdict.FAILED, "; ".join(_sentence(check) for check in required_bad))
    missing = [name for name in REQUIRED_CHECKS if not _passed(report, name)]
    if not report.host.get("gpus"):
        return Judgement(Verdict.UNPROVEN, "no GPU")
    if missing:
        return Judgement(Verdict.UNPROVEN, f"not passed: {', '.join(missing)}")
    if not _trained_on_gpu(report):
        return Judgement(Verdict.UNPROVEN, "the training step did not run on the GPU")
    names = ", ".join(sorted({str(gpu.get("name")) for gpu in report.host["gpus"]}))
    if origin is Origin.ELSEWHERE:
        return Judgement(
            Verdict.UNPROVEN, f"all required checks passed on {names}, says a report brought from elsewhere"
        )
    return Judgement(Verdict.CERTIFIED, f"all required checks passed on {names}")


def failed_checks(report: Report) -> list[CheckResult]:
    """Every check that failed, required or not."""
    return [check for check in report.checks if check.outcome in _BAD]


def _passed(report: Report, name: str) -> bool:
    check = report.check(name)
    return check is not None and check.outcome is CheckOutcome.PASS


def _trained_on_gpu(report: Report) -> bool:
    step = report.check("xla_train_step")
    return step is not None and step.evidence.get("device_type") == "GPU"


def _sentence(check: CheckResult) -> str:
    word = "" if check.outcome is CheckOutcome.FAIL else f" ({check.outcome.value})"
    return f"{check.id}{word}: {check.summary}"
