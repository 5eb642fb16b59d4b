"""The conditions under which mixed precision counts as working, and the GPUs with tensor cores for it."""

from __future__ import annotations

from typing import Any

import pytest

from validator.probe import child
from validator.probe.check import Context
from validator.probe.checks import layers
from validator.probe.checks.speed import spread
from validator.probe.child import Answer

from ..children import ended

LOSSES = [2.31, 2.26, 2.22, 2.19, 2.16]
CPU = "/job:localhost/replica:0/task:0/device:CPU:0"


def policy(name: str, dtype: str, **changes: Any) -> dict[str, Any]:
    return {
        "policy": name,
        "compute_dtype": dtype,
        "variable_dtype": "float32",
        "device": CPU,
        "optimizer": "LossScaleOptimizer" if dtype == "float16" else "SGD",
        "losses": LOSSES,
        "step_s": spread([0.01]),
        "speedup": spread([1.5, 2.0, 2.5]),
        **changes,
    }


def seen(**changes: dict[str, Any]) -> dict[str, Any]:
    return {
        "device_type": "CPU",
        "policies": [
            policy("float32", "float32", **changes.get("float32", {})),
            policy("mixed_float16", "float16", **changes.get("mixed_float16", {})),
            policy("mixed_bfloat16", "bfloat16", **changes.get("mixed_bfloat16", {})),
        ],
        "tensor_cores": {"float16": None, "bfloat16": None},
    }


def test_policies_that_agree_pass_whatever_their_speed() -> None:
    result = layers.judge_mixed_precision(seen(mixed_float16={"speedup": spread([0.1])}))
    assert result.outcome == "pass"
    assert "float16 0.10 (0.10 to 0.10)" in result.sentence
    assert result.evidence["policies"][1]["largest_difference"] == 0.0


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("mixed_float16", {"compute_dtype": "float32"}, "mixed_float16 computes in float32"),
        ("mixed_bfloat16", {"variable_dtype": "bfloat16"}, "with weights in bfloat16"),
        ("mixed_float16", {"optimizer": "SGD"}, "without loss scaling"),
        (
            "mixed_float16",
            {"losses": [loss * 1.05 for loss in LOSSES]},
            "differ from those in float32 by 5.0e-02",
        ),
        (
            "mixed_bfloat16",
            {"losses": [loss * 1.1 for loss in LOSSES]},
            "differ from those in float32 by 1.0e-01",
        ),
        ("mixed_bfloat16", {"losses": [float("nan")] * 5}, "the loss of mixed_bfloat16 doesn't fall"),
        ("float32", {"device": "/device:GPU:0"}, "the float32 step ran on /device:GPU:0 instead of the CPU"),
    ],
)
def test_no_mixed_precision_or_another_result_fails(name: str, change: dict[str, Any], said: str) -> None:
    result = layers.judge_mixed_precision(seen(**{name: change}))
    assert result.outcome == "fail"
    assert said in result.sentence


def test_bfloat16_has_a_wider_tolerance_than_float16() -> None:
    further = {"losses": [loss * 1.05 for loss in LOSSES]}
    assert layers.judge_mixed_precision(seen(mixed_bfloat16=further)).outcome == "pass"


@pytest.mark.parametrize(
    ("capability", "float16", "bfloat16"),
    [
        ("6.1", False, False),
        ("7.0", True, False),
        ("7.5", True, False),
        ("8.0", True, True),
        ("12.0", True, True),
    ],
)
def test_tensor_cores_by_capability(capability: str, float16: bool, bfloat16: bool) -> None:
    found = layers.tensor_cores([{"compute_capability": capability}], "GPU")
    assert found == {"float16": float16, "bfloat16": bfloat16}


@pytest.mark.parametrize(
    ("found", "device_type"),
    [([], "CPU"), ([{"compute_capability": "9.0"}], "CPU"), ([{"compute_capability": None}], "GPU")],
)
def test_without_a_gpu_tensor_cores_are_not_mentioned(found: list[Any], device_type: str) -> None:
    assert layers.tensor_cores(found, device_type) == {"float16": None, "bfloat16": None}


@pytest.mark.parametrize(
    ("name", "uses"),
    [
        ("volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn", True),
        ("turing_fp16_s1688cudnn_fp16_128x128", True),
        ("sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32", True),
        ("cutlass_80_wmma_tensorop_s161616gemm_f16_16x16_128x1_nn_align8", True),
        ("volta_sgemm_128x64_nt", False),
        ("void tensorflow::functor::BiasReduce", False),
    ],
)
def test_kernels_for_tensor_cores_are_recognized_by_name(name: str, uses: bool) -> None:
    assert bool(layers.TENSOR_CORES.search(name)) is uses


def test_a_gpu_that_is_too_small_is_not_a_fault(
    facts: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    full = ended("ResourceExhaustedError: OOM when allocating tensor", in_tensorflow=True)
    answer = Answer([{"device_type": "GPU"}], full, "")
    monkeypatch.setattr(child, "fresh", lambda *arguments, **settings: answer)
    result = layers.mixed_precision.run(Context(facts))
    assert result.outcome == "skip"
    assert "OOM" in result.sentence
