"""The checks that compute: each sign that something is wrong is enough to fail."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ..passing import CPU, evidence, judged, program, result

REFUSED = (
    "InternalError: Autotuner could not find any supported configs for HLO: %cudnn-conv-bias-activation.7"
)


@pytest.mark.parametrize(
    ("check", "said"),
    [
        ("xla_convolution", "compiled for the GPU in float32 and float16, forward and gradient; the largest"),
        (
            "keras_jit",
            "keras 3.15.1: with jit_compile=True, the model is compiled for the GPU (47 instructions)",
        ),
        ("attention", "attention in float16 on the GPU, uncompiled and compiled, agrees with float32"),
        ("embedding", "the gradient of 384 lookups in 50 rows on the GPU"),
        (
            "cudnn_rnn",
            "LSTM and GRU on the GPU, computed by CudnnRNNBackpropV3, CudnnRNNV3, agree with a loop",
        ),
        ("data_feed", "tf.data puts 128 examples on the GPU unchanged, and training on them gives the same"),
        (
            "save_load",
            "on the GPU after saving and loading as a checkpoint, a SavedModel, weights in HDF5, .keras",
        ),
    ],
)
def test_a_check_that_finds_nothing_wrong_passes(check: str, said: str) -> None:
    found = judged(check)
    assert (found.outcome, found.problems) == ("pass", [])
    assert said in found.sentence


CONVOLUTION = ("xla_convolution", "programs", 0)
ATTENTION = ("attention", "runs", 1)
EMBEDDING = ("embedding", "runs", 1)
RNN = ("cudnn_rnn", "layers", 1)
SAVED = ("save_load", "formats", 3)
ON_CPU = [{"op": "CudnnRNNV3", "device": "CPU:0", "count": 1}]


@pytest.mark.parametrize(
    ("place", "changes", "code"),
    [
        (CONVOLUTION, {"error": REFUSED, "hlo": None, "results": []}, "convolution_not_compiled"),
        (CONVOLUTION, {"hlo": program()}, "convolution_without_cudnn"),
        (CONVOLUTION, {"hlo": {**program(), "instructions": 0}}, "no_compiled_module"),
        (CONVOLUTION, {"results": [result("it", difference=3e-2)]}, "result_differs"),
        (CONVOLUTION, {"results": [result("it", difference=math.nan)]}, "result_differs"),
        (CONVOLUTION, {"results": [result("it", finite=False)]}, "result_differs"),
        (CONVOLUTION, {"results": [result("it", device=CPU)]}, "operation_ran_elsewhere"),
        (ATTENTION, {"error": "InternalError: no", "hlo": None, "results": []}, "attention_not_computed"),
        (ATTENTION, {"hlo": {**program(), "instructions": 0}}, "no_compiled_module"),
        (ATTENTION, {"compute_dtype": "float32"}, "policy_not_followed"),
        (ATTENTION, {"results": [result("attention", difference=3e-2)]}, "result_differs"),
        (ATTENTION, {"results": [result("attention", device=CPU)]}, "operation_ran_elsewhere"),
        (EMBEDDING, {"error": "InternalError: no", "hlo": None, "results": []}, "embedding_not_computed"),
        (EMBEDDING, {"hlo": {**program(), "instructions": 0}}, "no_compiled_module"),
        (EMBEDDING, {"results": [result("gradient", difference=0.5)]}, "result_differs"),
        (EMBEDDING, {"results": [result("step", device=CPU)]}, "operation_ran_elsewhere"),
        (RNN, {"kernels": []}, "rnn_without_cudnn"),
        (RNN, {"kernels": ON_CPU}, "rnn_without_cudnn"),
        (RNN, {"kernels": [{"op": "CudnnRNNV3", "device": "GPU:0", "count": 1}]}, "rnn_without_cudnn"),
        (RNN, {"results": [result("states", difference=0.1)]}, "result_differs"),
        (RNN, {"results": [result("states", device=CPU)]}, "operation_ran_elsewhere"),
        (("data_feed", "batches"), {"right": 3}, "batches_wrong"),
        (("data_feed", "batches"), {"read": 5, "right": 4}, "batches_wrong"),
        (("data_feed",), {"devices": [CPU]}, "batch_elsewhere"),
        (("data_feed",), {"losses": [2.3, 2.2, 2.1, 2.5]}, "losses_differ"),
        (SAVED, {"error": "OSError: no", "result": None}, "model_not_saved"),
        (SAVED, {"result": result(".keras", difference=0.4)}, "result_differs"),
        (SAVED, {"result": result(".keras", device=CPU)}, "operation_ran_elsewhere"),
    ],
)
def test_each_sign_against_it_fails(place: tuple[str, ...], changes: dict[str, Any], code: str) -> None:
    found = judged(*place, **changes)
    assert found.outcome == "fail"
    assert [problem["code"] for problem in found.problems] == [code]


def test_the_failed_autotuning_of_tensorflow_2_21_is_named() -> None:
    found = judged(*CONVOLUTION, error=REFUSED, hlo=None, results=[])
    assert (
        "XLA can't compile or run a convolution with bias and activation (forward and gradient, float32)"
        in found.sentence
    )
    assert "Autotuner could not find any supported configs" in found.sentence


def test_no_batch_at_all() -> None:
    found = judged("data_feed", batches={"count": 4, "read": 0, "right": 0}, devices=[], losses=[])
    assert [problem["code"] for problem in found.problems] == ["batches_wrong"]


@pytest.mark.parametrize(
    ("check", "runs", "code"),
    [
        ("attention", "runs", "attention_not_computed"),
        ("embedding", "runs", "embedding_not_computed"),
        ("xla_convolution", "programs", "convolution_not_compiled"),
    ],
)
def test_runs_that_all_have_an_error_fail(check: str, runs: str, code: str) -> None:
    entries = evidence(check)[runs]
    for entry in entries:
        entry.update(error="InternalError: refused", hlo=None, results=[])
    found = judged(check, **{runs: entries})
    assert found.outcome == "fail"
    assert [problem["code"] for problem in found.problems] == [code] * len(entries)


def test_a_convolution_may_be_a_fusion_that_cudnn_runs() -> None:
    assert judged(*CONVOLUTION, hlo=program("__cudnn$fusion")).outcome == "pass"


def test_a_format_that_the_release_does_not_have_is_named_and_no_fault() -> None:
    found = judged(*SAVED, offered=False, result=None)
    assert found.outcome == "pass"
    assert found.sentence.endswith("weights in HDF5; this release has no .keras")
