from __future__ import annotations

import pytest

from validator.compat.hardware import model_of
from validator.model.report import Gpu, Host, ReportError
from validator.model.spec import HostClass
from validator.pipeline.measuring import host_class_of
from validator.versions import ComputeCapability, DriverRelease


def facts(driver: str | None, *gpus: tuple[str, str | None]) -> Host:
    return Host(driver=driver, gpus=tuple(Gpu(name=name, compute_capability=cc) for name, cc in gpus))


H100 = ("NVIDIA H100 80GB HBM3", "9.0")
T4 = ("Tesla T4", "7.5")


def declared(
    identifier: str, driver: str, capability: str, gpu: str | None = None, compat: str | None = None
) -> HostClass:
    return HostClass(
        identifier, DriverRelease.parse(driver), ComputeCapability.parse(capability), gpu, (), compat
    )


@pytest.mark.parametrize(
    ("found", "host"),
    [
        (facts(None), "no-gpu"),
        (facts("580.95.05"), "no-gpu"),
        (facts("580.95.05", H100), "r580-h100"),
        (facts("580.95.05", H100, H100), "r580-h100"),
        (facts("535.183.01", H100, T4), "r535-h100+t4"),
    ],
)
def test_a_host_is_named_after_its_driver_and_gpu(found: Host, host: str) -> None:
    assert host_class_of(found, ()) == host


@pytest.mark.parametrize(
    "found", [facts("banana", H100), facts("1" * 5000, H100), facts("580.95.05", ("NVIDIA H100", "{{9.0"))]
)
def test_nonsense_in_a_report_names_no_host(found: Host) -> None:
    with pytest.raises(
        ReportError, match=r"host: .* is not a (driver release|compute capability)|host: Exceeds"
    ):
        host_class_of(found, ())


def test_a_declared_class_comes_first() -> None:
    exact = declared("mine", "580.95.05", "9.0", "h100")
    by_capability = declared("r580-sm90", "580", "9.0")
    assert host_class_of(facts("580.95.05", H100), (exact,)) == "mine"
    assert host_class_of(facts("580.65.06", H100), (exact, by_capability)) == "r580-sm90"
    assert host_class_of(facts("570.26", H100), (exact, by_capability)) == "r570-h100"


def test_a_class_with_cuda_compat_is_not_taken_for_a_plain_host() -> None:
    compat = declared("r535-h100-compat12.9", "535", "9.0", "h100", "12.9")
    assert host_class_of(facts("535.183.01", H100), (compat,)) == "r535-h100"


def test_a_gpu_of_unknown_capability_still_names_the_host() -> None:
    found = facts("580.95.05", (H100[0], None))
    assert host_class_of(found, (declared("r580-sm90", "580", "9.0"),)) == "r580-h100"


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA Thing 9", "thing-9"),
    ],
)
def test_models_are_named_shortly(name: str, slug: str) -> None:
    assert model_of(name) == slug
