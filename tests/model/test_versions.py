from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validator.versions import ComputeCapability, CudaVersion, DriverRelease, decode_cudnn


@pytest.mark.parametrize(
    ("text", "branch", "point"),
    [("535.183.01", 535, (183, 1)), ("535", 535, ()), ("R535", 535, ()), ("570.26", 570, (26,))],
)
def test_driver_releases_are_read(text: str, branch: int, point: tuple[int, ...]) -> None:
    release = DriverRelease.parse(text)
    assert (release.branch, release.point) == (branch, point)


@pytest.mark.parametrize("text", ["", "12.2", "535.", "535.183.01.7", "5351234", "v535", "535.x"])
def test_other_text_is_no_driver_release(text: str) -> None:
    with pytest.raises(ValueError, match="is not a driver release"):
        DriverRelease.parse(text)


def test_a_branch_stands_for_its_newest_release() -> None:
    assert DriverRelease.parse("525") > DriverRelease.parse("525.60.13")
    assert DriverRelease.parse("525") < DriverRelease.parse("530.30.02")


def test_leading_zeros_do_not_matter_for_order() -> None:
    assert DriverRelease.parse("535.104.05") < DriverRelease.parse("535.183.01")
    assert DriverRelease.parse("535.54.03") < DriverRelease.parse("535.104.05")
    assert str(DriverRelease.parse("535.104.05")) == "535.104.05"


@given(
    st.lists(st.integers(0, 9999), min_size=3, max_size=3),
    st.lists(st.integers(0, 9999), min_size=3, max_size=3),
)
def test_driver_releases_order_as_their_numbers(one: list[int], other: list[int]) -> None:
    def release(parts: list[int]) -> DriverRelease:
        return DriverRelease.parse(f"{parts[0] % 900 + 100}.{parts[1]}.{parts[2]}")

    first, second = release(one), release(other)
    assert (first < second) == ((first.branch, *first.point) < (second.branch, *second.point))
    assert (first == second) == (hash(first) == hash(second) and not first < second and not second < first)


@pytest.mark.parametrize("text", ["9.0", "90", "sm_90", "compute_90", "sm_90a", "SM_90"])
def test_compute_capabilities_are_read_as_people_write_them(text: str) -> None:
    assert ComputeCapability.parse(text) == ComputeCapability(9, 0)


def test_two_digit_majors() -> None:
    assert ComputeCapability.parse("sm_120") == ComputeCapability(12, 0)
    assert ComputeCapability.parse("10.3") == ComputeCapability(10, 3)
    assert ComputeCapability(12, 0).sm == "sm_120"
    assert ComputeCapability(9, 0) < ComputeCapability(12, 0)


@pytest.mark.parametrize(
    ("number", "version"),
    [(8907, "8.9.7"), (8700, "8.7.0"), (90300, "9.3.0"), (91002, "9.10.2"), (92800, "9.28.0")],
)
def test_both_cudnn_encodings(number: int, version: str) -> None:
    assert decode_cudnn(number) == version


def test_driver_api_numbers() -> None:
    assert str(CudaVersion.from_driver_api(12020)) == "12.2"
    assert CudaVersion.parse("12.5.1") == CudaVersion(12, 5)
    assert CudaVersion.parse("12.9") < CudaVersion.parse("12.10")
