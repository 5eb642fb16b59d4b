"""`certified` needs everything, on a real GPU; nothing else may lead to it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from validator.model import verdict
from validator.model.prediction import CHECKS_OF_XLA, Limit, Outcome
from validator.model.record import (
    GpuIdentity,
    Origin,
    Outside,
    OwnCheck,
    Unread,
    Verdict,
    also_required,
    labelled,
)
from validator.model.report import COMPUTING_CHECKS, Finding, Gpu, Report, report_of
from validator.model.spec import Variant
from validator.model.verdict import (
    HEALTH,
    OF_THE_GPU,
    PROBE_VERSION,
    REQUIRED_CHECKS,
    REQUIRED_ON_CPU,
    Judgement,
    Reason,
    differences,
    failed_checks,
)
from validator.probe import __version__
from validator.probe.checks import CHECKS
from validator.problems import LIMIT

from ..records.values import DRIVER, OUTSIDE, document, report
from ..support import said

BAD = ["fail", "error", "timeout", "crash"]
#: The required checks whose failure is the image's.
OF_THE_IMAGE = [name for name in REQUIRED_CHECKS if name != HEALTH]
CHALLENGE = "ab" * 32
[H100] = OUTSIDE.gpus
T4 = GpuIdentity("GPU-T4", "Tesla T4", "7.5")


def judge(made: Report, origin: Origin = Origin.HERE, outside: Outside | Unread = OUTSIDE) -> Judgement:
    """Judge a report whose host was read from outside, and agrees."""
    return verdict.judge(made, origin, outside)


def test_the_probe_requires_the_same_checks() -> None:
    assert {check.id for check in CHECKS if check.required} == set(REQUIRED_CHECKS)


@pytest.mark.parametrize("outcome", ["pass", "skip", *BAD])
def test_the_check_of_a_package_counts_as_a_file_that_the_matrix_does_not_require(outcome: str) -> None:
    for name in ("ours/our_check", "installed/our_check"):
        # What is required stays what the matrix names, whatever a package calls its check.
        made = verdict.judge(with_checks((name, outcome, False)), outside=OUTSIDE)
        assert made.verdict is Verdict.CERTIFIED
    needed = verdict.judge(
        with_checks(("installed/our_check", outcome, False)),
        outside=OUTSIDE,
        also_required=("ours/our_check",),
    )
    assert (needed.verdict, needed.missing) == (Verdict.UNPROVEN, ("ours/our_check",))


def with_checks(*also: tuple[str, str, bool]) -> Report:
    """Return a report in which every required check passes, and these: id, outcome, if required."""
    made = document()
    made["checks"] += [
        {"id": name, "outcome": outcome, **said(f"about {name}", outcome), "required": required}
        for name, outcome, required in also
    ]
    return report_of(made)


@pytest.mark.parametrize("name", ["packages", "ours/our_check"])
def test_what_the_image_needs_in_addition_is_required_whatever_its_report_says(name: str) -> None:
    def judged(*outcomes: str, required: bool = False) -> Judgement:
        made = with_checks(*((name, outcome, required) for outcome in outcomes))
        return verdict.judge(made, outside=OUTSIDE, also_required=(name,))

    assert judged("pass").verdict is Verdict.CERTIFIED
    for outcome in BAD:
        assert judged(outcome).sentence.startswith(name)
        assert (judged(outcome).verdict, judged(outcome).reason) == (
            Verdict.FAILED,
            Reason.CHECKS_WENT_WRONG,
        )
        # Only marked as required by the report: it counts, too.
        report_says = verdict.judge(with_checks((name, outcome, True)), outside=OUTSIDE)
        assert report_says.verdict is Verdict.FAILED
        optional = verdict.judge(with_checks((name, outcome, False)), outside=OUTSIDE)
        assert optional.verdict is Verdict.CERTIFIED
    for outcomes, reason in (
        (("skip",), Reason.CHECKS_NOT_PASSED),
        ((), Reason.CHECKS_NOT_PASSED),
        (("pass", "pass"), Reason.CHECKS_REPEATED),
    ):
        found = judged(*outcomes)
        assert (found.verdict, found.reason, found.missing) == (Verdict.UNPROVEN, reason, (name,))


def test_an_image_without_cuda_needs_its_additions_too() -> None:
    def judged(*also: tuple[str, str, bool]) -> Verdict:
        made = document([], "CPU")
        made["checks"] += [{"id": n, "outcome": o, **said(n, o), "required": r} for n, o, r in also]
        names = ("packages", "ours/our_check")
        return verdict.judge(report_of(made), variant=Variant.CPU, also_required=names).verdict

    packages, own = ("packages", "pass", False), ("ours/our_check", "pass", False)
    assert judged(packages, own) is Verdict.WORKS_ON_CPU
    assert judged(packages) is judged(own) is judged(packages, own, own) is Verdict.UNPROVEN
    assert judged(packages, ("ours/our_check", "fail", False)) is Verdict.FAILED


def test_images_with_additions_need_their_packages_and_own_checks() -> None:
    own = (OwnCheck("ours/a", "0" * 64, True), OwnCheck("ours/b", "0" * 64, False))
    assert also_required(False, ()) == ()
    assert also_required(True, own) == ("packages", "ours/a")


def test_the_probe_has_the_version_that_is_required() -> None:
    assert __version__ == PROBE_VERSION


def test_all_checks_on_a_gpu_are_certified_and_the_gpu_is_named() -> None:
    judgement = judge(report())
    assert judgement.verdict is Verdict.CERTIFIED
    assert judgement.sentence == "all required checks passed on NVIDIA H100 80GB HBM3"


def test_without_a_gpu_the_reason_mentions_only_that() -> None:
    judgement = judge(report([], device="CPU", driver="skip", gpu_compute="skip"))
    assert (judgement.verdict, judgement.sentence) == (Verdict.UNPROVEN, "no GPU")


@pytest.mark.parametrize("check", REQUIRED_CHECKS)
@pytest.mark.parametrize("outcome", ["missing", "skip"])
def test_a_check_that_is_missing_or_skipped_did_not_pass(check: str, outcome: str) -> None:
    judgement = judge(report(None, **{check: outcome}))
    assert judgement.verdict is Verdict.UNPROVEN
    assert check in judgement.sentence


@pytest.mark.parametrize("check", OF_THE_IMAGE)
@pytest.mark.parametrize("outcome", BAD)
def test_a_required_check_that_went_wrong_fails(check: str, outcome: str) -> None:
    nothing: list[dict[str, str]] = []
    for gpus in (nothing, None):
        judgement = judge(report(gpus, **{check: outcome}))
        assert judgement.verdict is Verdict.FAILED
        assert f"about {check}" in judgement.sentence


def test_a_report_cannot_make_a_required_check_optional() -> None:
    made = document([], **dict.fromkeys(REQUIRED_CHECKS, "fail"))
    for check in made["checks"]:
        check["required"] = False
    assert judge(report_of(made)).verdict is Verdict.FAILED


def test_a_report_can_make_another_check_required() -> None:
    made = document()
    made["checks"].append({"id": "of_a_newer_probe", "outcome": "fail", "required": True})
    assert judge(report_of(made)).verdict is Verdict.FAILED


def test_an_optional_check_that_went_wrong_does_not_fail_the_cell() -> None:
    made = document()
    made["checks"].append({"id": "xla_coverage", "outcome": "fail", **said("one op", "fail")})
    both = report_of(made)
    assert judge(both).verdict is Verdict.CERTIFIED
    assert [check.id for check in failed_checks(both)] == ["xla_coverage"]


def unhealthy(code: str, **outcomes: str) -> Report:
    """Return a report in which the GPU's health has this finding."""
    made = document(None, **outcomes)
    health = next(check for check in made["checks"] if check["id"] == HEALTH)
    health.update(outcome="fail", statement=None, problems=[{"code": code, "severity": "fault"}])
    for check in made["checks"]:
        check.setdefault("problems", [])
        check.setdefault("statement", None)
    return report_of({**made, "format": 2})


def repeated(**outcomes: str) -> dict[str, Any]:
    """Return a report in which a check is there twice."""
    made = document(None, **outcomes)
    made["checks"].append(dict(made["checks"][0]))
    return made


def other_probe(made: dict[str, Any], version: str = "2.0.0+0123456789ab") -> Report:
    """Return the report as that of a probe of another version."""
    return report_of({**made, "probe": {"version": version}})


@pytest.mark.parametrize(
    ("made", "origin", "reason"),
    [
        (report([], silent_cpu="fail"), Origin.HERE, Reason.CHECKS_WENT_WRONG),
        (report([], silent_cpu="skip"), Origin.HERE, Reason.NO_GPU),
        (report(device="CPU", silent_cpu="skip"), Origin.HERE, Reason.CHECKS_NOT_PASSED),
        (unhealthy("gpu_xid", silent_cpu="fail"), Origin.HERE, Reason.GPU_NOT_HEALTHY),
        (report_of(repeated(silent_cpu="skip")), Origin.HERE, Reason.CHECKS_NOT_PASSED),
        (other_probe(repeated()), Origin.ELSEWHERE, Reason.CHECKS_REPEATED),
        (other_probe(document(device="CPU")), Origin.ELSEWHERE, Reason.OTHER_PROBE),
        (report(device="CPU"), Origin.ELSEWHERE, Reason.NOT_ON_GPU),
        (report(), Origin.ELSEWHERE, Reason.IMPORTED),
        (report(), Origin.REHEARSAL, Reason.REHEARSED),
        (report(), Origin.HERE, Reason.ALL_PASSED),
    ],
)
def test_the_first_reason_decides(made: Report, origin: Origin, reason: Reason) -> None:
    assert judge(made, origin).reason is reason


def test_a_report_that_does_not_repeat_the_challenge_is_unproven() -> None:
    answered = report_of(document() | {"challenge": CHALLENGE})
    assert verdict.judge(answered, Origin.HERE, OUTSIDE, CHALLENGE).verdict is Verdict.CERTIFIED
    for other in (report(), report_of(document() | {"challenge": "cd" * 32})):
        judgement = verdict.judge(other, Origin.HERE, OUTSIDE, CHALLENGE)
        assert (judgement.verdict, judgement.reason) == (Verdict.UNPROVEN, Reason.CHALLENGE_NOT_REPEATED)
        assert judgement.sentence.endswith("but the report does not repeat the challenge")


@pytest.mark.parametrize("unread", Unread)
def test_without_a_reading_outside_the_image_nothing_is_certified(unread: Unread) -> None:
    judgement = judge(report(), outside=unread)
    assert (judgement.verdict, judgement.reason) == (Verdict.UNPROVEN, Reason.HOST_NOT_READ)
    assert judgement.sentence.endswith(f"according to the report; the host was not asked: {unread.sentence}")
    assert verdict.judge(report()).unread is Unread.NOT_ASKED


@pytest.mark.parametrize(
    ("outside", "phrase"),
    [
        (Outside("570.26", DRIVER, (H100,)), f"the host has driver 570.26, not {DRIVER}"),
        (Outside(None, DRIVER, (H100,)), f"the host has driver of an unknown release, not {DRIVER}"),
        (Outside(DRIVER, "570.26", (H100,)), f"the host has kernel module 570.26, not {DRIVER}"),
        (Outside(DRIVER, None, (H100,)), f"the host has kernel module None, not {DRIVER}"),
        (Outside(DRIVER, DRIVER, ()), f"the host has no GPU, not 1 {H100.name}"),
        (Outside(DRIVER, DRIVER, (T4,)), f"the host has 1 Tesla T4, not 1 {H100.name}"),
        (Outside(DRIVER, DRIVER, (H100, T4)), f"has 1 {H100.name} and 1 Tesla T4, not 1 {H100.name}"),
        (
            Outside(DRIVER, DRIVER, (GpuIdentity("GPU-0", H100.name, "9.0"),)),
            "the host has other GPUs of the same model",
        ),
        (
            Outside(DRIVER, DRIVER, (GpuIdentity(H100.uuid, H100.name, "8.0"),)),
            "the host has GPUs of another compute capability",
        ),
    ],
)
def test_a_host_that_differs_from_the_report_is_unproven(outside: Outside, phrase: str) -> None:
    judgement = judge(report(), outside=outside)
    assert (judgement.verdict, judgement.reason) == (Verdict.UNPROVEN, Reason.HOST_DIFFERS)
    assert judgement.sentence.endswith(phrase)
    assert not any(gpu.uuid in judgement.sentence for gpu in (H100, *outside.gpus))


LABEL = H100.name.replace(" ", "-")
LABELS = labelled(DRIVER, LABEL, "9.0", 1)
BRANCH = DRIVER.partition(".")[0]


@pytest.mark.parametrize(
    "labels",
    [
        LABELS,
        labelled(BRANCH, LABEL, "9.0", 1),
        labelled(DRIVER, f"{LABEL}-SHARED", "9.0", 1),
    ],
)
def test_labels_of_a_node_certify_only_if_somebody_trusts_them(labels: Outside) -> None:
    assert verdict.judge(report(), outside=labels, labels_trusted=True).verdict is Verdict.CERTIFIED
    judgement = judge(report(), outside=labels)
    assert (judgement.verdict, judgement.reason) == (Verdict.UNPROVEN, Reason.LABELS_NOT_TRUSTED)
    assert "trust.yaml does not trust" in judgement.sentence


@pytest.mark.parametrize(
    ("labels", "phrase"),
    [
        (labelled("570.26", LABEL, "9.0", 1), f"the host has driver 570.26, not {DRIVER}"),
        (labelled(BRANCH[:2], LABEL, "9.0", 1), f"the host has driver {BRANCH[:2]}, not {DRIVER}"),
        (labelled(DRIVER, "Tesla-T4", "7.5", 1), f"the host has 1 Tesla-T4, not 1 {LABEL}"),
        (labelled(DRIVER, LABEL, "9.0", 2), f"the host has 2 {LABEL}, not 1 {LABEL}"),
        (labelled(DRIVER, LABEL, "9.0", 0), f"the host has no GPU, not 1 {LABEL}"),
        (labelled(DRIVER, LABEL, "8.0", 1), "the host has GPUs of another compute capability"),
        (msgspec.structs.replace(LABELS, driver=None), "the host has driver of an unknown release"),
    ],
)
def test_trusted_labels_that_differ_from_the_report_are_unproven(labels: Outside, phrase: str) -> None:
    for trusted in (False, True):
        judgement = verdict.judge(report(), outside=labels, labels_trusted=trusted)
        assert (judgement.verdict, judgement.reason) == (Verdict.UNPROVEN, Reason.HOST_DIFFERS)
        assert phrase in judgement.sentence


def test_trusted_labels_excuse_nothing_else() -> None:
    for made in (report([]), report(None, gpu_compute="skip"), report(device="CPU")):
        assert verdict.judge(made, outside=LABELS, labels_trusted=True).verdict is Verdict.UNPROVEN
    for origin in (Origin.ELSEWHERE, Origin.REHEARSAL):
        assert verdict.judge(report(), origin, LABELS, labels_trusted=True).verdict is Verdict.UNPROVEN


def test_a_kernel_module_that_the_container_hides_is_no_difference() -> None:
    host = report().host
    assert differences(msgspec.structs.replace(host, kernel_driver=None), OUTSIDE) == ()
    assert differences(msgspec.structs.replace(host, kernel_driver="570.26"), OUTSIDE) != ()


def test_the_order_of_the_gpus_does_not_matter_but_each_field_does() -> None:
    gpus = tuple(Gpu(gpu.name, gpu.uuid, gpu.compute_capability) for gpu in (T4, H100))
    host = msgspec.structs.replace(report().host, gpus=gpus)
    both = Outside(DRIVER, DRIVER, (H100, T4))
    assert differences(host, both) == ()
    for field in ("name", "uuid", "compute_capability"):
        less = msgspec.structs.replace(gpus[0], **{field: None})
        assert differences(msgspec.structs.replace(host, gpus=(less, gpus[1])), both) != ()


def test_a_step_on_the_cpu_certifies_nothing_even_with_a_gpu() -> None:
    assert judge(report(device="CPU")).verdict is Verdict.UNPROVEN


@pytest.mark.parametrize("check", COMPUTING_CHECKS)
@pytest.mark.parametrize("device", ["CPU", "", None])
def test_each_computing_check_must_have_computed_on_the_gpu(check: str, device: str | None) -> None:
    made = document()
    next(entry for entry in made["checks"] if entry["id"] == check)["evidence"] = (
        {} if device is None else {"device_type": device}
    )
    judgement = judge(report_of(made))
    assert (judgement.verdict, judgement.reason) == (Verdict.UNPROVEN, Reason.NOT_ON_GPU)
    assert judgement.sentence == f"not computed on the GPU: {check}"


@pytest.mark.parametrize("check", REQUIRED_CHECKS)
@pytest.mark.parametrize("second", ["pass", "skip"])
def test_a_check_that_is_reported_twice_certifies_nothing(check: str, second: str) -> None:
    made = document()
    entry = next(entry for entry in made["checks"] if entry["id"] == check)
    for checks in ([*made["checks"], {**entry, "outcome": second}], [{**entry}, *made["checks"]]):
        judgement = judge(report_of({**made, "checks": checks}))
        assert (judgement.verdict, judgement.reason) == (Verdict.UNPROVEN, Reason.CHECKS_REPEATED)
        assert judgement.sentence == f"reported more than once: {check}"


@pytest.mark.parametrize("version", ["2.0.0+0123456789ab", "2.1.1", "2.1", "", f"{PROBE_VERSION}0+x"])
def test_the_report_of_another_probe_certifies_nothing(version: str) -> None:
    judgement = judge(other_probe(document(), version))
    assert (judgement.verdict, judgement.reason) == (Verdict.UNPROVEN, Reason.OTHER_PROBE)
    assert f"the probe had version {version}, not {PROBE_VERSION}" in judgement.sentence


@pytest.mark.parametrize("version", ["2.2.0+5a73c48737b9", "2.0.0", "1.9", ""])
def test_an_old_probe_that_computed_in_full_float32_fails_nothing(version: str) -> None:
    made = document(xla_convolution="fail", keras_jit="crash")
    judgement = judge(other_probe(made, version))
    assert (judgement.verdict, judgement.reason) == (Verdict.UNPROVEN, Reason.OTHER_PROBE)
    assert judgement.sentence.endswith("measure again")


@pytest.mark.parametrize(
    ("version", "outcomes"),
    [
        # What is not computed fails as it did.
        ("2.2.0", {"xla_convolution": "fail", "cuda_libraries": "fail"}),
        # The probe of today, and a later one, compute as users do.
        (PROBE_VERSION, {"xla_convolution": "fail"}),
        ("2.10.0", {"xla_convolution": "fail"}),
    ],
)
def test_other_failures_count(version: str, outcomes: dict[str, Any]) -> None:
    assert judge(other_probe(document(**outcomes), version)).verdict is Verdict.FAILED


@pytest.mark.parametrize(("outcome", "limits"), [("pass", ["xla_convolution_float32"]), ("fail", [])])
def test_a_limit_changes_no_verdict(outcome: str, limits: list[str]) -> None:
    """A check that fails by default has no limit, whatever it claims."""
    plain = report_of(document(xla_convolution=outcome))
    fields = {"gpu": "NVIDIA H200", "error": "InternalError: Autotuner could not find any supported configs"}
    claimed = Finding("xla_convolution_float32", LIMIT, fields)
    checks = tuple(
        msgspec.structs.replace(check, problems=(claimed,)) if check.id == "xla_convolution" else check
        for check in plain.checks
    )
    found = msgspec.structs.replace(plain, checks=checks)
    assert [one.code for one in found.limits] == limits
    assert judge(found).verdict is judge(plain).verdict
    assert (judge(found).verdict is Verdict.FAILED) == (outcome == "fail")


@pytest.mark.parametrize("code", ["gpu_xid", "gpu_memory_errors", "gpu_slowed", "gpu_shared", "gpu_lost"])
def test_an_unhealthy_gpu_never_fails_an_image(code: str) -> None:
    for outcomes in ({}, dict.fromkeys(OF_THE_IMAGE, "crash")):
        judgement = judge(unhealthy(code, **outcomes))
        assert (judgement.verdict, judgement.reason) == (Verdict.UNPROVEN, Reason.GPU_NOT_HEALTHY)
        assert judgement.sentence.startswith("the GPU is not healthy: ")


@pytest.mark.parametrize("code", ["gpu_program_xid", "gpu_not_watched"])
def test_what_the_image_may_have_caused_excuses_no_failure_and_certifies_nothing(code: str) -> None:
    assert judge(unhealthy(code)).reason is Reason.GPU_NOT_HEALTHY
    judgement = judge(unhealthy(code, attention="crash"))
    assert (judgement.verdict, judgement.reason) == (Verdict.FAILED, Reason.CHECKS_WENT_WRONG)
    assert [check.id for check in judgement.wrong] == ["attention"]


@pytest.mark.parametrize("outcome", BAD)
def test_a_health_check_that_found_nothing_out_is_not_the_images_fault(outcome: str) -> None:
    judgement = judge(report(None, gpu_health=outcome))
    assert (judgement.verdict, judgement.reason) == (Verdict.UNPROVEN, Reason.GPU_NOT_HEALTHY)
    assert judge(report(None, gpu_health=outcome, attention="fail")).verdict is Verdict.FAILED


def test_an_imported_report_is_never_certified() -> None:
    judgement = judge(report(), Origin.ELSEWHERE)
    assert judgement.verdict is Verdict.UNPROVEN
    assert "imported report" in judgement.sentence


@given(
    st.dictionaries(st.sampled_from(REQUIRED_CHECKS), st.sampled_from(["pass", "skip", "missing", *BAD])),
    st.sampled_from(list(Origin)),
    st.sampled_from(["GPU", "CPU", ""]),
)
def test_without_a_gpu_nothing_is_ever_certified(
    outcomes: dict[str, str], origin: Origin, device: str
) -> None:
    assert judge(report([], device, **outcomes), origin).verdict is not Verdict.CERTIFIED


@given(
    st.dictionaries(st.sampled_from(REQUIRED_CHECKS), st.sampled_from(["pass", "skip", "missing", *BAD])),
    st.sampled_from([None, []]),
    st.sampled_from(["GPU", "CPU"]),
    st.sampled_from(list(Origin)),
    st.sampled_from([OUTSIDE, Outside(DRIVER, DRIVER, (T4,)), LABELS, *Unread]),
)
@example({}, None, "GPU", Origin.HERE, OUTSIDE)
@example({}, None, "GPU", Origin.HERE, LABELS)
def test_certified_needs_everything(
    outcomes: dict[str, str],
    gpus: list[dict[str, str]] | None,
    device: str,
    origin: Origin,
    outside: Outside | Unread,
) -> None:
    complete = {"pass"}.issuperset(outcomes.values()) and gpus is None and device == "GPU"
    certified = judge(report(gpus, device, **outcomes), origin, outside).verdict is Verdict.CERTIFIED
    assert certified is (complete and origin is Origin.HERE and outside is OUTSIDE)


@given(
    st.dictionaries(st.sampled_from(REQUIRED_CHECKS), st.sampled_from(["skip", "missing", *BAD]), min_size=1)
)
def test_any_gap_prevents_certified(outcomes: dict[str, str]) -> None:
    assert judge(report(None, **outcomes)).verdict is not Verdict.CERTIFIED


WORKS, FAILS, UNKNOWN = Outcome.WORKS, Outcome.FAILS, Outcome.UNKNOWN


def test_a_report_in_which_all_passed_works_in_both_modes() -> None:
    assert verdict.outcomes(report()) == (WORKS, WORKS)
    assert set(REQUIRED_CHECKS) > CHECKS_OF_XLA


OF_THE_MACHINE = {"environment", "gpu_device_nodes"}
ASKED = sorted(set(REQUIRED_CHECKS) - {"lock_match", HEALTH} - OF_THE_MACHINE)


@pytest.mark.parametrize("outcome", ["fail", "crash"])
@pytest.mark.parametrize("check", ASKED)
def test_a_required_check_that_failed_fails_its_modes(check: str, outcome: str) -> None:
    """What fails without XLA stands in the way of both."""
    assert verdict.outcomes(report(None, **{check: outcome})) == (
        WORKS if check in CHECKS_OF_XLA else FAILS,
        FAILS,
    )


@pytest.mark.parametrize("outcome", ["error", "timeout"])
@pytest.mark.parametrize("check", ASKED)
def test_a_check_that_did_not_end_itself_shows_nothing(check: str, outcome: str) -> None:
    expected = (WORKS if check in CHECKS_OF_XLA else UNKNOWN, UNKNOWN)
    assert verdict.outcomes(report(None, **{check: outcome})) == expected


@pytest.mark.parametrize("outcome", BAD)
@pytest.mark.parametrize("check", sorted(OF_THE_MACHINE))
def test_a_fault_of_one_machine_is_nobody_elses(check: str, outcome: str) -> None:
    found = verdict.outcomes(report(None, **{check: outcome, "gpu_visible": "fail"}))
    assert found == (UNKNOWN, UNKNOWN)


@pytest.mark.parametrize("check", sorted(verdict.IN_FULL_FLOAT32))
def test_an_older_probe_shows_no_failure_in_full_float32(check: str) -> None:
    made = document(None, **{check: "fail"})
    made["probe"] = {"version": "2.2.0+5a73c48737b9"}
    expected = (WORKS if check in CHECKS_OF_XLA else UNKNOWN, UNKNOWN)
    assert verdict.outcomes(report_of(made)) == expected


def test_a_check_that_passed_with_a_fault_did_not_pass() -> None:
    made = document()
    [check] = [one for one in made["checks"] if one["id"] == "gpu_compute"]
    check["problems"] = [{"code": "no_gpu_to_compute_on", "severity": "fault"}]
    assert verdict.outcomes(report_of(made)) == (UNKNOWN, UNKNOWN)
    assert judge(report_of(made)).verdict is Verdict.UNPROVEN


def test_only_limits_of_the_catalogue_are_limits_and_have_its_modes() -> None:
    made = document()
    [check] = [one for one in made["checks"] if one["id"] == "gpu_compute"]
    told = {"severity": "limit", "gpu": "NVIDIA H200", "error": "an error"}
    codes = ("gpu_compute_float32", "no_gpu_to_compute_on", "invented")
    check["problems"] = [*({"code": code, **told} for code in codes), {**told, "code": codes[0], "gpu": None}]
    assert [limit.code for limit in report_of(made).limits] == ["gpu_compute_float32"]
    assert Limit("gpu_compute_float32", "a GPU", "an error").mode is None
    assert Limit("auto_clustering_float32", "a GPU", "an error").mode == "xla"


@pytest.mark.parametrize("check", sorted(CHECKS_OF_XLA))
def test_what_failed_only_in_full_float32_does_not_count(check: str) -> None:
    assert verdict.outcomes(report(None, **{check: "fail"}), [check]) == (WORKS, WORKS)
    assert verdict.outcomes(report(None, **{check: "fail", "gpu_compute": "fail"}), [check]) == (FAILS, FAILS)


@pytest.mark.parametrize("check", sorted(set(REQUIRED_CHECKS) - {"lock_match"}))
def test_a_report_without_a_required_check_does_not_show_that_it_works(check: str) -> None:
    assert verdict.outcomes(report(None, **{check: "skip"})) == (
        WORKS if check in CHECKS_OF_XLA else UNKNOWN,
        UNKNOWN,
    )


def test_the_lock_says_nothing_about_whether_the_wheels_work() -> None:
    assert verdict.outcomes(report(lock_match="skip")) == (WORKS, WORKS)


def test_without_a_healthy_gpu_a_report_shows_nothing() -> None:
    assert verdict.outcomes(report_of(document(gpus=[]))) == (UNKNOWN, UNKNOWN)
    assert verdict.outcomes(unhealthy("gpu_memory_faulty", gpu_compute="fail")) == (UNKNOWN, UNKNOWN)


@pytest.mark.parametrize("check", COMPUTING_CHECKS)
def test_what_was_computed_on_the_cpu_shows_nothing_about_a_gpu(check: str) -> None:
    made = document()
    for each in made["checks"]:
        if each["id"] == check:
            each["evidence"] = {"device_type": "CPU"}
    assert UNKNOWN in verdict.outcomes(report_of(made))


def on_cpu(made: Report, origin: Origin = Origin.HERE, challenge: str | None = None) -> Judgement:
    """Judge the report of an image without CUDA, whose host was not read."""
    return verdict.judge(made, origin, Unread.NOT_ASKED, challenge, Variant.CPU)


def cpu_document(gpus: list[dict[str, str]] | None = None, **outcomes: str) -> dict[str, Any]:
    """Return the report of an image without CUDA, where the checks of the GPU are skipped."""
    return document(gpus or [], "CPU", **{**dict.fromkeys(OF_THE_GPU, "skip"), **outcomes})


def test_the_checks_of_the_gpu_are_those_that_need_cuda_a_gpu_or_its_driver() -> None:
    of_the_gpu = {check.id for check in CHECKS if {"cuda-build", "gpu"} & set(check.requires)} | {"driver"}
    assert of_the_gpu & set(REQUIRED_CHECKS) == OF_THE_GPU
    # A new required check is required on the CPU too, unless it is listed as one of the GPU.
    assert {*REQUIRED_ON_CPU} == {"environment", "python_stack", "lock_match", *COMPUTING_CHECKS}
    assert set(REQUIRED_CHECKS) == OF_THE_GPU | {*REQUIRED_ON_CPU}


@pytest.mark.parametrize("gpus", [[], None], ids=["no GPU", "on a machine with a GPU"])
def test_an_image_without_cuda_works_on_the_cpu(gpus: list[dict[str, str]] | None) -> None:
    judgement = on_cpu(report_of(cpu_document(gpus)))
    assert judgement.verdict is Verdict.WORKS_ON_CPU
    assert judgement.sentence == "all required checks passed on the CPU"


@given(st.fixed_dictionaries({name: st.sampled_from(["pass", "skip", *BAD]) for name in REQUIRED_CHECKS}))
@example(dict.fromkeys(REQUIRED_CHECKS, "pass"))
def test_an_image_without_cuda_is_never_certified(outcomes: dict[str, str]) -> None:
    for device in ("CPU", "GPU"):
        made = report_of(document(None, device, **outcomes))
        found = verdict.judge(made, Origin.HERE, OUTSIDE, None, Variant.CPU).verdict
        assert found in (Verdict.FAILED, Verdict.UNPROVEN, Verdict.WORKS_ON_CPU)
        passed = all(outcomes[name] == "pass" for name in REQUIRED_ON_CPU) and device == "CPU"
        assert (found is Verdict.WORKS_ON_CPU) == passed


def test_only_an_image_without_cuda_works_on_the_cpu() -> None:
    for variant in Variant:
        found = verdict.judge(report_of(cpu_document()), Origin.HERE, OUTSIDE, None, variant).verdict
        assert (found is Verdict.WORKS_ON_CPU) == (variant is Variant.CPU)


@pytest.mark.parametrize("check", REQUIRED_ON_CPU)
def test_each_check_that_an_image_without_cuda_needs_decides(check: str) -> None:
    for outcome in BAD:
        assert on_cpu(report_of(cpu_document([], **{check: outcome}))).verdict is Verdict.FAILED
    for outcome, why in (("skip", "not passed"), ("missing", "not run")):
        judgement = on_cpu(report_of(cpu_document([], **{check: outcome})))
        assert (judgement.verdict, judgement.sentence) == (Verdict.UNPROVEN, f"{why}: {check}")


@pytest.mark.parametrize("check", sorted(OF_THE_GPU))
def test_the_checks_of_the_gpu_say_nothing_about_an_image_without_cuda(check: str) -> None:
    assert on_cpu(report_of(cpu_document([], **{check: "fail"}))).verdict is Verdict.WORKS_ON_CPU


def test_a_check_that_a_user_requires_counts_for_an_image_without_cuda_too() -> None:
    made = cpu_document()
    made["checks"].append({"id": "of_the_user", "outcome": "fail", "required": True})
    assert on_cpu(report_of(made)).verdict is Verdict.FAILED


def test_a_report_on_the_cpu_must_be_whole_current_and_from_here() -> None:
    right = cpu_document()
    twice = {
        **right,
        "checks": [*right["checks"], next(c for c in right["checks"] if c["id"] == "save_load")],
    }
    assert on_cpu(report_of(twice)).reason is Reason.CHECKS_REPEATED
    assert on_cpu(other_probe(right)).reason is Reason.OTHER_PROBE
    assert on_cpu(report_of(right), Origin.ELSEWHERE).reason is Reason.IMPORTED
    assert on_cpu(report_of(right), Origin.REHEARSAL).verdict is Verdict.WORKS_ON_CPU
    assert on_cpu(report_of(right), challenge=CHALLENGE).reason is Reason.CHALLENGE_NOT_REPEATED
    assert (
        on_cpu(report_of({**right, "challenge": CHALLENGE}), challenge=CHALLENGE).verdict
        is Verdict.WORKS_ON_CPU
    )
