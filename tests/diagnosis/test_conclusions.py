"""Conclusions from several observations."""

from __future__ import annotations

from types import MappingProxyType

import pytest

from validator.compat import kernels, releases
from validator.diagnosis.conclusions import conclude, cuda_of_libraries, likely_release, newest_release_for
from validator.diagnosis.observations import Observation, Observations
from validator.model.prediction import Outcome
from validator.versions import ComputeCapability, leading_numbers


def seen(*entries: tuple[str, dict[str, str]]) -> Observations:
    found = Observations()
    for kind, values in entries:
        found.add(Observation(kind, MappingProxyType(values), f"{kind} {values}", "line 1"))
    conclude(found)
    return found


@pytest.mark.parametrize(
    ("image", "beside", "counts"),
    [
        ("2.18.0", (), True),
        ("2.17.0", (), False),
        ("latest", (), True),
        ("latest", (("tensorflow", {"version": "2.19.0"}),), True),
        ("latest", (("tensorflow", {"version": "2.3.1"}),), False),
        (
            "latest",
            (("cuda_error", {"at": "E tensorflow/stream_executor/cuda/cuda_driver.cc:313]"}),),
            False,
        ),
        (
            "2.18.0",
            (("cuda_error", {"at": "E tensorflow/stream_executor/cuda/cuda_driver.cc:313]"}),),
            True,
        ),
    ],
)
def test_official_images_with_a_wrong_cudnn(
    image: str, beside: tuple[tuple[str, dict[str, str]], ...], counts: bool
) -> None:
    """The tag latest has meant different images over time."""
    found = seen(("image", {"name": f"tensorflow/tensorflow:{image}-gpu-jupyter"}), *beside)
    assert found.has("official_image") is counts


def test_image_tags_that_name_a_python_are_older_than_the_fault() -> None:
    found = seen(("image", {"name": "tensorflow/tensorflow:latest-gpu-py3-jupyter"}))
    assert not found.has("official_image")


def tensorflow(version: str) -> tuple[str, dict[str, str]]:
    return "tensorflow", {"version": version}


def package(name: str, version: str, build: str = "") -> tuple[str, dict[str, str]]:
    return "package", {"name": name, "version": version, "build": build}


CUDA_VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"


@pytest.mark.parametrize(
    ("entries", "kind", "values"),
    [
        ([package("tensorflow-cpu", "2.18.0")], "build_without_cuda", {"build": "tensorflow-cpu"}),
        ([package("tensorflow", "2.4.1", "mkl_py39h4683426_0")], "build_without_cuda", {}),
        (
            [package("tensorflow", "2.18.0"), package("tensorflow_cpu", "2.17.0")],
            "several_tensorflow_packages",
            {"packages": "tensorflow, tensorflow-cpu"},
        ),
        (
            [
                ("gpu_created", {"name": "P100", "memory": "100"}),
                ("device_allocation_failed", {"bytes": "104857600"}),
            ],
            "whole_memory_refused",
            {"memory": "100"},
        ),
        ([("gpu_memory", {"used": "12799", "total": "16280"})], "memory_mostly_used", {"used": "12799"}),
        (
            [tensorflow("1.15.0"), ("gpu", {"name": "RTX 3090"})],
            "gpu_newer_than_cuda",
            {"built_with": "10.0", "newer": "8.6"},
        ),
        ([tensorflow("2.3.1"), ("compute_capability", {"value": "8.0"})], "gpu_newer_than_cuda", {}),
    ],
)
def test_a_conflict_is_found(
    entries: list[tuple[str, dict[str, str]]], kind: str, values: dict[str, str]
) -> None:
    found = seen(*entries).first(kind)
    assert found is not None
    assert values.items() <= dict(found.values).items()
    assert found.text and found.where == "line 1"


@pytest.mark.parametrize(
    ("entries", "kind"),
    [
        (
            [package("tensorflow", "2.18.0"), package("tensorflow-intel", "2.18.0")],
            "several_tensorflow_packages",
        ),
        ([package("tensorflow", "2.4.1", "gpu_py39h8236f22_0")], "build_without_cuda"),
        ([("gpu_memory", {"used": "3", "total": "16280"})], "memory_mostly_used"),
        (
            [
                ("gpu_created", {"name": "P100", "memory": "100"}),
                ("device_allocation_failed", {"bytes": "9437184"}),
            ],
            "whole_memory_refused",
        ),
        ([("gpu_memory", {"used": "x" * 99, "total": "0"})], "memory_mostly_used"),
        ([tensorflow("2.4.1"), ("gpu", {"name": "RTX 3090"})], "gpu_newer_than_cuda"),
        ([("cuda", {"version": "8.0"}), ("cudnn", {"version": "6.0"})], "cudnn_older_than_cuda"),
        ([tensorflow("1.15.0"), ("gpu", {"name": "RTX 2080 Ti"})], "gpu_newer_than_cuda"),
    ],
)
def test_versions_that_fit_are_not_a_conflict(entries: list[tuple[str, dict[str, str]]], kind: str) -> None:
    assert not seen(*entries).has(kind)


@pytest.mark.parametrize(
    ("value", "count", "hides"),
    [
        ("", None, True),
        ("-1", None, True),
        ("100", None, True),
        ("1", "1", True),
        ("1", "2", False),
        ("0", None, False),
        ("0,99", None, False),
        ("GPU-1a2b", None, False),
        ("MIG-1a2b", None, False),
        ("all", None, True),
        ("none", None, True),
        ("$SLURM_GPUS", None, False),
    ],
)
def test_cuda_visible_devices_hides_gpus(value: str, count: str | None, hides: bool) -> None:
    entries: list[tuple[str, dict[str, str]]] = [("variable", {"name": CUDA_VISIBLE_DEVICES, "value": value})]
    if count is not None:
        entries.append(("gpu_count", {"count": count}))
    assert seen(*entries).has("devices_hidden") is hides


def test_nvidia_visible_devices_hides_gpus() -> None:
    assert seen(("variable", {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"})).has("devices_hidden")
    assert not seen(("variable", {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"})).has("devices_hidden")


@pytest.mark.parametrize("capability", ["3.5", "3.7", "5.0", "5.2", "5.3"])
def test_an_old_gpu_has_a_newest_release(capability: str) -> None:
    found = newest_release_for(capability)
    assert found is not None
    stable = [known.version for known in releases.releases() if not known.prerelease]
    outcomes = [
        kernels.run_on(version, ComputeCapability.parse(capability), 580).outcome for version in stable
    ]
    position = stable.index(found)
    assert outcomes[position] is Outcome.WORKS
    assert Outcome.WORKS not in outcomes[position + 1 :]


@pytest.mark.parametrize("capability", ["", "x", "5", "5.x", "5.2.1", "0.0", "3.0", "6.0", "9.0", "12.0"])
def test_other_gpus_have_no_newest_release(capability: str) -> None:
    assert newest_release_for(capability) is None


def test_numbers() -> None:
    assert leading_numbers("2.18.0rc1") == (2, 18, 0)
    assert leading_numbers("v2.4.1-0-g85c8b2a817f") == (2, 4, 1)
    assert leading_numbers("unknown") == ()


@pytest.mark.parametrize(
    ("runtime", "compiled", "build"),
    [
        ("6021", "5105", "old"),
        ("5103", "4007", "old"),
        ("7301", "7003", "old"),
        ("9.3.0", "8.9.4", "recent"),
        ("9.10.1", "9.3.0", "recent"),
        ("90300", "8904", "recent"),
        ("8, 9, 2", "8, 5, 0", "recent"),
        ("7003", "7301", None),
        ("8.9.6", "9.3.0", None),
        ("8904", "90300", None),
        ("9.1.0", "9.1.0", None),
    ],
)
def test_a_rejected_cudnn_may_be_newer(runtime: str, compiled: str, build: str | None) -> None:
    found = seen(("cudnn_version_mismatch", {"runtime": runtime, "compiled": compiled}))
    assert found.value("cudnn_newer_than_built", "build") == build


def test_a_mismatch_without_versions_has_no_direction() -> None:
    assert not seen(("cudnn_version_mismatch", {})).has("cudnn_newer_than_built")


@pytest.mark.parametrize(
    ("release", "cuda", "built"),
    [("2.0", "11", "10.0"), ("2.2", "11", "10.1"), ("2.16.1", "11", "12.3"), ("2.10.0", "11", None)],
)
def test_a_cuda_without_its_minor_version_is_judged(release: str, cuda: str, built: str | None) -> None:
    found = seen(tensorflow(release), ("cuda", {"version": cuda}))
    assert found.value("cuda_of_another_major", "built_with") == built


def test_whole_versions_are_left_to_compat() -> None:
    assert not seen(tensorflow("2.2"), ("cuda", {"version": "11.2"})).has("cuda_of_another_major")


@pytest.mark.parametrize(
    ("library", "cuda", "release"),
    [
        ("libcublas.so.8.0", "8.0", "1.4"),
        ("libcublas.so.9.0", "9.0", "1.12"),
        ("libcudart.so.10.0", "10.0", "2.0"),
        ("libcudart.so.10.1", "10.1", "2.3"),
        ("libcublas.so.10", "10.1", "2.3"),
        ("libcudart.so.11.0", "11.0", "2.11"),
        ("cudart64_100.dll", "10.0", "2.0"),
        ("libcudnn.so.8", "", ""),
        ("libnvinfer.so.7", "", ""),
    ],
)
def test_the_name_of_a_library_shows_the_newest_release_that_opens_it(
    library: str, cuda: str, release: str
) -> None:
    found = seen(("cuda_library_not_loaded", {"library": library}))
    assert cuda_of_libraries(found) == cuda
    likely = likely_release(found)
    assert (likely.minor if likely else "") == release


def test_on_windows_it_is_one_with_cuda_there() -> None:
    found = seen(("cuda_library_not_loaded", {"library": "cudart64_110.dll"}), ("os", {"name": "windows"}))
    likely = likely_release(found)
    assert likely is not None and likely.minor == "2.10"


@pytest.mark.parametrize("release", [one for one in releases.releases() if one.cuda and not one.prerelease])
def test_a_library_is_that_of_the_cuda_of_the_release_in_use(release: releases.Release) -> None:
    """CUDA 11 and CUDA 12 have a libcusolver.so.11."""
    missing = ("cuda_library_not_loaded", {"library": "libcusolver.so.11"})
    found = cuda_of_libraries(seen(("tensorflow", {"version": release.version}), missing))
    assert leading_numbers(found)[:1] == leading_numbers(release.cuda)[:1]


@pytest.mark.parametrize(("cuda", "expected"), [("11.2", "11.0"), ("12.5", "12.0"), ("13.0", "11.0")])
def test_without_a_release_the_toolkit_says_whose_library_it_is(cuda: str, expected: str) -> None:
    missing = ("cuda_library_not_loaded", {"library": "libcusolver.so.11"})
    assert cuda_of_libraries(seen(("cuda", {"version": cuda}), missing)) == expected


@pytest.mark.parametrize(
    ("printed", "driver"),
    [
        ("580.159.4", "580.159.04"),
        ("535.104.12", "535.104.12"),
        ("384.111.0", "384.111.0"),
        ("570.26", "570.26"),
    ],
)
def test_a_driver_that_tensorflow_prints_is_named_as_nvidia_names_it(printed: str, driver: str) -> None:
    assert seen(("kernel_driver_version", {"version": printed})).value("driver", "version") == driver


def test_a_uuid_that_no_gpu_has_hides_all() -> None:
    variable = ("variable", {"name": "CUDA_VISIBLE_DEVICES", "value": "GPU-12345678-1234"})
    assert not seen(variable).has("devices_hidden")
    assert seen(variable, ("cuda_error", {"code": "100", "place": "cuinit"})).has("devices_hidden")
