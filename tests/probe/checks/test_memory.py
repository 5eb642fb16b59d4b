"""The judgement of the trials with a GPU's memory. The trials run in `test_real_measurements`."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from validator.probe import child
from validator.probe.check import Context, Result
from validator.probe.checks import memory
from validator.probe.child import Answer

from ..children import ended

MIB = 1 << 20
EXHAUSTED = {"type": "ResourceExhaustedError", "message": "OOM when allocating tensor"}


def tensorflow(gpus: int) -> Any:
    return SimpleNamespace(
        config=SimpleNamespace(
            list_physical_devices=lambda kind: [f"GPU:{number}" for number in range(gpus)],
            experimental=SimpleNamespace(set_memory_growth=lambda gpu, on: None),
        )
    )


def leak(growth: int = 0) -> list[dict[str, Any]]:
    return [
        {"mode": mode, "measured": "allocator", "bytes": [1, 1 + growth], "growth_bytes": growth}
        for mode in ("graph", "xla")
    ]


def values(**changes: Any) -> dict[str, list[Any]]:
    """Return the results of the trials if all is well, on a card of 16 GiB, with some of them replaced."""
    card = {"total_bytes": 16384 * MIB, "free_bytes": 16000 * MIB, "computed": True}
    found: dict[str, dict[str, Any]] = {
        "_grow": {**card, "taken_bytes": 500 * MIB},
        "_take_whole": {**card, "taken_bytes": 15500 * MIB, "late_growth": {"type": "RuntimeError"}},
        "_exhaust": {
            "limit_bytes": 1024 * MIB,
            "within_limit": None,
            "asked_bytes": 2048 * MIB,
            "raised": EXHAUSTED,
            "recovered": True,
            "peak_bytes": 300 * MIB,
            "late_configuration": {"type": "RuntimeError"},
        },
    }
    return {
        **{name: [{**value, **changes.get(name, {})}] for name, value in found.items()},
        "_train": leak(**changes.get("_train", {})),
    }


class Trials:
    """Stands in for the fresh interpreters."""

    def __init__(self, answers: dict[str, list[Any]]) -> None:
        self.answers = answers
        self.failure: dict[str, str] = {}
        self.asked: dict[str, dict[str, str | None]] = {}

    def call(
        self, trial: Callable[..., Any], device_type: str, limit_s: float, environment: dict[str, str | None]
    ) -> Answer:
        name = trial.__name__
        self.asked[name] = environment
        return Answer(self.answers[name], ended(self.failure.get(name), in_tensorflow=True), "last line")


def run(monkeypatch: pytest.MonkeyPatch, trials: Trials, gpus: int = 1) -> Result:
    monkeypatch.setattr(child, "fresh", trials.call)
    return memory.memory.run(Context({}, tensorflow=tensorflow(gpus)))


def test_correct_handling_of_memory_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    trials = Trials(values())
    result = run(monkeypatch, trials)
    assert result.outcome == "pass"
    assert result.sentence.startswith(
        "on the GPU: memory growth takes 500 MiB, the default takes 15500 MiB, "
    )
    assert result.evidence["unknown"] == []
    # Only the trial of the default must ignore a variable that forces growth.
    assert trials.asked["_take_whole"] == {"TF_FORCE_GPU_ALLOW_GROWTH": None}
    assert trials.asked["_grow"] == {}


def test_the_default_is_not_tried_on_a_gpu_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    trials = Trials(values(_grow={"free_bytes": 8000 * MIB}))
    result = run(monkeypatch, trials)
    assert result.outcome == "pass"
    assert "_take_whole" not in trials.asked
    assert result.evidence["whole"] is None
    assert result.evidence["unknown"] == [
        {"code": "gpu_memory_in_use", "free_bytes": 8000 * MIB, "total_bytes": 16384 * MIB}
    ]


def test_without_a_gpu_no_gpu_memory_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    trials = Trials(values(_exhaust={"limit_bytes": None, "peak_bytes": None}))
    result = run(monkeypatch, trials, gpus=0)
    assert result.outcome == "pass"
    assert list(trials.asked) == ["_exhaust", "_train"]
    assert result.evidence["device_type"] == "CPU"
    assert result.evidence["growth"] is result.evidence["whole"] is None
    assert "GPU" not in result.sentence and "growth" not in result.sentence


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"_grow": {"taken_bytes": 15000 * MIB}}, "with memory growth, a small operation took 15000 MiB"),
        ({"_exhaust": {"raised": None}}, "an allocation of 2048 MiB succeeded, which is more than there is"),
        (
            {"_exhaust": {"raised": {"type": "InternalError", "message": ""}}},
            "running out of memory raised InternalError, not ResourceExhaustedError",
        ),
        (
            {"_exhaust": {"within_limit": EXHAUSTED}},
            "an allocation within the limit raised ResourceExhaustedError",
        ),
        ({"_exhaust": {"peak_bytes": 1025 * MIB}}, "1025 MiB were allocated although the limit is 1024 MiB"),
        (
            {"_exhaust": {"recovered": False}},
            "after running out of memory, the process computes wrong results",
        ),
        (
            {"_train": {"growth": 15 * MIB}},
            "memory grows by 15 MiB over 50 training steps (graph); memory grows by 15 MiB",
        ),
    ],
)
def test_wrong_handling_of_memory_fails(
    changes: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = run(monkeypatch, Trials(values(**changes)))
    assert result.outcome == "fail"
    assert result.sentence.startswith(said)


def test_a_crashed_trial_is_named_with_the_earlier_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    trials = Trials(values())
    trials.failure["_exhaust"] = "SIGABRT"
    result = run(monkeypatch, trials)
    assert (result.outcome, result.sentence) == (
        "crash",
        "the trial of running out of memory was killed by SIGABRT",
    )
    assert result.evidence["last_lines"] == ["last line"]
    assert result.evidence["growth"]["taken_bytes"] == 500 * MIB


def test_the_smallest_leak_is_above_the_tolerance() -> None:
    """The smallest leak is that of the weights, or of the batch, once a step."""
    from validator.probe.checks.speed import SIZES, weight_bytes

    size = SIZES["CPU"]
    weights = weight_bytes(size)
    images = 4 * memory.EXAMPLES * 3 * size.image**2
    assert memory.STEPS * min(weights, images) > 3 * memory.TOLERANCE


@pytest.mark.parametrize(
    ("held", "growth"),
    [
        ([100, 110, 120, 130, 140, 150], 50),
        # A thread gets an arena of its own, once.
        ([100, 100, 100 + 64 * MIB, 100 + 64 * MIB, 100 + 64 * MIB, 100 + 64 * MIB], 0),
        ([100, 100 + 9 * MIB, 100 + 9 * MIB, 101 + 18 * MIB, 102 + 18 * MIB, 103 + 18 * MIB], 5),
        ([100, 90, 80, 70, 60, 50], -50),
    ],
)
def test_only_growth_that_goes_on_counts_as_a_leak(held: list[int], growth: int) -> None:
    assert memory.steady_growth(held) == growth
