"""The witnesses of a silent fall back to the CPU: each by itself is enough to fail."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from validator import problems
from validator.probe import tensorflow_devices
from validator.probe.check import Context
from validator.probe.checks import compute

#: The step's operations as TensorFlow names them after it has optimized the graph for a GPU.
OPS = (
    "Conv2D",
    "Conv2DBackpropFilter",
    "Conv2DBackpropInput",
    "MatMul",
    "Relu",
    "ReluGrad",
    "SparseSoftmaxCrossEntropyWithLogits",
    "AssignSubVariableOp",
)
GPU = "/job:localhost/replica:0/task:0/device:GPU:0"
CPU = "/job:localhost/replica:0/task:0/device:CPU:0"


def placement(**elsewhere: str) -> list[dict[str, Any]]:
    bookkeeping = [{"op": "Const", "device": "CPU:0", "count": 4}]
    return bookkeeping + [{"op": op, "device": elsewhere.get(op, "GPU:0"), "count": 2} for op in OPS]


def seen(**changes: Any) -> dict[str, Any]:
    return {
        "placement": placement(),
        "loss_device": GPU,
        "allocated_bytes": 300_000,
        "least_bytes": 98_432,
        "kernels": 61,
        "gpu_time_s": 0.0004,
        "gpu_time_unknown": None,
        "tolerance": 2e-2,
        "largest_difference": 1e-5,
        **changes,
    }


def wrong(evidence: dict[str, Any]) -> list[dict[str, Any]]:
    return compute.judge_silent_cpu(evidence).problems


def test_all_witnesses_agree_on_the_gpu() -> None:
    assert wrong(seen()) == []


def test_auxiliary_operations_may_be_on_the_cpu() -> None:
    assert wrong(seen(placement=placement(_Arg="CPU:0"))) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"placement": placement(Conv2DBackpropFilter="CPU:0")}, "Conv2D ran on CPU:0"),
        ({"placement": placement(AssignSubVariableOp="CPU:0")}, "AssignSub ran on CPU:0"),
        (
            {"placement": [entry for entry in placement() if entry["op"] != "MatMul"]},
            "the step executed no MatMul",
        ),
        ({"loss_device": CPU}, "the loss is on"),
        ({"allocated_bytes": 0}, "handed out 0 bytes"),
        ({"allocated_bytes": None}, "does not report how much it handed out"),
        ({"kernels": 2}, "ran 2 kernels"),
        ({"gpu_time_s": 0.0}, "in 0.000000 s"),
        ({"largest_difference": 0.5}, "differ from those on the CPU"),
        ({"largest_difference": float("nan")}, "differ from those on the CPU"),
    ],
)
def test_one_witness_against_it_is_enough(change: dict[str, Any], said: str) -> None:
    (problem,) = wrong(seen(**change))
    assert problem["severity"] == "fault"
    assert said in problems.sentence(problem)


def test_a_cluster_counts_as_its_operations() -> None:
    clustered = [{"op": "_XlaRun", "device": "GPU:0", "count": 1}]
    assert wrong(seen(placement=clustered, kernels=9)) == []
    clustered[0]["device"] = "CPU:0"
    (problem,) = wrong(seen(placement=clustered))
    assert problems.sentence(problem) == "_XlaRun ran on CPU:0"


def test_without_the_profiler_the_others_decide() -> None:
    blind = {"kernels": None, "gpu_time_s": None, "gpu_time_unknown": {"code": "profiler_saw_nothing"}}
    assert wrong(seen(**blind)) == []
    said = compute.judge_silent_cpu(seen(**blind)).sentence
    assert "its GPU time is unknown: the profiler saw no kernel" in said
    assert wrong(seen(**blind, placement=placement(MatMul="CPU:0")))


class FakeTensorflow:
    """Without a GPU."""

    config = SimpleNamespace(list_physical_devices=lambda kind: [])
    errors = SimpleNamespace(OpError=RuntimeError)


def test_no_visible_gpu_is_a_failure_and_not_a_skip(gpu_facts: dict[str, Any]) -> None:
    result = compute.silent_cpu.run(Context(gpu_facts, None, FakeTensorflow()))
    assert result.outcome == "fail"
    assert "sees no GPU" in result.sentence


def event(name: str, plane: str = "/device:GPU:0") -> tensorflow_devices.Event:
    return tensorflow_devices.Event(plane, "Stream #13(Compute)", name, 1e-5)


def test_copies_and_host_events_are_not_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = [event("implicit_gemm"), event("MemcpyH2D"), event("MatMul", plane="/host:CPU")]
    monkeypatch.setattr(tensorflow_devices, "record", lambda tf, work: (work(), recorded)[1])
    found = compute.profiled(FakeTensorflow(), lambda: None)
    assert found == {"kernels": 1, "gpu_time_s": 1e-5, "gpu_time_unknown": None}


@pytest.mark.parametrize("works_first", [True, False])
def test_the_steps_are_taken_once_whatever_the_profiler_does(
    works_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []

    def record(tf: Any, work: Any) -> list[tensorflow_devices.Event]:
        if works_first:
            work()
        raise RuntimeError("CUPTI error: insufficient privileges")

    monkeypatch.setattr(tensorflow_devices, "record", record)
    found = compute.profiled(FakeTensorflow(), lambda: taken.append(1))
    assert taken == [1]
    assert found["kernels"] is None
    assert "insufficient privileges" in found["gpu_time_unknown"]["message"]


def test_a_profiler_that_sees_nothing_is_not_a_witness(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorflow_devices, "record", lambda tf, work: (work(), [])[1])
    found = compute.profiled(FakeTensorflow(), lambda: None)
    assert found["kernels"] is None
    assert found["gpu_time_unknown"] == {"code": "profiler_saw_nothing"}
