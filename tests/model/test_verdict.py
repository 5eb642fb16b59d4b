"""`certified` needs everything, on a real GPU; nothing else may lead to it."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from validator.model.record import Origin, Verdict
from validator.model.report import Report, report_of
from validator.model.verdict import REQUIRED_CHECKS, Reason, failed_checks, judge
from validator.probe.checks import CHECKS

from ..records.values import document, report

BAD = ["fail", "error", "timeout", "crash"]


def test_the_probe_requires_the_same_checks() -> None:
    assert {check.id for check in CHECKS if check.required} == set(REQUIRED_CHECKS)


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


@pytest.mark.parametrize("check", REQUIRED_CHECKS)
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
    made["checks"].append({"id": "of_a_newer_probe", "outcome": "fail", "summary": "", "required": True})
    assert judge(report_of(made)).verdict is Verdict.FAILED


def test_an_optional_check_that_went_wrong_does_not_fail_the_cell() -> None:
    made = document()
    made["checks"].append({"id": "xla_coverage", "outcome": "fail", "summary": "one op"})
    both = report_of(made)
    assert judge(both).verdict is Verdict.CERTIFIED
    assert [check.id for check in failed_checks(both)] == ["xla_coverage"]


@pytest.mark.parametrize(
    ("made", "origin", "reason"),
    [
        (report([], silent_cpu="fail"), Origin.HERE, Reason.CHECKS_WENT_WRONG),
        (report([], silent_cpu="skip"), Origin.HERE, Reason.NO_GPU),
        (report(device="CPU", silent_cpu="skip"), Origin.HERE, Reason.CHECKS_NOT_PASSED),
        (report(device="CPU"), Origin.ELSEWHERE, Reason.NOT_TRAINED_ON_GPU),
        (report(), Origin.ELSEWHERE, Reason.IMPORTED),
        (report(), Origin.HERE, Reason.ALL_PASSED),
    ],
)
def test_the_first_reason_decides(made: Report, origin: Origin, reason: Reason) -> None:
    assert judge(made, origin).reason is reason


def test_a_step_on_the_cpu_certifies_nothing_even_with_a_gpu() -> None:
    assert judge(report(device="CPU")).verdict is Verdict.UNPROVEN


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
)
@example({}, None, "GPU", Origin.HERE)
def test_certified_needs_everything(
    outcomes: dict[str, str], gpus: list[dict[str, str]] | None, device: str, origin: Origin
) -> None:
    complete = {"pass"}.issuperset(outcomes.values()) and gpus is None and device == "GPU"
    certified = judge(report(gpus, device, **outcomes), origin).verdict is Verdict.CERTIFIED
    assert certified is (complete and origin is Origin.HERE)


@given(
    st.dictionaries(st.sampled_from(REQUIRED_CHECKS), st.sampled_from(["skip", "missing", *BAD]), min_size=1)
)
def test_any_gap_prevents_certified(outcomes: dict[str, str]) -> None:
    assert judge(report(None, **outcomes)).verdict is not Verdict.CERTIFIED
