"""The signs of an unhealthy GPU, and those of one whose health is not known."""

from __future__ import annotations

from typing import Any

import pytest

from validator.probe.check import Context, Result
from validator.probe.checks import environment

from ..passing import evidence

GPU = ("gpus", 0)


def run(facts: dict[str, Any], *path: str | int, **changes: Any) -> Result:
    facts["health"] = evidence("gpu_health", *path, **changes)
    return environment.gpu_health.run(Context(facts))


def test_a_healthy_gpu_passes_and_is_not_identified(gpu_facts: dict[str, Any]) -> None:
    result = run(gpu_facts)
    assert (result.outcome, result.problems) == ("pass", [])
    assert result.sentence == "1 GPU stayed healthy over 100 readings, and no other process used it"
    assert "uuid" not in result.evidence["gpus"][0]


@pytest.mark.parametrize(
    ("path", "changes", "code"),
    [
        ((*GPU, "after"), {"uncorrected_errors": 2}, "gpu_memory_errors"),
        ((*GPU, "after"), {"remapping_pending": True}, "gpu_remapping"),
        ((*GPU, "after"), {"remapping_failed": True}, "gpu_remapping"),
        (GPU, {"xids": [79]}, "gpu_xid"),
        (GPU, {"xids": [31]}, "gpu_program_xid"),
        (GPU, {"reasons": {"hw_thermal_slowdown": {"readings": 1, "in_a_row": 1}}}, "gpu_slowed"),
        (GPU, {"reasons": {"hw_power_brake_slowdown": {"readings": 1, "in_a_row": 1}}}, "gpu_slowed"),
        (GPU, {"reasons": {"sw_thermal_slowdown": {"readings": 3, "in_a_row": 1}}}, "gpu_slowed"),
        (GPU, {"reasons": {"hw_slowdown": {"readings": 2, "in_a_row": 2}}}, "gpu_slowed"),
        ((*GPU, "before"), {"processes": 1}, "gpu_shared"),
        (GPU, {"others_during": 1}, "gpu_shared"),
        ((*GPU, "after"), {"processes": 1}, "gpu_shared"),
        ((*GPU, "after"), {"uncorrected_errors": None}, "gpu_lost"),
        ((*GPU, "after"), {"remapping_pending": None}, "gpu_lost"),
        ((*GPU, "after"), {"clocks": None}, "gpu_lost"),
        ((), {"begun": False, "gpus": []}, "gpu_not_watched"),
        ((), {"ended": False, "gpus": []}, "gpu_not_watched"),
        ((), {"error": "nvmlInit failed"}, "gpu_not_watched"),
        ((), {"gpus": []}, "gpu_not_watched"),
    ],
)
def test_each_sign_of_trouble_fails(
    path: tuple[str | int, ...], changes: dict[str, Any], code: str, gpu_facts: dict[str, Any]
) -> None:
    result = run(gpu_facts, *path, **changes)
    assert result.outcome == "fail"
    assert [problem["code"] for problem in result.problems] == [code]


def test_xids_are_told_apart_and_sorted(gpu_facts: dict[str, Any]) -> None:
    result = run(gpu_facts, *GPU, xids=[109, 79, 31, 48])
    assert [problem["codes"] for problem in result.problems] == [["48", "79"], ["31", "109"]]


@pytest.mark.parametrize("reason", ["sw_power_cap", "hw_slowdown"])
def test_a_power_cap_and_a_change_of_the_performance_state_are_usual(
    reason: str, gpu_facts: dict[str, Any]
) -> None:
    assert run(gpu_facts, *GPU, reasons={reason: {"readings": 5, "in_a_row": 1}}).outcome == "pass"


UNKNOWN = {"uncorrected_errors": None, "remapping_pending": None, "clocks": None, "processes": None}


def test_what_nvml_does_not_tell_is_unknown_and_blocks_nothing(gpu_facts: dict[str, Any]) -> None:
    """As under WSL, and with MIG or vGPU."""
    made = evidence("gpu_health", *GPU, readings=0, reasons={})
    made["xid_sources"] = []
    made["gpus"][0].update(before={**made["gpus"][0]["before"], **UNKNOWN})
    made["gpus"][0].update(after=made["gpus"][0]["before"])
    gpu_facts["health"] = made
    result = environment.gpu_health.run(Context(gpu_facts))
    assert result.outcome == "pass"
    assert result.evidence["unknown"] == ["memory errors", "remapping", "clocks", "processes", "Xid messages"]
    assert result.sentence.endswith(
        "can't be read here: memory errors, remapping, clocks, processes, Xid messages"
    )


def test_errors_from_before_the_run_are_not_new(gpu_facts: dict[str, Any]) -> None:
    made = evidence("gpu_health")
    for when in ("before", "after"):
        made["gpus"][0][when] = {**made["gpus"][0][when], "uncorrected_errors": 7}
    gpu_facts["health"] = made
    assert environment.gpu_health.run(Context(gpu_facts)).outcome == "pass"


def test_only_the_gpu_that_was_measured_counts(gpu_facts: dict[str, Any]) -> None:
    made = evidence("gpu_health")
    made["gpus"].append({**made["gpus"][0], "uuid": "GPU-2", "xids": [79]})
    gpu_facts["health"] = made
    assert environment.gpu_health.run(Context(gpu_facts)).outcome == "pass"
    gpu_facts["host"]["driver_libraries"]["cuda"]["gpus"][0]["uuid"] = "MIG-1"
    assert environment.gpu_health.run(Context(gpu_facts)).outcome == "fail"
