"""Ranks of evidence: what was measured on a real GPU against what the rules say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from validator.compat import evidence, facts, hardware, judge
from validator.compat.predict import host_of, predict, software_of
from validator.model.prediction import (
    EAGER,
    LINUX,
    PYPI,
    X86_64,
    XLA,
    Attempt,
    Limit,
    Outcome,
    Prediction,
    Rank,
    Reason,
)
from validator.model.spec import Cell, Choice, HostClass, ImageSpec, Variant
from validator.versions import CudaVersion, DriverRelease

from .stated import changed, stated

WORKS, FAILS, UNKNOWN = Outcome.WORKS, Outcome.FAILS, Outcome.UNKNOWN
H200 = "tf2.21.0-cuda12.5-cudnn9.3-py312@r580.159.04-h200_2026-11-27"
LIMITS = ("xla_convolution_float32", "keras_jit_float32")


def cell(
    python: str = "3.12", cudnn: str = "9.3", driver: str = "580.159.04", gpu: str = "h200", **more: Any
) -> Cell:
    image = ImageSpec("2.21.0", python, Variant.GPU, Choice("as-built", "12.5"), Choice(cudnn, cudnn))
    release = DriverRelease.parse(driver)
    return Cell(image, HostClass("host", release, hardware.gpu(gpu).compute_capability, gpu, **more))


def shown(prediction: Prediction) -> list[str]:
    return [one.id for one in prediction.evidence if one.rank is Rank.MEASURED]


@pytest.mark.parametrize("driver", ["580.159.04", "580"])
@pytest.mark.parametrize("gpu", ["h200", "h100"])
def test_the_measured_combination_works_with_its_limits_named(driver: str, gpu: str) -> None:
    found = predict(cell(driver=driver, gpu=gpu))
    assert (found.eager, found.xla, found.rank) == (WORKS, WORKS, Rank.MEASURED)
    first = found.reasons[0]
    assert (first.fact, first.status, first.advisory) == (H200, "measured", False)
    assert "2026-11-27" in first.text and "NVIDIA H200" in first.text
    assert f"measurements/{H200}.json" in first.source and "probe 2.2.0" in first.source
    [tried] = found.evidence
    assert [limit.code for limit in tried.limits] == list(LIMITS)
    limits = [reason for reason in found.reasons if reason.fact == H200 and reason.advisory]
    assert [reason.mode for reason in limits] == [XLA, XLA]
    assert all("NVIDIA H200" in one.text and "Autotuner could not find" in one.text for one in limits)


@pytest.mark.parametrize(
    ("asked", "differs"),
    [
        ({"python": "3.13"}, "Python 3.12 instead of 3.13"),
        ({"driver": "580.65.06"}, "driver 580.159.04 instead of 580.65.06"),
    ],
)
def test_a_neighbour_is_weaker_and_says_so(asked: dict[str, Any], differs: str) -> None:
    found = predict(cell(**asked))
    assert found.rank is Rank.DERIVED
    [tried] = found.evidence
    assert tried.differs == (differs,)
    remarks = [one.text for one in found.reasons if one.fact == H200]
    assert sum(differs in text and "weaker evidence" in text for text in remarks) == 1
    assert sum(code in text for code in LIMITS for text in remarks) == 2


@pytest.mark.parametrize(
    "asked",
    [
        {"gpu": "a100"},
        {"driver": "575"},
        {"cudnn": "9.5"},
        {"compat": "13.1"},
    ],
)
def test_other_combinations_have_nothing_from_it(asked: dict[str, Any]) -> None:
    assert shown(predict(cell(**asked))) == []


@pytest.mark.parametrize(
    "other",
    [
        {"system": "wsl2"},
        {"machine": "aarch64"},
        {"wheel": "conda-forge"},
        {"library_path": False},
        {"variant": "cpu"},
    ],
)
def test_it_says_nothing_about_another_installation(other: dict[str, Any]) -> None:
    measured = (software_of(cell().image), host_of(cell().host))
    assert shown(judge.judge(*measured)) == [H200]
    assert shown(judge.judge(*changed(measured, **other))) == []


def test_with_pip_it_is_shown_and_says_that_the_loader_was_told_of_the_libraries() -> None:
    found = judge.judge(*changed((software_of(cell().image), host_of(cell().host)), library_path=None))
    assert (found.outcome, found.missing, found.rank) == (UNKNOWN, ("library_path",), Rank.DERIVED)
    assert found.evidence[0].differs == ("NVIDIA's libraries on the loader's search path",)


def test_a_wheel_that_finds_its_libraries_by_itself_needs_no_such_remark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    [row] = facts.rows("measurements", "measurements")
    older = {**row, "tensorflow": "2.20.0"}
    software = software_of(cell().image)
    monkeypatch.setattr(evidence, "_by_release", lambda: ({"2.20.0": [older]}, {}))
    for told in (True, False, None):
        asked = replace(software, wheel=PYPI, library_path=told)
        versions = evidence.Versions(
            None, "3.12", CudaVersion.parse("12.5"), "9.3.0", None, software.versions
        )
        [tried] = evidence.on_software("2.20.0", asked, versions, LINUX, X86_64)
        assert tried.evidence.differs == ()


def test_another_package_makes_it_weaker_and_overrules_nothing() -> None:
    measured = (software_of(cell().image), host_of(cell().host))
    with_torch = changed(measured, packages={**measured[0].versions, "torch": "2.1.0"})
    found = judge.judge(*with_torch)
    assert "no torch" in found.evidence[0].differs
    assert found.rank is Rank.DERIVED
    other = changed(measured, packages={**measured[0].versions, "numpy": "1.26.4"})
    assert judge.judge(*other).evidence[0].differs == ("numpy 2.5.5 instead of 1.26.4",)


# The law of ranks, with values alone.

RULE = Reason(WORKS, "a rule", "a-fact", "a source", "verified")


def against(outcome: Outcome, mode: str | None = None) -> Reason:
    return Reason(
        outcome, "a rule against it", "b-fact", "a source", "derived", rule="known_issue", mode=mode
    )


def tried(eager: Outcome | None, xla: Outcome | None, *differs: str, **more: Any) -> Attempt:
    return Attempt("tried", Rank.MEASURED, eager, xla, "a GPU", "a file", "2026-11-27", differs, **more)


def reported(eager: Outcome | None, xla: Outcome | None) -> Attempt:
    return replace(tried(eager, xla), rank=Rank.REPORTED)


def weigh(reasons: list[Reason], *found: Attempt, **more: Any) -> Prediction:
    return evidence.weigh(reasons, found, more.get("missing", ()), more.get("mode"))


def outcomes(found: Prediction) -> tuple[Outcome | None, Outcome | None, Rank]:
    return found.eager, found.xla, found.rank


@pytest.mark.parametrize(
    ("rules", "measured", "expected"),
    [
        # The same combination: the measurement decides, whatever the rules say.
        ([RULE], tried(WORKS, WORKS), (WORKS, WORKS, Rank.MEASURED)),
        ([RULE, against(FAILS)], tried(WORKS, WORKS), (WORKS, WORKS, Rank.MEASURED)),
        ([RULE, against(UNKNOWN, XLA)], tried(WORKS, WORKS), (WORKS, WORKS, Rank.MEASURED)),
        ([RULE], tried(FAILS, FAILS), (FAILS, FAILS, Rank.MEASURED)),
        ([RULE], tried(WORKS, FAILS), (WORKS, FAILS, Rank.MEASURED)),
        # It says nothing about a mode: there, the rules decide.
        ([RULE, against(FAILS)], tried(WORKS, UNKNOWN), (WORKS, FAILS, Rank.DERIVED)),
        # A neighbour decides only where the rules do not, and a failure makes them unsure.
        ([RULE], tried(WORKS, WORKS, "x"), (WORKS, WORKS, Rank.DERIVED)),
        ([RULE, against(FAILS)], tried(WORKS, WORKS, "x"), (FAILS, FAILS, Rank.DERIVED)),
        ([RULE, against(UNKNOWN, XLA)], tried(WORKS, WORKS, "x"), (WORKS, WORKS, Rank.DERIVED)),
        ([RULE, against(UNKNOWN)], tried(WORKS, FAILS, "x"), (WORKS, FAILS, Rank.MEASURED)),
        ([RULE], tried(FAILS, FAILS, "x"), (UNKNOWN, UNKNOWN, Rank.DERIVED)),
        # On another GPU of the compute capability it does not overrule a rule that may be about the model.
        ([RULE, against(FAILS)], tried(WORKS, WORKS, other_gpu=True), (FAILS, FAILS, Rank.DERIVED)),
        ([RULE, against(UNKNOWN)], tried(WORKS, WORKS, other_gpu=True), (WORKS, WORKS, Rank.MEASURED)),
        ([RULE], tried(FAILS, FAILS, other_gpu=True), (FAILS, FAILS, Rank.MEASURED)),
        # A report that a person sent overrules no rule.
        ([RULE, against(FAILS)], tried(WORKS, WORKS, imported=True), (FAILS, FAILS, Rank.DERIVED)),
        ([RULE], tried(FAILS, FAILS, imported=True), (WORKS, WORKS, Rank.DERIVED)),
        ([RULE, against(UNKNOWN)], tried(WORKS, WORKS, imported=True), (WORKS, WORKS, Rank.MEASURED)),
        # A public report decides nothing.
        ([RULE], tried(FAILS, FAILS), (FAILS, FAILS, Rank.MEASURED)),
        ([RULE], replace(tried(FAILS, FAILS), rank=Rank.REPORTED), (WORKS, WORKS, Rank.DERIVED)),
        (
            [against(UNKNOWN)],
            replace(tried(WORKS, None), rank=Rank.REPORTED),
            (UNKNOWN, UNKNOWN, Rank.DERIVED),
        ),
    ],
)
def test_the_best_evidence_decides(
    rules: list[Reason], measured: Attempt, expected: tuple[Outcome, Outcome, Rank]
) -> None:
    found = weigh(rules, measured)
    assert outcomes(found) == expected
    assert found.evidence == (measured,)
    # Nobody who reads only the reasons gets another answer.
    deciding = [one for one in found.reasons if not one.advisory]
    for mode, outcome in ((EAGER, found.eager), (XLA, found.xla)):
        about = [one.outcome for one in deciding if one.mode in (None, mode)]
        assert outcome is (FAILS if FAILS in about else UNKNOWN if UNKNOWN in about else WORKS)
    # Both sides of a contradiction stay.
    texts = " ".join(one.text for one in found.reasons)
    assert all(reason.text in texts for reason in rules)
    assert "a GPU" in texts


def test_a_contradiction_is_named_on_both_sides() -> None:
    found = weigh([RULE, against(FAILS, XLA)], tried(WORKS, WORKS))
    measured, rule, overruled = found.reasons
    assert measured.text.endswith("the rules say otherwise")
    assert rule == RULE
    assert overruled.text == "the rules alone say that it fails: a rule against it"
    assert (overruled.advisory, overruled.rule, overruled.mode) == (True, None, XLA)


def test_the_newest_of_two_contradictory_measurements_decides_and_the_other_stays() -> None:
    older = replace(tried(WORKS, WORKS), id="older", date="2026-01-01")
    found = weigh([RULE], tried(FAILS, FAILS), older)
    assert outcomes(found) == (FAILS, FAILS, Rank.MEASURED)
    [remark] = [one for one in found.reasons if one.fact == "older"]
    assert remark.advisory and "2026-01-01" in remark.text
    failed = replace(tried(FAILS, FAILS), id="older", date="2026-01-01")
    [remark] = [one for one in weigh([RULE], tried(FAILS, FAILS), failed).reasons if one.fact == "older"]
    assert remark.text.endswith("; the rules say otherwise")
    [remark] = [
        one for one in weigh([against(FAILS)], tried(FAILS, FAILS), older).reasons if one.fact == "older"
    ]
    assert remark.text.endswith("; the rules say otherwise")
    other = weigh([RULE, against(FAILS)], tried(WORKS, WORKS), failed)
    [remark] = [one for one in other.reasons if one.fact == "older"]
    assert remark.text.endswith("; another measurement says otherwise")


def test_a_missing_fact_is_not_replaced_by_a_neighbour() -> None:
    found = weigh([RULE], tried(WORKS, WORKS, "x"), missing=("python",))
    assert (found.outcome, found.missing, found.rank) == (UNKNOWN, ("python",), Rank.DERIVED)


def test_only_the_mode_that_was_asked_about_is_answered() -> None:
    limit = Limit("xla_convolution_float32", "a GPU", "an error")
    found = weigh([RULE], tried(WORKS, FAILS, limits=(limit,)), mode=EAGER)
    assert (found.eager, found.xla, found.rank) == (WORKS, None, Rank.MEASURED)
    assert [one for one in found.reasons if one.mode == XLA] == []


def test_evidence_is_looked_up_only_for_releases_that_have_some() -> None:
    measured, reported = evidence._by_release()
    assert set(measured) == {row["tensorflow"] for row in facts.rows("measurements", "measurements")}
    assert sum(map(len, reported.values())) == len(facts.rows("reported", "reported"))
    assert judge.judge(*stated(tensorflow="2.12.0", gpu="a100", driver="535")).evidence == ()
