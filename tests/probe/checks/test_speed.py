"""The comparison of eager mode, graph and XLA."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from validator import problems
from validator.probe import tensorflow_devices
from validator.probe.check import Context
from validator.probe.checks import speed
from validator.probe.checks.speed import SIZES, Mode, ratios, shapes, spread

GPU = "/job:localhost/replica:0/task:0/device:GPU:0"
WEIGHTS, HELD = 100, 5000


def mode(name: str, step_s: float, peak: int, losses: tuple[float, ...] = (2.0, 1.0)) -> Mode:
    return Mode(
        name, lambda images, labels: None, list(losses), 10.0, [step_s, 2 * step_s, step_s], [peak], 30, GPU
    )


def modes() -> list[Mode]:
    """XLA in half the time of a graph, with three quarters of its memory, on top of what was held."""
    others = HELD + 2 * WEIGHTS
    return [
        mode("eager", 0.4, others + 4000),
        mode("graph", 0.2, others + 4000),
        mode("xla", 0.1, others + 3000),
    ]


def evidence(found: list[Mode], held: int | None = HELD) -> dict[str, Any]:
    others = None if held is None else held + 2 * WEIGHTS
    return {
        "device_type": "GPU",
        **speed.described(found, others),
        "tolerance": 0.05,
        "largest_difference": speed.difference(found),
    }


def test_the_ratios_come_from_the_measurements() -> None:
    result = speed.judge_xla_speedup(evidence(modes()))
    assert result.outcome == "pass"
    ratio = result.evidence["ratios"]["xla/graph"]
    assert (ratio["step_time"]["median"], ratio["peak_bytes"], ratio["kernels"]) == (0.5, 0.75, 1.0)
    assert result.evidence["ratios"]["xla/eager"]["step_time"]["median"] == 0.25
    assert "0.50 (0.50 to 0.50) of the time and 0.75 of the memory of a graph step" in result.sentence
    eager, graph, xla = result.evidence["modes"]
    assert (eager["compile_s"], graph["compile_s"], xla["compile_s"]) == (None, 9.8, 9.9)


def test_a_slower_xla_is_not_a_fault() -> None:
    found = modes()
    found[2].step_s = [1.0, 1.0, 1.0]
    result = speed.judge_xla_speedup(evidence(found))
    assert result.outcome == "pass"
    assert "takes 5.00 (" in result.sentence


def test_memory_without_counts_is_unknown() -> None:
    result = speed.judge_xla_speedup(evidence(modes(), held=None))
    assert result.outcome == "pass"
    assert {entry["peak_bytes"] for entry in result.evidence["modes"]} == {None}
    assert {entry["peak_bytes"] for entry in result.evidence["ratios"].values()} == {None}
    assert "memory" not in result.sentence


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_mode_with_another_result_fails(number: int) -> None:
    found = modes()
    found[number].losses[1] = 1.2
    result = speed.judge_xla_speedup(evidence(found))
    assert (result.outcome, result.sentence) == (
        "fail",
        "eager, graph and XLA disagree: their losses differ by 2.0e-01 (tolerance 0.05)",
    )


def test_a_loss_that_is_not_a_number_fails() -> None:
    found = modes()
    found[2].losses[1] = math.nan
    result = speed.judge_xla_speedup(evidence(found))
    assert (result.outcome, result.sentence) == ("fail", "a loss is not finite")
    assert result.evidence["largest_difference"] == math.inf


def test_a_mode_on_another_device_fails() -> None:
    found = modes()
    found[2].device = GPU.replace("GPU", "CPU")
    result = speed.judge_xla_speedup(evidence(found))
    assert result.outcome == "fail"
    assert result.sentence.startswith("the xla step ran on ")


class FakeError(Exception):
    pass


FAKE = SimpleNamespace(errors=SimpleNamespace(OpError=FakeError))


def test_kernels_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = tensorflow_devices.Event("/device:GPU:0", "Stream #1", "sgemm", 1e-6)
    copy = tensorflow_devices.Event("/device:GPU:0", "Stream #1", "MemcpyH2D", 1e-6)
    monkeypatch.setattr(tensorflow_devices, "record", lambda tf, work: [kernel] * 60 + [copy] * 9)
    found = modes()
    assert speed.count_kernels(FAKE, "GPU", found, None, None) is None
    assert [entry.kernels for entry in found] == [20.0] * 3


@pytest.mark.parametrize("error", [OSError("no space"), ValueError("cut short"), FakeError("CUPTI"), None])
def test_kernels_that_cannot_be_counted(error: Exception | None, monkeypatch: pytest.MonkeyPatch) -> None:
    def record(tf: Any, work: Any) -> list[tensorflow_devices.Event]:
        if error is not None:
            raise error
        return []

    monkeypatch.setattr(tensorflow_devices, "record", record)
    found = modes()
    found[0].kernels = None
    reason = speed.count_kernels(FAKE, "GPU", found, None, None)
    assert reason is not None and (str(error) if error else "CUPTI") in problems.sentence(reason)
    assert found[0].kernels is None
    assert speed.count_kernels(FAKE, "CPU", found, None, None) == {"code": "kernels_only_on_gpu"}


class Exhausted(Exception):
    pass


def test_a_batch_that_does_not_fit_is_reduced_and_then_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def measure(tf: Any, device_type: str, examples: int) -> dict[str, Any]:
        tried.append(examples)
        if examples > fits:
            raise Exhausted("OOM when allocating\nmore")
        return evidence(modes())

    gpu = SimpleNamespace(
        config=SimpleNamespace(
            list_physical_devices=lambda kind: ["GPU:0"],
            experimental=SimpleNamespace(set_memory_growth=lambda gpu, on: None),
        ),
        device=lambda name: pytest.MonkeyPatch.context(),
        errors=SimpleNamespace(ResourceExhaustedError=Exhausted),
    )
    monkeypatch.setattr(speed, "_measure", measure)
    fits = 32
    assert speed.xla_speedup.run(Context({}, tensorflow=gpu)).outcome == "pass"
    assert tried == [128, 32]
    fits = 0
    result = speed.xla_speedup.run(Context({}, tensorflow=gpu))
    assert result.outcome == "skip"
    assert (
        result.sentence == "the model with a batch of 32 doesn't fit in the GPU's memory: OOM when allocating"
    )


def test_the_large_model_is_resnet_18() -> None:
    """With a stem of 3 by 3, 10 classes and no bias: 11.2 million weights, in 20 convolutions."""
    found = shapes(SIZES["GPU"])
    assert len([shape for shape in found if len(shape) == 4]) == 20
    assert sum(math.prod(shape) for shape in found) == 11_173_952


# Figures with their spread.


def test_the_spread_of_samples() -> None:
    figure = spread([4.0, 1.0, 3.0, 2.0, 100.0])
    assert figure == {"median": 3.0, "q1": 2.0, "q3": 4.0, "min": 1.0, "max": 100.0, "samples": 5}


def test_one_sample_has_no_spread_and_no_samples_give_no_figure() -> None:
    assert spread([2.0]) == {"median": 2.0, "q1": 2.0, "q3": 2.0, "min": 2.0, "max": 2.0, "samples": 1}
    assert spread([]) is None


def test_ratios_are_taken_pair_by_pair() -> None:
    """A disturbance that slows both samples of a round leaves the ratio as it is."""
    figure = ratios([1.0, 50.0, 2.0], [2.0, 100.0, 4.0])
    assert figure is not None
    assert figure["min"] == figure["max"] == 0.5


def test_a_ratio_to_zero_is_left_out() -> None:
    assert ratios([1.0], [0.0]) is None
