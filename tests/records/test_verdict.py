"""`certified` needs everything, on a real GPU; nothing else may lead to it."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from validator.model.record import Origin, Verdict
from validator.model.report import CheckOutcome, CheckResult, Report
from validator.model.verdict import REQUIRED_CHECKS, failed_checks, judge
from validator.probe.checks import CHECKS

from .values import report

BAD = ["fail", "error", "timeout", "crash"]


def test_the_probe_requires_the_same_checks() -> None:
    assert {check.id for check in CHECKS if check.required} == set(REQUIRED_CHECKS)


def test_all_checks_on_a_gpu_are_certified_and_the_gpu_is_named() -> None:
    judgement = judge(report())
    assert judgement.verdict is Verdict.CERTIFIED
    assert judgement.reason == "all required checks passed on NVIDIA H100 80GB HBM3"


def test_without_a_gpu_the_reason_is_just_that() -> None:
    judgement = judge(report([], device="CPU", driver="skip", gpu_compute="skip"))
    assert (judgement.verdict, judgement.reason) == (Verdict.UNPROVEN, "no GPU")


@pytest.mark.parametrize("check", REQUIRED_CHECKS)
@pytest.mark.parametrize("outcome", ["missing", "skip"])
def test_a_check_that_is_missing_or_skipped_did_not_pass(check: str, outcome: str) -> None:
    judgement = judge(report(**{check: outcome}))
    assert judgement.verdict is Verdict.UNPROVEN
    assert check in judgement.reason


@pytest.mark.parametrize("check", REQUIRED_CHECKS)
@pytest.mark.parametrize("outcome", BAD)
def test_a_required_check_that_went_wrong_fails(check: str, outcome: str) -> None:
    for gpus in ([], None):
        judgement = judge(report(gpus, **{check: outcome}))
        assert judgement.verdict is Verdict.FAILED
        assert f"about {check}" in judgement.reason


def test_a_report_can_not_declare_a_required_check_optional() -> None:
    checks = tuple(CheckResult(name, CheckOutcome.FAIL, "", required=False) for name in REQUIRED_CHECKS)
    assert judge(Report("", "", "", {"gpus": []}, {}, checks, {})).verdict is Verdict.FAILED


def test_an_optional_check_that_went_wrong_does_not_fail_the_cell() -> None:
    good = report()
    extra = CheckResult("xla_coverage", CheckOutcome.FAIL, "one op")
    both = Report("", "", "", good.host, {}, (*good.checks, extra), {})
    assert judge(both).verdict is Verdict.CERTIFIED
    assert failed_checks(both) == [extra]


def test_a_step_on_the_cpu_certifies_nothing_even_where_a_gpu_is() -> None:
    assert judge(report(device="CPU")).verdict is Verdict.UNPROVEN


def test_what_was_brought_is_never_certified() -> None:
    judgement = judge(report(), Origin.ELSEWHERE)
    assert judgement.verdict is Verdict.UNPROVEN
    assert "brought from elsewhere" in judgement.reason


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
def test_certified_is_all_of_it_and_nothing_less(
    outcomes: dict[str, str], gpus: list[dict[str, str]] | None, device: str, origin: Origin
) -> None:
    complete = {"pass"}.issuperset(outcomes.values()) and gpus is None and device == "GPU"
    certified = judge(report(gpus, device, **outcomes), origin).verdict is Verdict.CERTIFIED
    assert certified is (complete and origin is Origin.HERE)


@given(
    st.dictionaries(st.sampled_from(REQUIRED_CHECKS), st.sampled_from(["skip", "missing", *BAD]), min_size=1)
)
def test_any_gap_is_a_gap(outcomes: dict[str, str]) -> None:
    assert judge(report(**outcomes)).verdict is not Verdict.CERTIFIED
