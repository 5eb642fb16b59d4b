"""The summary of the answers about single operations, and when it does not pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from validator.probe import child
from validator.probe.check import Context
from validator.probe.checks import xla_coverage
from validator.probe.checks.xla_coverage import BY_NAME, CASES, Case
from validator.probe.child import Answer

from ..children import ended

NAMES = [case.name for case in CASES]
CORE = [case.name for case in CASES if case.core]
NO_GPU = SimpleNamespace(config=SimpleNamespace(list_physical_devices=lambda kind: []))


class Interpreters:
    """Answers as the interpreters would, which end at certain names; remembers what was asked."""

    def __init__(self, ends: Mapping[str, str] | None = None, outcomes: Mapping[str, str] | None = None):
        self.ends = ends or {}
        self.outcomes = outcomes or {}
        self.asked: list[list[str]] = []

    def call(self, function: Any, device_type: str, names: Sequence[str], limit_s: float) -> Answer:
        self.asked.append(list(names))
        values: list[dict[str, Any]] = []
        for name in names:
            values.append({"name": name})
            if name in self.ends:
                return Answer(values, ended(self.ends[name]), "")
            outcome = self.outcomes.get(name, "compiled")
            error = None if outcome == "compiled" else f"InvalidArgumentError: {name} has no kernel"
            values.append({"name": name, "outcome": outcome, "error": error, "seconds": 0.1})
        return Answer(values, None, "")


def run(monkeypatch: pytest.MonkeyPatch, interpreters: Interpreters) -> Any:
    monkeypatch.setattr(child, "fresh", interpreters.call)
    return xla_coverage.xla_coverage.run(Context({}, None, NO_GPU))


def test_a_refusal_is_a_fact_and_not_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = {"py_function": "refused", "string join": "refused", "ctc_loss": "refused"}
    result = run(monkeypatch, Interpreters(outcomes=refused))
    assert result.outcome == "pass"
    total = len(CASES)
    assert result.sentence == (
        f"XLA compiles {total - 3} of {total} layers and operations for the CPU, and rejects 3"
    )
    assert result.evidence["refused"] == {"loss": ["ctc_loss"], "host": ["string join", "py_function"]}
    assert [entry["name"] for entry in result.evidence["cases"]] == NAMES
    assert result.evidence["untried"] == []


@pytest.mark.parametrize("name", CORE)
@pytest.mark.parametrize("outcome", ["refused", "unavailable"])
def test_operations_that_every_model_needs_must_compile(
    name: str, outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = run(monkeypatch, Interpreters(outcomes={name: outcome}))
    assert result.outcome == "fail"
    (problem,) = result.problems
    assert (problem["code"], problem["case"], problem["outcome"]) == ("core_not_compiled", name, outcome)
    assert problem["error"].startswith("InvalidArgumentError")


def test_the_core_operations_are_those_of_common_models() -> None:
    for name in (
        "matmul",
        "conv2d",
        "batch normalization",
        "sparse softmax cross entropy",
        "softmax",
        "Dense",
    ):
        assert BY_NAME[name].core and BY_NAME[name].gradient, name


def test_an_unavailable_operation_says_nothing_about_xla(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result = run(monkeypatch, Interpreters(outcomes={"svd": "unavailable"}))
    assert result.outcome == "pass"
    assert result.sentence.endswith("rejects 0, 1 unavailable")
    assert result.evidence["refused"] == {}


def test_a_crashing_case_is_reported_and_the_rest_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    interpreters = Interpreters({"svd": "SIGSEGV"})
    result = run(monkeypatch, interpreters)
    assert result.outcome == "pass"
    assert interpreters.asked == [NAMES, NAMES[NAMES.index("svd") + 1 :]]
    crashed = [entry for entry in result.evidence["cases"] if entry["outcome"] == "crashed"]
    assert [(entry["name"], entry["error"]) for entry in crashed] == [("svd", "SIGSEGV")]
    assert result.evidence["refused"] == {"linear algebra": ["svd"]}


def test_a_core_operation_that_ends_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, Interpreters({"conv2d": "SIGABRT"}))
    assert result.outcome == "fail"
    assert "XLA doesn't compile conv2d (crashed), which every model needs: SIGABRT" in result.sentence


def test_an_untried_core_operation_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    first = [name for name in NAMES if name not in CORE][:5]
    result = run(monkeypatch, Interpreters(dict.fromkeys(first, "SIGSEGV")))
    assert result.outcome == "crash"
    assert result.sentence.startswith("it isn't known whether XLA compiles ")
    assert result.sentence.endswith(f", because of {', '.join(first)}")
    assert set(result.evidence["untried"]) & set(CORE)


@pytest.mark.parametrize("name", ["svd", "conv2d"])
def test_the_time_ran_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([0.0, 0.0, 1e6])
    monkeypatch.setattr(xla_coverage, "time", SimpleNamespace(monotonic=lambda: next(ticks)))
    result = run(monkeypatch, Interpreters({name: "timeout"}))
    assert result.outcome == "timeout"
    assert result.evidence["untried"] == NAMES[NAMES.index(name) + 1 :]
    assert result.sentence.endswith(f", because of {name}")


def test_nothing_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, Interpreters(outcomes=dict.fromkeys(NAMES, "refused")))
    assert result.outcome == "fail"
    assert result.sentence == (
        f"XLA compiles nothing for the CPU: InvalidArgumentError: {NAMES[0]} has no kernel"
    )


def test_an_interpreter_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "fresh", lambda *arguments, **settings: Answer([], ended("SIGSEGV"), "gone"))
    result = xla_coverage.xla_coverage.run(Context({}, None, NO_GPU))
    assert result.outcome == "crash"
    assert result.evidence["last_lines"] == ["gone"]


def test_names_are_unique() -> None:
    assert len(set(NAMES)) == len(NAMES) == len(BY_NAME)


class Tensorflow:
    """Runs functions plainly; `jit` says what compiling one does."""

    def __init__(self, plain: Exception | None = None, jit: Exception | None = None) -> None:
        self.raised = {False: plain, True: jit}

    def function(self, function: Any, jit_compile: bool = False, autograph: bool = True) -> Any:
        def call(*tensors: Any) -> None:
            error = self.raised[jit_compile]
            if error is not None:
                raise error

        return call


@pytest.mark.parametrize(
    ("tf", "outcome", "error"),
    [
        (Tensorflow(), "compiled", None),
        (Tensorflow(jit=RuntimeError("no kernel")), "refused", "RuntimeError: no kernel"),
        (
            Tensorflow(plain=AttributeError("no such op"), jit=ValueError("no")),
            "unavailable",
            "AttributeError: no such op",
        ),
    ],
)
def test_the_outcome_of_a_case(tf: Tensorflow, outcome: str, error: str | None) -> None:
    found = xla_coverage.compile_case(tf, Case("nothing", lambda tf: lambda: None, ()))
    assert (found["outcome"], found["error"]) == (outcome, error)
    assert (found["seconds"] is not None) == (outcome == "compiled")
