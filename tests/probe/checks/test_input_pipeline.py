"""The conclusions from the times of batches from memory and from a pipeline."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest

from validator.probe.checks import data
from validator.probe.checks.data import Feed, filled_from


def throughput(*rates: tuple[int, float]) -> list[dict[str, Any]]:
    return [{"examples": examples, "memory": {"examples_per_s": rate}} for examples, rate in rates]


def test_the_smallest_batch_near_the_best_throughput_fills_the_device() -> None:
    assert filled_from(throughput((1, 50.0), (8, 400.0), (32, 950.0), (128, 1000.0))) == 32
    assert filled_from(throughput((1, 950.0), (8, 1000.0), (32, 900.0))) == 1


def test_no_batch_fills_the_device_if_the_largest_is_still_faster() -> None:
    assert filled_from(throughput((1, 50.0), (8, 400.0), (32, 1000.0))) is None


def feed(source: str, waited: float, turn: float) -> Feed:
    return Feed(source, 8, lambda: (None, None), [waited] * 3, [turn] * 3)


def test_waiting_is_a_share_of_time_and_the_ratio_compares_speeds() -> None:
    steps = data.STEPS
    entry = data.measured_batches([feed("memory", 0.0, 1.0), feed("pipeline", 1.5, 2.0)])[0]
    assert entry["memory"]["steps_per_s"]["median"] == steps
    assert entry["memory"]["examples_per_s"] == 8 * steps
    assert entry["pipeline"]["steps_per_s"]["median"] == steps / 2
    assert entry["pipeline"]["waiting_share"]["median"] == 0.75
    assert entry["memory"]["waiting_share"]["median"] == 0.0
    assert entry["pipeline/memory"]["median"] == 0.5


def test_batches_made_in_advance_do_not_count_as_pipeline_speed() -> None:
    """Two batches are ready when the turn begins; every further one takes 5 ms."""
    ready = [True] * 2

    def take() -> tuple[Any, Any]:
        if ready:
            ready.pop()
        else:
            time.sleep(0.005)
        return None, None

    found = Feed("pipeline", 8, take)
    data.take_turn(found, lambda images, labels: 1.0)
    assert found.waited_s[0] >= data.STEPS * 0.005
    assert found.turn_s[0] >= found.waited_s[0]


EVIDENCE = {
    "device_type": "GPU",
    "device": "/job:localhost/replica:0/task:0/device:GPU:0",
    "records": {"count": 512, "read": 512, "right": 512},
    "cpus": 4,
    "batches": data.measured_batches([feed("memory", 0.0, 1.0), feed("pipeline", 0.5, 1.5)]),
    "filled_from": None,
}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"records": {"count": 512, "read": 511, "right": 511}}, "records_wrong"),
        ({"records": {"count": 512, "read": 512, "right": 500}}, "records_wrong"),
        ({"device": "/job:localhost/replica:0/task:0/device:CPU:0"}, "step_ran_elsewhere"),
    ],
)
def test_lost_records_and_steps_on_another_device_fail(change: dict[str, Any], code: str) -> None:
    (problem,) = data.judge_input_pipeline({**EVIDENCE, **change}).problems
    assert (problem["code"], problem["severity"]) == (code, "fault")


def test_the_summary_names_the_share_and_the_batch_that_fills() -> None:
    small, large = ([feed("memory", 0.0, 1.0), feed("pipeline", 0.5, 1.5)] for _ in range(2))
    batches = [data.measured_batches(pair)[0] for pair in (small, large)]
    evidence = {**EVIDENCE, "batches": batches, "filled_from": 8}
    said = data.judge_input_pipeline(evidence).sentence
    assert "with tf.data on 4 CPUs, the GPU waits 33% of the time in steps of 8 examples" in said
    assert "batches of 8 keep it busy" in said
    unfilled = data.judge_input_pipeline({**evidence, "filled_from": None}).sentence
    assert "keep it busy" not in unfilled
    assert math.isclose(batches[1]["pipeline"]["waiting_share"]["median"], 1 / 3)
