"""The rule that turns a report into a verdict: the heart of the project.

`judge` asks five questions, in this order, and the first answer decides:

1. Did a required check go wrong? Then the cell is `failed`.
2. Was no GPU there? Then nothing is proven: `unproven`.
3. Did a required check not pass, since it was skipped or never ran? `unproven`.
4. Did the compiled training step run on something other than the GPU? `unproven`.
5. Was the report imported from elsewhere? It could have been edited, and no image digest belongs to it that a
   certificate could be about: `unproven`.

Otherwise the cell is `certified`. No flag or field of a report can say so: the verdict follows only from what
the checks saw. (`broken`, for an image that did not build, needs no report and is not decided here.)
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from .evidence import XlaTrainStep
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


class Reason(str, Enum):
    """The reason for a verdict. The first five are in the order in which they are asked."""

    CHECKS_WENT_WRONG = "checks_went_wrong"
    NO_GPU = "no_gpu"
    CHECKS_NOT_PASSED = "checks_not_passed"
    NOT_TRAINED_ON_GPU = "not_trained_on_gpu"
    IMPORTED = "imported"
    ALL_PASSED = "all_passed"


@dataclass(frozen=True)
class Judgement:
    """A verdict with what explains it.

    wrong: the required checks that went wrong. missing: ids of the required checks that did not pass.
    gpus: the models that were there. Each is given only for the reasons that are about it.
    """

    verdict: Verdict
    reason: Reason
    wrong: tuple[CheckResult, ...] = ()
    missing: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """The explanation for people, as records hold it."""
        passed = f"all required checks passed on {', '.join(self.gpus)}"
        return {
            Reason.CHECKS_WENT_WRONG: "; ".join(_told(check) for check in self.wrong),
            Reason.NO_GPU: "no GPU",
            Reason.CHECKS_NOT_PASSED: f"not passed: {', '.join(self.missing)}",
            Reason.NOT_TRAINED_ON_GPU: "the training step did not run on the GPU",
            Reason.IMPORTED: f"{passed}, according to an imported report",
            Reason.ALL_PASSED: passed,
        }[self.reason]


def judge(report: Report, origin: Origin = Origin.HERE) -> Judgement:
    """Return the verdict of a report. origin: where the report was made."""
    if wrong := tuple(check for check in report.checks if check.went_wrong and is_required(check)):
        return Judgement(Verdict.FAILED, Reason.CHECKS_WENT_WRONG, wrong=wrong)
    if not report.host.gpus:
        return Judgement(Verdict.UNPROVEN, Reason.NO_GPU)
    if missing := tuple(name for name in REQUIRED_CHECKS if not _passed(report, name)):
        return Judgement(Verdict.UNPROVEN, Reason.CHECKS_NOT_PASSED, missing=missing)
    if report.evidence(XlaTrainStep).device_type != "GPU":
        return Judgement(Verdict.UNPROVEN, Reason.NOT_TRAINED_ON_GPU)
    gpus = tuple(sorted(set(report.host.gpu_names)))
    if origin is Origin.ELSEWHERE:
        return Judgement(Verdict.UNPROVEN, Reason.IMPORTED, gpus=gpus)
    return Judgement(Verdict.CERTIFIED, Reason.ALL_PASSED, gpus=gpus)


def failed_checks(report: Report) -> list[CheckResult]:
    """Return every check that went wrong, required or not."""
    return [check for check in report.checks if check.went_wrong]


def is_required(check: CheckResult) -> bool:
    """Tell whether a check decides about the verdict."""
    # A report can add to the required checks; it can't take one of them away.
    return check.required or check.id in REQUIRED_CHECKS


def _passed(report: Report, name: str) -> bool:
    check = report.check(name)
    return check is not None and check.outcome is CheckOutcome.PASS


def _told(check: CheckResult) -> str:
    how = "" if check.outcome is CheckOutcome.FAIL else f" ({check.outcome.value})"
    return f"{check.id}{how}: {check.sentence}"
