"""The measurements on a machine: each GPU model on its own, and only what was asked for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from validator.errors import MissingError
from validator.model.record import GpuIdentity, Outside, Unread
from validator.model.spec import HostClass, ImageSpec, Variant
from validator.pipeline.measuring import Target, asked_for, targets
from validator.versions import ComputeCapability, DriverRelease

DRIVER = "580.65.06"
SPEC = ImageSpec("2.21.0", "3.11", Variant.CPU)
H100, SECOND_H100 = (GpuIdentity(f"GPU-{name}", "NVIDIA H100 80GB HBM3", "9.0") for name in "bc")
T4 = GpuIdentity("GPU-a", "Tesla T4", "7.5")
MIXED = Outside(DRIVER, DRIVER, (T4, H100, SECOND_H100))
H100_CELL, T4_CELL = (f"{SPEC.identifier}@r580-{gpu}" for gpu in ("h100", "t4"))


def test_gpus_of_two_models_are_measured_one_model_at_a_time() -> None:
    small, large = targets(MIXED, (), by_model=True)
    assert (small.host_class, small.uuids) == ("r580-t4", ("GPU-a",))
    assert small.outside == Outside(DRIVER, DRIVER, (T4,))
    # Two GPUs of the same model stay together.
    assert (large.host_class, large.uuids) == ("r580-h100", ("GPU-b", "GPU-c"))
    assert large.outside == Outside(DRIVER, DRIVER, (H100, SECOND_H100))


def test_gpus_of_one_model_are_all_offered_without_naming_them() -> None:
    outside = Outside(DRIVER, DRIVER, (H100, SECOND_H100))
    assert targets(outside, (), by_model=True) == [Target(outside, "r580-h100")]


def test_an_environment_on_the_machine_gets_all_gpus_together() -> None:
    assert targets(MIXED, (), by_model=False) == [Target(MIXED, "r580-t4+h100")]


def test_a_declared_host_class_names_its_model() -> None:
    declared = HostClass("mine", DriverRelease.parse("580"), ComputeCapability(7, 5), "t4")
    assert [target.host_class for target in targets(MIXED, (declared,), by_model=True)] == [
        "mine",
        "r580-h100",
    ]


@pytest.mark.parametrize("unread", Unread)
def test_a_host_that_can_not_be_read_is_named_by_the_report(unread: Unread) -> None:
    assert targets(unread, (), by_model=True) == [Target(unread)]
    assert Target(unread).cell(SPEC) is None


def test_a_machine_without_a_gpu_is_one_target() -> None:
    [target] = targets(Outside(DRIVER, DRIVER, ()), (), by_model=True)
    assert (target.host_class, target.uuids) == ("no-gpu", ())


def test_another_reading_is_cut_to_the_same_gpus() -> None:
    small, large = targets(MIXED, (), by_model=True)
    later = Outside("580.95.05", "580.95.05", (T4, SECOND_H100))
    assert small.seen_in(later) == Outside("580.95.05", "580.95.05", (T4,))
    assert large.seen_in(later) == Outside("580.95.05", "580.95.05", (SECOND_H100,))
    assert large.seen_in(Unread.NVML_SILENT) is Unread.NVML_SILENT
    [alone] = targets(Outside(DRIVER, DRIVER, (T4,)), (), by_model=True)
    assert alone.seen_in(MIXED) == MIXED


@pytest.mark.parametrize(
    ("challenges", "expected"),
    [
        ({H100_CELL: "1"}, [("r580-h100", "1")]),
        ({H100_CELL: "1", T4_CELL: "2"}, [("r580-t4", "2"), ("r580-h100", "1")]),
        ({T4_CELL: "2", "another@r580-h100": "3"}, [("r580-t4", "2")]),
    ],
)
def test_only_the_cells_with_a_challenge_are_measured(
    challenges: dict[str, str], expected: list[tuple[str, str]]
) -> None:
    asked = asked_for(targets(MIXED, (), by_model=True), SPEC, challenges)
    assert [(target.host_class, target.challenge) for target in asked] == expected


@pytest.mark.parametrize("challenges", [{}, {f"{SPEC.identifier}@r580-a100": "1"}, {SPEC.identifier: "1"}])
def test_a_machine_that_nobody_asked_measures_nothing(challenges: dict[str, str]) -> None:
    with pytest.raises(MissingError, match="whose host class is r580-t4, r580-h100"):
        asked_for(targets(MIXED, (), by_model=True), SPEC, challenges)


def test_a_challenge_for_an_image_is_for_the_only_model_of_a_machine() -> None:
    found = targets(Outside(DRIVER, DRIVER, (T4,)), (), by_model=True)
    assert asked_for(found, SPEC, {SPEC.identifier: "1"}) == [replace(found[0], challenge="1")]
    with pytest.raises(MissingError):
        asked_for(found, SPEC, {H100_CELL: "1"})


def test_a_host_that_can_not_be_read_repeats_the_challenge_of_its_image() -> None:
    found = Target(Unread.NO_GPU_OFFERED)
    asked = asked_for([found], SPEC, {"another@r580-h100": "0", H100_CELL: "1"})
    assert asked == [replace(found, challenge="1")]
    assert asked_for([found], SPEC, {"another@r580-h100": "0"}) == [found]
