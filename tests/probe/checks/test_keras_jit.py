"""Proof that Keras compiled a model, and the lack of it."""

from __future__ import annotations

import math
from typing import Any

import pytest

from validator.probe.checks import xla_programs

from ..passing import CPU, LOSSES, evidence, program


def judge(*path: str, **changes: Any) -> Any:
    return xla_programs.judge_keras_jit(evidence("keras_jit", *path, **changes))


def test_compiled_with_the_same_result_passes() -> None:
    result = judge()
    assert result.outcome == "pass"
    assert result.sentence.endswith("; if it is not set, it is True here; 'auto' means True")
    assert result.evidence["largest_difference"] == 0.0


@pytest.mark.parametrize("path", [("on",), ("auto",)])
def test_the_operations_decide_if_keras_does_not_say(path: tuple[str, ...]) -> None:
    assert judge(*path, jit_compile=None).outcome == "pass"


@pytest.mark.parametrize("uncompiled", [0, 8])
def test_what_keras_chooses_need_not_be_xla(uncompiled: int) -> None:
    assert judge("auto", jit_compile=False, uncompiled=uncompiled).outcome == "pass"


@pytest.mark.parametrize(
    ("path", "change", "fault"),
    [
        (
            ("on",),
            {"uncompiled": 2},
            "with jit_compile=True the model trained, but XLA compiled nothing for the GPU",
        ),
        (
            ("auto",),
            {"uncompiled": 2},
            "with Keras's own choice of jit_compile the model trained, but XLA compiled nothing",
        ),
        (("on",), {"jit_compile": False}, "Keras changed jit_compile=True to False"),
        (("on",), {"device": CPU}, "the on step ran on"),
        (("auto",), {"device": CPU}, "the auto step ran on"),
        (("off",), {"uncompiled": 0}, "the step executed no Conv2D or MatMul"),
        ((), {"hlo": {**program(), "instructions": 0}}, "XLA returned no compiled module"),
        ((), {"hlo": program()}, "the compiled convolution (training step, float32) doesn't call cuDNN"),
        ((), {"refused_on": None}, "trains with jit_compile=True, so jit_compile=True has no effect"),
        ((), {"refused_off": "InternalError: no"}, "fails without jit_compile too: InternalError: no"),
        (("on",), {"largest_difference": 0.053}, "from those with jit_compile=False by 5.3e-02"),
        (("auto",), {"largest_difference": 0.053}, "from those with jit_compile=False by 5.3e-02"),
    ],
)
def test_each_sign_against_it_fails(path: tuple[str, ...], change: dict[str, Any], fault: str) -> None:
    result = judge(*path, **change)
    assert result.outcome == "fail"
    assert fault in result.sentence
    assert len(result.problems) == 1


def test_a_loss_that_is_not_a_number() -> None:
    result = judge("on", losses=[2.3, 2.2, 2.1, 2.0, math.nan], largest_difference=math.inf)
    assert {problem["code"] for problem in result.problems} == {"loss_does_not_fall", "step_gradients_differ"}


def test_a_loss_that_does_not_fall() -> None:
    made = evidence("keras_jit")
    for mode in ("off", "on", "auto"):
        made[mode]["losses"] = [LOSSES[0]] * 5
    result = xla_programs.judge_keras_jit(made)
    assert "the loss of on doesn't fall: 2.3000 to 2.3000" in result.sentence
