"""The rule that turns a report into a verdict: the heart of the project.

`judge` asks these questions, in this order, and the first answer decides:

1. Was the GPU itself unhealthy, or shared with another process? Then a failure may not be the image's fault:
   `unproven`.
2. Did a required check go wrong? Then the cell is `failed`; if only the GPU's health is not known,
   `unproven`. Up to 2.2, the probe computed with TensorFloat-32 off, which users don't: if only checks that
   compute went wrong in such a report, nobody knows whether they do by default, so it is `unproven` and has
   to be measured again. Whatever else goes wrong there (the driver, libraries, variables, packages) counts.
3. Was there no GPU? Then nothing is proven: `unproven`.
4. Did a required check not pass because it was skipped or never ran? Was one reported twice? `unproven`.
5. Is the report from another version of the probe? Its checks may have required less: `unproven`.
6. Did a check compute on something other than the GPU? `unproven`.
7. Does the report lack the challenge that the probe was asked to repeat? Then it may be from another run:
   `unproven`.
8. Do the host and the report differ about the driver or the GPUs? `unproven`.
9. Was the report imported from elsewhere? It could have been edited, as could what `./measure` says about it
   where no runner signs: `unproven`. Was it made in a rehearsal (`build-matrix --rehearse`)? `unproven`.
10. Could the driver not be read on the host, outside the container? The image may have made up everything in
   the report: `unproven`.
11. Do only the labels of a node say what the host has, and nobody trusts those labels? `unproven`.

Otherwise the cell is `certified`. No flag or field of a report can say so: the verdict follows only from what
the checks saw in TensorFlow's defaults, so a limit (what fails only in full float32) decides nothing.
(`broken`, for an image that did not build, needs no report and is not decided here.)

An image of the variant `cpu` is never `certified`. The checks of CUDA, the driver and GPUs say nothing about
it, so they are left out, and the others must have computed on the CPU. Questions 2, 4, 5, 7 and 9 are asked
about it; if none of them decides, it is `works-on-cpu`, in a rehearsal too: it gets no certificate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum

import msgspec

from ..problems import FAULT
from ..versions import leading_numbers
from .prediction import CHECKS_OF_XLA, Outcome
from .record import REHEARSAL, Origin, Outside, Record, Source, Unread, Verdict
from .report import COMPUTING_CHECKS, CheckOutcome, CheckResult, Computed, Host, Report, ReportError
from .spec import Variant, variant_of

#: What must pass on a real GPU. The probe marks the same checks as required; a test compares the two.
REQUIRED_CHECKS = (
    "driver", "gpu_device_nodes", "environment", "python_stack", "cuda_libraries", "lock_match",
    "cudnn_load", "library_conflicts", "compute_capability", "tensorflow_build", "xla_toolchain",
    "gpu_visible", "gpu_compute", "xla_train_step", "silent_cpu", "xla_convolution", "keras_jit",
    "attention", "embedding", "cudnn_rnn", "data_feed", "save_load", "gpu_health",
)  # fmt: skip
#: The checks of CUDA, the driver and GPUs, which mean nothing for an image without CUDA. A test compares them
#: with what the probe's checks require.
OF_THE_GPU = frozenset({
    "driver", "gpu_device_nodes", "cuda_libraries", "cudnn_load", "library_conflicts", "compute_capability",
    "tensorflow_build", "xla_toolchain", "gpu_visible", "gpu_compute", "silent_cpu", "gpu_health",
})  # fmt: skip
#: What must pass on the CPU in an image without CUDA: all others, also those that are new.
REQUIRED_ON_CPU = tuple(name for name in REQUIRED_CHECKS if name not in OF_THE_GPU)
#: What they find is the machine's or the container's fault, and may have made other checks fail.
_OF_THE_MACHINE = frozenset({"environment", "gpu_device_nodes"})
#: It compares the wheels with a lock, and does not ask whether they work.
_LOCK = "lock_match"
#: The version of the probe that has these checks, without the digest of its sources. A test compares it with
#: the probe's.
PROBE_VERSION = "2.3.0"
#: The first probe that computes in TensorFlow's defaults, and the checks that the older ones ran in full
#: float32.
COMPUTES_AS_USERS_DO = (2, 3)
IN_FULL_FLOAT32 = frozenset({*COMPUTING_CHECKS, "gpu_compute", "silent_cpu"})
#: The check of the GPU itself: what it finds is not the image's fault.
HEALTH = "gpu_health"
#: Its findings that don't excuse other failed checks: an Xid message that a faulty program causes, and a GPU
#: whose health is not known.
_NO_EXCUSE = frozenset({"gpu_program_xid", "gpu_not_watched"})


class Reason(str, Enum):
    """The reason for a verdict. All but the last two are in the order in which they are asked."""

    GPU_NOT_HEALTHY = "gpu_not_healthy"
    CHECKS_WENT_WRONG = "checks_went_wrong"
    NO_GPU = "no_gpu"
    CHECKS_NOT_PASSED = "checks_not_passed"
    CHECKS_REPEATED = "checks_repeated"
    OTHER_PROBE = "other_probe"
    NOT_ON_GPU = "not_on_gpu"
    CHALLENGE_NOT_REPEATED = "challenge_not_repeated"
    HOST_DIFFERS = "host_differs"
    IMPORTED = "imported"
    REHEARSED = "rehearsed"
    HOST_NOT_READ = "host_not_read"
    LABELS_NOT_TRUSTED = "labels_not_trusted"
    ALL_PASSED = "all_passed"
    ALL_PASSED_ON_CPU = "all_passed_on_cpu"


@dataclass(frozen=True)
class Judgement:
    """A verdict with what explains it.

    wrong: the required checks that went wrong. missing: ids of the required checks that did not pass, were
    repeated, or did not compute on a GPU. not_run: those of `missing` without a result. gpus: the models that
    were there. probe: the version that made the report. unread: why the host was not read. differs: what the
    host and the report differ about, see `differences`. Each is given only for the reasons that are about it.
    """

    verdict: Verdict
    reason: Reason
    wrong: tuple[CheckResult, ...] = ()
    missing: tuple[str, ...] = ()
    not_run: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    probe: str = ""
    unread: Unread | None = None
    differs: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """The explanation for people, as records hold it."""
        passed = f"all required checks passed on {', '.join(self.gpus) or 'the CPU'}"
        missing = ", ".join(self.missing)
        ran, absent = ", ".join(n for n in self.missing if n not in self.not_run), ", ".join(self.not_run)
        not_passed = (ran and f"not passed: {ran}", absent and f"not run: {absent}")
        return {
            Reason.GPU_NOT_HEALTHY: f"the GPU is not healthy: {'; '.join(c.sentence for c in self.wrong)}",
            Reason.CHECKS_WENT_WRONG: "; ".join(_told(check) for check in self.wrong),
            Reason.NO_GPU: "no GPU",
            Reason.CHECKS_NOT_PASSED: "; ".join(filter(None, not_passed)),
            Reason.CHECKS_REPEATED: f"reported more than once: {missing}",
            Reason.OTHER_PROBE: f"the probe had version {self.probe}, not {PROBE_VERSION}: measure again",
            Reason.NOT_ON_GPU: f"not computed on the GPU: {missing}",
            Reason.IMPORTED: f"{passed}, according to an imported report",
            Reason.REHEARSED: f"{passed}, in a {REHEARSAL}, which proves nothing",
            Reason.CHALLENGE_NOT_REPEATED: f"{passed}, but the report does not repeat the challenge",
            Reason.HOST_NOT_READ: f"{passed}, according to the report; the host was not asked:"
            f" {self.unread.sentence if self.unread else ''}",
            Reason.HOST_DIFFERS: f"{passed}, according to the report, but the host has"
            f" {', '.join(self.differs)}",
            Reason.LABELS_NOT_TRUSTED: f"{passed}, according to the report; the host is known only from"
            " the labels of its node, which trust.yaml does not trust",
            Reason.ALL_PASSED: passed,
            Reason.ALL_PASSED_ON_CPU: passed,
        }[self.reason]


def judge(
    report: Report,
    origin: Origin = Origin.HERE,
    outside: Outside | Unread = Unread.NOT_ASKED,
    challenge: str | None = None,
    variant: Variant = Variant.GPU,
    also_required: tuple[str, ...] = (),
    *,
    labels_trusted: bool = False,
) -> Judgement:
    """Return the verdict of a report.

    origin: where the report was made. outside: the driver and the GPUs that were offered to the image, as
    read outside of it, or why they were not read. challenge: what the probe was asked to repeat, if anything.
    variant: of the image. also_required: see `own_checks.also_required`. labels_trusted: `trust.yaml` says
    that the labels of a node count for the runner that measured.
    """
    has_cuda = variant.has_cuda
    required = (*(REQUIRED_CHECKS if has_cuda else REQUIRED_ON_CPU), *also_required)
    about_checks = _judge_checks(report, required, has_cuda)
    if about_checks is not None:
        return about_checks
    gpus = tuple(sorted(set(report.host.gpu_names))) if has_cuda else ()

    def unproven(reason: Reason, *, unread: Unread | None = None, differs: tuple[str, ...] = ()) -> Judgement:
        return Judgement(Verdict.UNPROVEN, reason, gpus=gpus, unread=unread, differs=differs)

    if challenge is not None and report.challenge != challenge:  # 7
        return unproven(Reason.CHALLENGE_NOT_REPEATED)
    if has_cuda and isinstance(outside, Outside) and (differs := differences(report.host, outside)):  # 8
        return unproven(Reason.HOST_DIFFERS, differs=differs)
    if origin is Origin.ELSEWHERE:  # 9
        return unproven(Reason.IMPORTED)
    if origin is Origin.REHEARSAL and has_cuda:  # 9
        return unproven(Reason.REHEARSED)
    if not has_cuda:
        return Judgement(Verdict.WORKS_ON_CPU, Reason.ALL_PASSED_ON_CPU)
    if isinstance(outside, Unread):  # 10
        return unproven(Reason.HOST_NOT_READ, unread=outside)
    if outside.source is not Source.HOST and not labels_trusted:  # 11
        return unproven(Reason.LABELS_NOT_TRUSTED)
    return Judgement(Verdict.CERTIFIED, Reason.ALL_PASSED, gpus=gpus)


def _judge_checks(report: Report, required: tuple[str, ...], has_cuda: bool) -> Judgement | None:
    """Return the verdict if what the checks saw decides it: questions 1 to 6."""
    version = report.probe.version
    health = tuple(check for check in report.checks if check.id == HEALTH and check.went_wrong)
    if has_cuda and any(_excuses(check) for check in health):  # 1
        return Judgement(Verdict.UNPROVEN, Reason.GPU_NOT_HEALTHY, wrong=health)
    not_of_the_image = {HEALTH} if has_cuda else OF_THE_GPU
    # A report can mark more checks as required, but not fewer.
    wrong = tuple(
        check
        for check in failed_checks(report)
        if check.id not in not_of_the_image and (check.required or check.id in required)
    )
    if wrong:  # 2
        # On a CPU there is no TensorFloat-32 to turn off.
        in_full_float32 = has_cuda and all(check.id in IN_FULL_FLOAT32 for check in wrong)
        if in_full_float32 and leading_numbers(version)[:2] < COMPUTES_AS_USERS_DO:
            return Judgement(Verdict.UNPROVEN, Reason.OTHER_PROBE, probe=version)
        return Judgement(Verdict.FAILED, Reason.CHECKS_WENT_WRONG, wrong=wrong)
    if has_cuda and health:  # 2
        return Judgement(Verdict.UNPROVEN, Reason.GPU_NOT_HEALTHY, wrong=health)
    if has_cuda and not report.host.gpus:  # 3
        return Judgement(Verdict.UNPROVEN, Reason.NO_GPU)
    missing = tuple(
        name
        for name in required
        if not _passed(report, name)
        or not (has_cuda or name not in COMPUTING_CHECKS or _computed_on(report, name, "CPU"))
    )
    counted = Counter(check.id for check in report.checks)
    if missing:  # 4
        absent = tuple(name for name in missing if not counted[name])
        return Judgement(Verdict.UNPROVEN, Reason.CHECKS_NOT_PASSED, missing=missing, not_run=absent)
    if repeated := tuple(name for name in required if counted[name] > 1):  # 4
        return Judgement(Verdict.UNPROVEN, Reason.CHECKS_REPEATED, missing=repeated)
    if version.partition("+")[0] != PROBE_VERSION:  # 5
        return Judgement(Verdict.UNPROVEN, Reason.OTHER_PROBE, probe=version)
    elsewhere = tuple(name for name in COMPUTING_CHECKS if not _computed_on(report, name, "GPU"))
    if has_cuda and elsewhere:  # 6
        return Judgement(Verdict.UNPROVEN, Reason.NOT_ON_GPU, missing=elsewhere)
    return None


def as_judged(record: Record) -> Record:
    """Return a record whose verdict its own report can give; otherwise, the verdict is only claimed.

    A report of an older probe has fewer checks, so only those that it has are judged.
    """
    if record.verdict not in (Verdict.CERTIFIED, Verdict.WORKS_ON_CPU):
        return record
    try:
        report = record.read_report()
        found = None if report is None else judge(report, record.origin, variant=variant_of(record.image))
    except (ReportError, ValueError) as error:
        return claimed(record, f"its report can't be read: {error}")
    if report is None or found is None:
        return claimed(record, "it has no report")
    of_report = [check.recorded() for check in report.checks] == record.checks
    older = leading_numbers(report.probe.version)[:2] < leading_numbers(PROBE_VERSION)[:2]
    unsaid = {Reason.HOST_NOT_READ, Reason.OTHER_PROBE, *([Reason.CHECKS_NOT_PASSED] if older else ())}
    if of_report and (found.verdict is record.verdict or any(found.reason is one for one in unsaid)):
        return record
    return claimed(record, found.sentence if of_report else "its checks are not those of its report")


def unproven_failure(record: Record, way: str) -> Record:
    """Return a record that was measured in a way that does not isolate, such as a chroot.

    There, a check may fail because of the machine, such as one without /proc.
    """
    if record.verdict is not Verdict.FAILED:
        return record
    return claimed(record, f"in a {way}, a failure may be the machine's: {record.reason}")


def claimed(record: Record, why: str) -> Record:
    """Return a record whose verdict does not count, with the reason. It does not stand for a measurement."""
    reason = f"claimed, but not proven: {why}"
    return msgspec.structs.replace(
        record, verdict=Verdict.UNPROVEN, reason=reason, origin=Origin.ELSEWHERE, key=""
    )


def outcomes(report: Report, works_by_default: Collection[str] = ()) -> tuple[Outcome, Outcome]:
    """Return what a report shows for operations that run one by one, and for functions that XLA compiles.

    It is `works` if all required checks of the mode passed and computed on a GPU, `fails` if one of them
    failed or crashed, and otherwise `unknown`: without a GPU, if the GPU or the machine has a fault, if a
    check was skipped, ended early or is missing, or if it failed in full float32 in a probe that computes
    nothing else. This is evidence for predictions and never a verdict.

    works_by_default: ids of checks whose failure does not count, because it was seen only in full float32.
    """
    wrong = failed_checks(report)
    of_the_machine = any(check.id in _OF_THE_MACHINE for check in wrong)
    unhealthy = any(check.id == HEALTH and _excuses(check) for check in wrong)
    if not report.host.gpus or of_the_machine or unhealthy:
        return Outcome.UNKNOWN, Outcome.UNKNOWN
    required = frozenset(REQUIRED_CHECKS) - {_LOCK, HEALTH}
    proven = required - frozenset(works_by_default)
    if leading_numbers(report.probe.version)[:2] < COMPUTES_AS_USERS_DO:
        proven -= IN_FULL_FLOAT32
    # A check that hung, or that has a bug of its own, shows nothing about what it asks.
    failed = {check.id for check in wrong if check.outcome in (CheckOutcome.FAIL, CheckOutcome.CRASH)}
    passed = {
        name
        for name in required
        if name in works_by_default
        or (_passed(report, name) and (name not in COMPUTING_CHECKS or _computed_on(report, name, "GPU")))
    }

    def outcome(names: frozenset[str]) -> Outcome:
        if failed & proven & names:
            return Outcome.FAILS
        return Outcome.WORKS if names <= passed and _passed(report, HEALTH) else Outcome.UNKNOWN

    return outcome(required - CHECKS_OF_XLA), outcome(required)


def differences(host: Host, outside: Outside) -> tuple[str, ...]:
    """Return how the host differs from a report, as phrases without UUIDs; empty if they agree.

    Labels of a node can say the driver as far as they name it, the models, and how many there are.
    """
    by_labels = outside.source is Source.NODE_LABELS
    found = []
    same_driver = f"{host.driver}.".startswith(f"{outside.driver}.")
    if outside.driver is None or not (same_driver if by_labels else host.driver == outside.driver):
        found.append(f"driver {outside.driver or 'of an unknown release'}, not {host.driver}")
    # A container runtime may hide the kernel module; the report then says None, but never another release.
    if not by_labels and host.kernel_driver not in (None, outside.kernel_driver):
        found.append(f"kernel module {outside.kernel_driver}, not {host.kernel_driver}")
    here = [(gpu.name, gpu.compute_capability, "" if by_labels else gpu.uuid) for gpu in outside.gpus]
    there = [(gpu.name, gpu.compute_capability, gpu.uuid) for gpu in host.gpus]
    if by_labels:
        # GPU Feature Discovery writes a dash for each space, and labels have no UUIDs.
        there = [((name or "").replace(" ", "-"), capability, "") for name, capability, _ in there]
    if not here or Counter[tuple[object, ...]](here) != Counter[tuple[object, ...]](there):
        found.append(_different_gpus([gpu[:2] for gpu in here], [gpu[:2] for gpu in there]))
    return tuple(found)


def _different_gpus(here: Sequence[tuple[object, ...]], there: Sequence[tuple[object, ...]]) -> str:
    def named(gpus: Sequence[tuple[object, ...]]) -> str:
        return " and ".join(f"{count} {name}" for (name, *_), count in Counter(gpus).items()) or "no GPU"

    if Counter(here) == Counter(there):
        return "other GPUs of the same model"
    if named(here) == named(there):
        return "GPUs of another compute capability"
    return f"{named(here)}, not {named(there)}"


def failed_checks(report: Report) -> list[CheckResult]:
    """Return every check that went wrong, required or not."""
    return [check for check in report.checks if check.went_wrong]


def _excuses(check: CheckResult) -> bool:
    """Return True if a health check found a fault of the GPU, which may have made other checks fail."""
    return any(finding.severity == FAULT and finding.code not in _NO_EXCUSE for finding in check.problems)


def _computed_on(report: Report, name: str, device_type: str) -> bool:
    check = report.check(name)
    evidence = check.evidence if check else None
    return isinstance(evidence, Computed) and evidence.device_type == device_type


def _passed(report: Report, name: str) -> bool:
    """Return True if a check passed. One that names a fault did not, whatever its outcome says."""
    check = report.check(name)
    faults = check is not None and any(finding.severity == FAULT for finding in check.problems)
    return check is not None and check.outcome is CheckOutcome.PASS and not faults


def _told(check: CheckResult) -> str:
    how = "" if check.outcome is CheckOutcome.FAIL else f" ({check.outcome.value})"
    return f"{check.id}{how}: {check.sentence}"
