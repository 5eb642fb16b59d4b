"""Proof that Keras compiled a model, and the lack of it."""

from __future__ import annotations

import math
from typing import Any

import pytest

from validator.probe import fresh
from validator.probe.check import Context
from validator.probe.checks import keras_jit
from validator.probe.isolate import Answer

from ..children import ended

LOSSES = [2.3, 2.2, 2.1, 2.0, 1.9]
MODULE = {"module": "a_inference_run_step_1__.2", "instructions": 509, "fusions": 29, "device_type": "CPU"}
RESOLVED = {"default": False, "true": True, "false": False, "auto": False, "warning": None}


def trained(jit: bool | None, losses: list[float] | None = None, **module: Any) -> dict[str, Any]:
    modules = [{**MODULE, **module}] if jit is not False else []
    return {"losses": losses or LOSSES, "jit_compile": jit, "modules": modules}


def said(**changes: Any) -> list[dict[str, Any]]:
    """The answer of the interpreter, value by value."""
    values: dict[str, Any] = {
        "device_type": "CPU",
        "keras": {"package": "keras", "version": "3.15.1"},
        "resolved": {"classifier": RESOLVED, "recurrent": RESOLVED},
        "off": trained(False),
        "on": trained(True),
        "refused_off": None,
        "refused_on": "InvalidArgumentError: XLA_CPU_JIT: PyFunc",
        "twice": trained(True),
        **changes,
    }
    return [{name: value} for name, value in values.items()]


def run(monkeypatch: pytest.MonkeyPatch, answer: Answer) -> Any:
    monkeypatch.setattr(fresh, "call", lambda *arguments, **settings: answer)
    return keras_jit.CHECK.run(Context({}, None, None))


def judge(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> Any:
    return run(monkeypatch, Answer(said(**changes), None, ""))


def test_compiled_with_the_same_result_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    result = judge(monkeypatch)
    assert result.outcome == "pass"
    assert result.sentence.startswith(
        "keras 3.15.1: jit_compile=True is compiled for the CPU (1 module, 509 instructions)"
    )
    assert result.sentence.endswith("unset it is False here, 'auto' is False")
    assert result.evidence["largest_difference"] == 0.0


def test_xla_decides_if_keras_does_not_say(monkeypatch: pytest.MonkeyPatch) -> None:
    assert judge(monkeypatch, on=trained(None), twice=trained(None)).outcome == "pass"


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"on": {**trained(True), "modules": []}}, "jit_compile=True trained, but XLA compiled nothing"),
        (
            {"twice": {**trained(True), "modules": []}},
            "after set_jit(True) trained, but XLA compiled nothing",
        ),
        ({"on": trained(True, device_type="GPU")}, "compiled nothing for the CPU: a silent fallback"),
        ({"on": {**trained(True), "jit_compile": False}}, "Keras turned jit_compile=True into False"),
        ({"refused_on": None}, "trains with jit_compile=True, so it isn't compiled"),
        ({"refused_off": "InternalError: no"}, "fails without jit_compile too: InternalError: no"),
        (
            {"on": trained(True, [2.3, 2.2, 2.1, 2.0, 1.8])},
            "differ from those with jit_compile=False by 5.3e-02",
        ),
        ({"twice": trained(True, [2.3, 2.2, 2.1, 2.0, math.nan])}, "by inf"),
    ],
)
def test_each_sign_against_it_fails(
    change: dict[str, Any], fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = judge(monkeypatch, **change)
    assert result.outcome == "fail"
    assert fault in result.sentence
    assert len(result.problems) == 1


def test_a_loss_that_does_not_fall(monkeypatch: pytest.MonkeyPatch) -> None:
    flat = [2.3] * 5
    changes = {"off": trained(False, flat), "on": trained(True, flat), "twice": trained(True, flat)}
    result = judge(monkeypatch, **changes)
    assert (result.outcome, result.sentence) == ("fail", "the loss doesn't fall: 2.3000 to 2.3000")


def test_evidence_from_before_a_crash_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, Answer(said()[:4], ended("SIGSEGV"), "last words"))
    assert (result.outcome, result.sentence) == ("crash", "training with Keras was ended by SIGSEGV")
    assert result.evidence["off"]["losses"] == LOSSES
    assert result.evidence["last_lines"] == ["last words"]


def test_an_exception_of_tensorflow_is_a_fault_and_ours_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = Answer(said()[:1], ended("InternalError: libdevice not found", in_tensorflow=True), "")
    assert run(monkeypatch, theirs).outcome == "fail"
    assert run(monkeypatch, Answer([], ended("KeyError: 'x'"), "")).outcome == "error"
