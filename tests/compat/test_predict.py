"""Predictions that must come out right: what is asked, what comes out, and the fact that decides it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from validator.compat import hardware
from validator.compat.facts import UnknownRelease
from validator.compat.judge import judge
from validator.compat.policies import choose
from validator.compat.predict import host_of, image_support, predict, software_of
from validator.compat.releases import release, releases
from validator.model.prediction import EAGER, Outcome, Prediction
from validator.model.spec import AS_BUILT, LATEST, Cell, Choice, HostClass, ImageSpec, Variant
from validator.reports.terminal import driver_range
from validator.versions import ComputeCapability, DriverRelease, Version

from .cells import cell, host

WORKS, FAILS, UNKNOWN = Outcome.WORKS, Outcome.FAILS, Outcome.UNKNOWN


def case(
    expected: Outcome, fact: str, tensorflow: str, gpu: str, driver: str, policy: str = AS_BUILT, **more: Any
) -> Any:
    name = "-".join((tensorflow, gpu, driver, policy, *(f"{key}={value}" for key, value in more.items())))
    return pytest.param(cell(tensorflow, gpu, driver, policy, **more), None, expected, fact, id=name)


def eager(*asked: Any, **more: Any) -> Any:
    """Return a case that asks only about eager operations."""
    whole = case(*asked, **more)
    return pytest.param(whole.values[0], EAGER, *whole.values[2:], id=whole.id)


@pytest.mark.parametrize(
    ("asked", "mode", "expected", "fact"),
    [
        # Volta: cuDNN dropped it in 9.11, drivers after R580.
        case(FAILS, "cudnn-9.12", "2.21.0", "v100", "580", LATEST),
        case(FAILS, "cudnn-9.12", "2.21.0", "v100", "535", LATEST),
        case(FAILS, "cudnn-9.12", "2.20.0", "p100", "570", LATEST),
        case(FAILS, "cudnn-9.12", "2.21.0", "gtx 1080 ti", "570", LATEST),
        case(FAILS, "cudnn-9.11", "2.21.0", "v100", "570", cudnn="9.11"),
        eager(WORKS, "minor-version-12", "2.21.0", "v100", "525.60.13"),
        eager(WORKS, "minor-version-12", "2.21.0", "v100", "535"),
        eager(WORKS, "branch-580", "2.21.0", "v100", "580"),
        eager(WORKS, "branch-580", "2.21.0", "v100", "580.95.05"),
        eager(WORKS, "branch-580", "2.21.0", "p100", "580"),
        eager(WORKS, "toolkit-12.5.0", "2.21.0", "v100", "570", cudnn="9.10.2"),
        case(FAILS, "last-branch-volta", "2.21.0", "v100", "590"),
        case(FAILS, "last-branch-volta", "2.21.0", "v100", "590.44.01"),
        case(FAILS, "last-branch-volta", "2.21.0", "p100", "595"),
        eager(WORKS, "branch-590", "2.21.0", "t4", "590"),
        case(FAILS, "last-branch-volta", "2.14.1", "v100", "590"),
        # Hopper: some kernels are PTX 8.5 only, which R555 was the first to compile.
        case(FAILS, "ptx-8.5", "2.21.0", "h100", "535"),
        case(FAILS, "ptx-8.5", "2.21.0", "h100", "535.183.01"),
        case(FAILS, "ptx-8.5", "2.21.0", "h100", "525.60.13"),
        case(FAILS, "ptx-8.5", "2.21.0", "h100", "550.144.03"),
        case(FAILS, "ptx-8.5", "2.21.0", "h100", "535", LATEST),
        case(FAILS, "ptx-8.5", "2.21.0", "h200", "550"),
        case(FAILS, "ptx-8.5", "2.21.0", "9.0", "550"),
        case(FAILS, "ptx-8.5", "2.20.0", "h100", "535"),
        case(FAILS, "ptx-8.5", "2.19.1", "h100", "550"),
        eager(WORKS, "toolkit-12.5.0", "2.21.0", "h100", "555"),
        eager(WORKS, "toolkit-12.5.0", "2.21.0", "h100", "555.42.02"),
        eager(WORKS, "toolkit-12.5.0", "2.21.0", "h100", "570"),
        eager(WORKS, "branch-580", "2.21.0", "h100", "580"),
        case(WORKS, "branch-580", "2.21.0", "h200", "580", LATEST),
        case(WORKS, "minor-version-12", "2.21.0", "h100", "570", LATEST),
        # Earlier releases have an older PTX, which only their wheels show, not their CUDA version.
        case(FAILS, "ptx-8.3", "2.18.1", "h100", "535"),
        case(WORKS, "minor-version-12", "2.18.1", "h100", "550"),
        case(WORKS, "minor-version-12", "2.18.0", "h100", "545"),
        case(FAILS, "ptx-8.3", "2.17.1", "h100", "535"),
        case(WORKS, "toolkit-12.3.0", "2.17.1", "h100", "545"),
        case(WORKS, "minor-version-12", "2.16.2", "h100", "525.60.13", cudnn=AS_BUILT),
        # What the wheel has no code for is NCCL, which one GPU does not need.
        case(WORKS, "toolkit-12.2.0", "2.15.1", "h100", "535"),
        # Everything else has machine code, so the documented minimum applies.
        eager(WORKS, "minor-version-12", "2.21.0", "a100", "535"),
        eager(WORKS, "minor-version-12", "2.21.0", "a100", "525.60.13"),
        eager(WORKS, "minor-version-12", "2.21.0", "a100", "525"),
        case(FAILS, "minor-version-12", "2.21.0", "a100", "525.53"),
        case(WORKS, "minor-version-12", "2.21.0", "a100", "535", LATEST),
        eager(WORKS, "minor-version-12", "2.21.0", "a100", "525.60.13", "12.9"),
        eager(WORKS, "minor-version-12", "2.21.0", "a100", "525.60.13", "12.9", cudnn="9.10.2"),
        eager(WORKS, "minor-version-12", "2.21.0", "l4", "535"),
        eager(WORKS, "minor-version-12", "2.21.0", "rtx 4090", "550.144.03"),
        eager(WORKS, "minor-version-12", "2.21.0", "rtx 3090", "535"),
        eager(WORKS, "minor-version-12", "2.21.0", "t4", "535"),
        case(WORKS, "minor-version-12", "2.21.0", "t4", "535", LATEST),
        eager(WORKS, "branch-610", "2.21.0", "a100", "610"),
        case(UNKNOWN, "branch-620", "2.21.0", "a100", "700"),
        # A driver without CUDA 12.
        case(FAILS, "minor-version-12", "2.21.0", "t4", "470"),
        case(FAILS, "minor-version-12", "2.21.0", "a100", "470.256.02", LATEST),
        case(FAILS, "minor-version-12", "2.15.1", "t4", "470"),
        case(FAILS, "minor-version-12", "2.18.1", "v100", "520.61.05"),
        case(FAILS, "ptx-7.0", "2.21.0", "a100", "440"),
        case(FAILS, "minor-version-12", "2.21.0", "v100", "440"),
        # CUDA 11.8 runs from R450 on where no PTX needs compiling.
        case(WORKS, "minor-version-11", "2.14.1", "t4", "470"),
        case(WORKS, "minor-version-11", "2.14.1", "v100", "470.82.01"),
        case(WORKS, "minor-version-11", "2.14.1", "v100", "450.80.02"),
        case(FAILS, "minor-version-11", "2.14.1", "v100", "450.51.06"),
        case(WORKS, "minor-version-11", "2.14.1", "a100", "470"),
        case(FAILS, "ptx-7.1", "2.14.1", "a100", "450.80.02"),
        case(WORKS, "branch-535", "2.14.1", "h100", "535"),
        case(WORKS, "branch-535", "2.14.1", "l4", "535"),
        case(WORKS, "toolkit-11.8.0", "2.14.1", "a100", "520.61.05"),
        case(WORKS, "branch-535", "2.14.1", "a100", "535"),
        case(WORKS, "branch-580", "2.14.1", "v100", "580"),
        # A driver that is older than the GPU.
        case(FAILS, "ptx-7.8", "2.14.1", "h100", "470"),
        case(FAILS, "ptx-7.8", "2.14.1", "l4", "510.47.03"),
        case(FAILS, "ptx-8.7", "2.22.0rc0", "rtx 5090", "565"),
        # Forward compatibility: for data-center GPUs, on base branches that are still supported.
        eager(WORKS, "compat-12.9", "2.21.0", "h100", "535", compat="12.9"),
        eager(WORKS, "compat-12.9", "2.21.0", "h100", "535.183.01", compat="12.9"),
        eager(WORKS, "compat-12.9", "2.21.0", "a100", "535", compat="12.9"),
        eager(WORKS, "compat-12.5", "2.21.0", "h100", "535", compat="12.5"),
        eager(WORKS, "compat-13.0", "2.21.0", "h100", "570", compat="13.0"),
        case(FAILS, "ptx-8.5", "2.21.0", "h100", "535", compat="12.4"),
        case(FAILS, "compat-error-804", "2.21.0", "rtx 4090", "535", compat="12.9"),
        case(FAILS, "compat-error-804", "2.21.0", "rtx 4090", "550.144.03", compat="12.9"),
        case(FAILS, "compat-error-804", "2.21.0", "titan v", "535", compat="12.9"),
        case(UNKNOWN, "compat-eligible", "2.21.0", "rtx a6000", "535", compat="12.9"),
        case(UNKNOWN, "compat-12.9", "2.21.0", "h100", "550", compat="12.9"),
        case(UNKNOWN, "compat-12.9", "2.21.0", "a100", "470", compat="12.9"),
        case(UNKNOWN, "compat-12.9", "2.21.0", "a100", "580", compat="12.9"),
        eager(WORKS, "compat-12.9", "2.21.0", "a100", "575", compat="12.9"),
        case(UNKNOWN, "compat-eligible", "2.21.0", "a100", "535", compat="12.7"),
        case(FAILS, "last-branch-volta", "2.21.0", "v100", "535", compat="13.1"),
        eager(WORKS, "compat-12.9", "2.21.0", "9.0", "535", compat="12.9"),
        case(UNKNOWN, "compat-eligible", "2.21.0", "8.6", "535", compat="12.9"),
        # What cannot be installed.
        case(FAILS, "KB-TRT-2150", "2.15.0", "a100", "535", LATEST),
        case(FAILS, "KB-TRT-2150", "2.15.0", "a100", "470", LATEST, python="3.9"),
        case(FAILS, "KB-TRT-2150", "2.15.0", "a100", "535", LATEST, cudnn=AS_BUILT),
        case(WORKS, "toolkit-12.2.0", "2.15.1", "a100", "535", LATEST),
        case(WORKS, "toolkit-12.2.0", "2.15.0", "a100", "535"),
        case(FAILS, "KB-TRT-2140", "2.14.1", "t4", "535", LATEST, python="3.11"),
        case(FAILS, "KB-TRT-2140", "2.14.0", "t4", "535", LATEST, python="3.11"),
        case(WORKS, "branch-535", "2.14.1", "t4", "535", LATEST, python="3.10"),
        case(WORKS, "branch-535", "2.14.1", "t4", "535", python="3.11"),
        case(FAILS, "KB-NUMPY2-2140", "2.14.0", "t4", "535", LATEST, python="3.10"),
        case(WORKS, "branch-535", "2.14.0", "t4", "535", python="3.10"),
        case(FAILS, "tensorflow-2.21.0", "2.21.0", "a100", "580", python="3.9"),
        case(FAILS, "tensorflow-2.21.0", "2.21.0", "a100", "470", python="3.14"),
        case(FAILS, "tensorflow-2.17.1", "2.17.1", "a100", "580", python="3.13"),
        case(FAILS, "tensorflow-2.15.1", "2.15.1", "a100", "580", python="3.12"),
        # Blackwell.
        case(FAILS, "xla-ptx-8.5", "2.21.0", "b200", "580", LATEST),
        case(FAILS, "xla-ptx-8.5", "2.21.0", "rtx 5090", "580"),
        case(FAILS, "build-2.18.1", "2.18.1", "rtx pro 6000 blackwell", "590"),
        # LLVM of these releases has no target for Blackwell, so XLA compiles for an older one.
        case(UNKNOWN, "cudnn-8.7", "2.14.1", "b200", "580"),
        case(FAILS, "xla-ptx-8.5", "2.21.0", "10.3", "610"),
        case(WORKS, "branch-580", "2.22.0rc0", "b200", "580", LATEST),
        case(UNKNOWN, "xla-ptx-8.7", "2.22.0rc0", "b300", "610", LATEST),
        case(UNKNOWN, "xla-ptx-8.7", "2.22.0rc0", "12.1", "610", LATEST),
        case(FAILS, "xla-ptx-8.7", "2.22.0rc0", "b200", "580"),
        # GPUs that are only in systems with an Arm processor.
        case(FAILS, "aarch64-without-cuda", "2.14.1", "gb200", "580"),
        case(FAILS, "aarch64-without-cuda", "2.22.0rc0", "gb10", "610", LATEST),
        # Too old a GPU.
        case(FAILS, "build-2.21.0", "2.21.0", "m60", "580"),
        case(FAILS, "last-branch-kepler", "2.21.0", "k80", "535"),
        case(FAILS, "minor-version-12", "2.21.0", "k80", "470"),
        case(FAILS, "last-branch-kepler", "2.14.1", "k80", "535"),
        # cuDNN other than the one that TensorFlow was compiled with.
        case(FAILS, "cudnn-same-major-newer-minor", "2.18.0", "a100", "570", cudnn="9.1"),
        case(FAILS, "cudnn-same-major-newer-minor", "2.21.0", "a100", "570", cudnn="8.9"),
        eager(WORKS, "toolkit-12.5.0", "2.21.0", "a100", "570", cudnn="9.4"),
        # CUDA other than the one that TensorFlow was built with.
        case(FAILS, "tensorflow-2.21.0", "2.21.0", "a100", "580", "13.0", cudnn="9.12"),
        case(FAILS, "tensorflow-2.14.1", "2.14.1", "a100", "580", "12.2", cudnn="8.9"),
        eager(UNKNOWN, "tensorflow-2.21.0", "2.21.0", "a100", "580", "12.2", cudnn="9.3"),
        # XLA of 2.21 and the convolution with bias, which cuDNN has a configuration for from 9.24 on.
        case(FAILS, "KB-FUSED-CONV", "2.21.0", "t4", "580"),
        case(FAILS, "KB-FUSED-CONV", "2.21.0", "a10", "580"),
        case(FAILS, "KB-FUSED-CONV", "2.21.0", "a10g", "535"),
        case(FAILS, "KB-FUSED-CONV", "2.21.0", "l4", "580"),
        case(FAILS, "KB-FUSED-CONV", "2.21.0", "l4", "580", "12.9", cudnn="9.5"),
        case(UNKNOWN, "KB-FUSED-CONV-GPU", "2.21.0", "rtx 4090", "580"),
        case(UNKNOWN, "KB-FUSED-CONV-GPU", "2.21.0", "h100", "570"),
        case(UNKNOWN, "KB-FUSED-CONV-GPU", "2.21.0", "v100", "580"),
        case(UNKNOWN, "KB-FUSED-CONV-GPU", "2.21.0", "7.5", "580"),
        case(WORKS, "branch-580", "2.21.0", "h200", "580"),
        case(UNKNOWN, "KB-FUSED-CONV-GPU", "2.21.0", "h200", "580", "12.9", cudnn="9.5"),
        case(UNKNOWN, "KB-FUSED-CONV-CUDNN", "2.21.0", "t4", "580", cudnn="9.4"),
        case(UNKNOWN, "KB-FUSED-CONV-CUDNN", "2.21.0", "t4", "580", cudnn="9.6"),
        case(UNKNOWN, "KB-FUSED-CONV-CUDNN", "2.21.0", "h200", "580", cudnn="9.23"),
        case(WORKS, "branch-580", "2.21.0", "t4", "580", cudnn="9.24"),
        case(WORKS, "branch-580", "2.21.0", "l4", "580", LATEST),
        case(WORKS, "branch-580", "2.20.0", "t4", "580"),
        # Wheels that don't look where NVIDIA's wheels put the libraries.
        # Images and environments tell the loader about those folders.
        case(WORKS, "minor-version-12", "2.16.1", "a100", "535"),
        case(WORKS, "minor-version-12", "2.16.2", "a100", "535"),
        case(WORKS, "branch-535", "2.13.1", "a100", "535"),
        case(WORKS, "branch-535", "2.12.0", "v100", "535"),
    ],
)
def test_predictions(asked: Cell, mode: str | None, expected: Outcome, fact: str) -> None:
    prediction = predict(asked)
    if mode is not None:
        prediction = judge(software_of(asked.image), host_of(asked.host), mode)
    assert prediction.outcome is expected, said(prediction)
    assert prediction.reasons[0].fact == fact, said(prediction)


def said(prediction: Prediction) -> str:
    return "\n".join(f"{one.outcome.value} [{one.fact}] {one.text}" for one in prediction.reasons)


def advisories(asked: Cell) -> set[str]:
    return {reason.fact for reason in predict(asked).reasons if reason.advisory}


@pytest.mark.parametrize(
    ("fact", "given", "not_given"),
    [
        ("KB-FUSED-CONV-FLOAT32", cell("2.21.0", "h200", "570"), cell("2.21.0", "h100", "570")),
        ("KB-PTXAS-HOPPER", cell("2.21.0", "h100", "570"), cell("2.21.0", "h100", "580", LATEST)),
        (
            "KB-PTXAS-HOPPER",
            cell("2.21.0", "h100", "570", "12.6.2", cudnn="9.3"),
            cell("2.21.0", "a100", "570"),
        ),
        (
            "KB-PTXAS-HOPPER",
            cell("2.21.0", "h100", "570", "12.6.1", cudnn="9.3"),
            cell("2.21.0", "h100", "570", "12.6.3", cudnn="9.3"),
        ),
        ("KB-H100-JIT", cell("2.14.1", "h100", "535"), cell("2.21.0", "h100", "570")),
        ("KB-H100-JIT", cell("2.15.1", "h100", "535"), cell("2.16.2", "h100", "535")),
        ("KB-LIBDEVICE", cell("2.13.1", "a100", "535"), cell("2.14.1", "a100", "535")),
        ("build-2.21.0", cell("2.21.0", "a100", "535"), cell("2.20.0", "a100", "535")),
        ("build-2.16.1", cell("2.16.1", "a100", "535"), cell("2.16.2", "a100", "535")),
        ("KB-RPATH-2161", cell("2.16.1", "a100", "535"), cell("2.16.2", "a100", "535")),
        ("build-2.13.1", cell("2.13.1", "a100", "535"), cell("2.14.1", "a100", "535")),
        ("build-2.12.0", cell("2.12.0", "v100", "535"), cell("2.14.0", "v100", "535")),
        ("KB-KERAS3-OLD-TF", cell("2.18.1", "a100", "570"), cell("2.21.0", "a100", "570")),
        ("KB-NUMPY2", cell("2.10.1", "a100", "570"), cell("2.12.1", "a100", "570")),
        ("KB-PROTOBUF", cell("2.9.0", "a100", "570"), cell("2.9.3", "a100", "570")),
    ],
)
def test_advisories_are_given_only_for_the_cells_they_concern(
    fact: str, given: Cell, not_given: Cell
) -> None:
    assert fact in advisories(given)
    assert fact not in advisories(not_given)


def test_an_advisory_does_not_change_the_outcome() -> None:
    prediction = predict(cell("2.21.0", "h200", "570"))
    assert prediction.outcome is WORKS
    assert prediction.reasons[-1].advisory


@pytest.mark.parametrize("gpu", ["t4", "a10", "l4"])
def test_the_fused_convolution_fails_only_under_xla_and_says_what_works_and_repairs_it(gpu: str) -> None:
    prediction = predict(cell("2.21.0", gpu, "580"))
    assert (prediction.eager, prediction.xla) == (WORKS, FAILS)
    (reason,) = [one for one in prediction.reasons if one.outcome is FAILS]
    assert "eager operations, jit_compile=False and other models work" in reason.text
    assert 'pip install "nvidia-cudnn-cu12>=9.24"' in reason.text
    for number in (6417, 6418, 6432):
        assert f"https://github.com/aws/deep-learning-containers/issues/{number}" in reason.source
    repaired = predict(cell("2.21.0", gpu, "580", cudnn="9.24"))
    assert not any(one.fact.startswith("KB-FUSED-CONV") for one in repaired.reasons)


@pytest.mark.parametrize(
    "asked", [cell("2.21.0", "a100", "580"), cell("2.21.0", "a100", "580", cudnn="9.10")]
)
def test_what_nobody_measured_is_unknown_and_says_so(asked: Cell) -> None:
    prediction = predict(asked)
    assert (prediction.eager, prediction.xla) == (WORKS, UNKNOWN)
    assert prediction.reasons[0].text.startswith("not measured ")


def test_a_positive_prediction_gives_its_reasons() -> None:
    prediction = predict(cell("2.21.0", "a100", "535"))
    texts = " / ".join(reason.text for reason in prediction.reasons)
    assert "driver 535 runs CUDA 12.5 by minor-version compatibility (525.60.13 or newer)" in texts
    assert "machine code for compute capability 8.0" in texts
    assert "cuDNN 9.3.0.75 supports compute capability 8.0" in texts
    assert "XLA compiles its kernels to machine code with ptxas 12.5.82" in texts
    assert "a wheel for Python 3.13" in texts


def test_a_negative_prediction_says_what_would_work() -> None:
    reason = predict(cell("2.21.0", "h100", "535")).reasons[0]
    assert "PTX ISA 8.5, which drivers from R555 on compile" in reason.text
    assert reason.status == "derived"
    assert "PTX ISA" in reason.source


def test_binary_compatibility_is_mentioned() -> None:
    texts = [reason.text for reason in predict(cell("2.21.0", "t4", "535")).reasons]
    assert any("compute capability 7.0, which 7.5 runs by binary compatibility" in text for text in texts)


# -- a lock decides what a floating choice means --------------------------------------------------------


def test_a_lock_decides_what_a_floating_choice_means() -> None:
    asked = cell("2.21.0", "v100", "570", LATEST)
    assert predict(asked).outcome is FAILS
    old_lock = {"nvidia-cudnn-cu12": "9.10.2.21", "nvidia-cuda-runtime-cu12": "12.9.79", "numpy": "2.2.6"}
    assert predict(asked, old_lock).eager is WORKS
    assert predict(asked, {**old_lock, "nvidia-cudnn-cu12": "9.11.0.98"}).outcome is FAILS


def test_a_lock_without_numpy_2_fixes_2_14_0() -> None:
    asked = cell("2.14.0", "t4", "535", LATEST, python="3.10")
    assert predict(asked, {"numpy": "2.2.6"}).outcome is FAILS
    assert predict(asked, {"numpy": "1.26.4"}).outcome is WORKS


def test_the_version_of_ptxas_in_the_lock_counts() -> None:
    asked = cell("2.21.0", "h100", "580", LATEST)
    assert "KB-PTXAS-HOPPER" not in advisories(asked)
    locked = predict(asked, {"nvidia-cuda-nvcc-cu12": "12.5.82"})
    assert "KB-PTXAS-HOPPER" in {reason.fact for reason in locked.reasons}


# -- without CUDA, without GPU ---------------------------------------------------------------------------


@pytest.mark.parametrize("where", [host("v100", "470"), host("rtx 5090", "590"), HostClass.without_gpu()])
def test_the_cpu_variant_works_anywhere(where: HostClass) -> None:
    prediction = predict(Cell(ImageSpec("2.21.0", "3.12", Variant.CPU), where))
    assert prediction.outcome is WORKS
    assert prediction.reasons[0].fact == "tensorflow-cpu"


def test_the_cpu_variant_needs_a_wheel_too() -> None:
    prediction = predict(Cell(ImageSpec("2.21.0", "3.8", Variant.CPU), host("v100", "470")))
    assert (prediction.outcome, prediction.reasons[0].fact) == (FAILS, "tensorflow-2.21.0")


def test_without_a_gpu_there_are_no_reasons_about_gpus() -> None:
    image = cell("2.21.0", "a100", "535").image
    prediction = predict(Cell(image, HostClass.without_gpu()))
    assert (prediction.outcome, prediction.reasons[0].fact) == (UNKNOWN, "no-gpu")


def test_an_impossible_installation_fails_without_a_gpu_too() -> None:
    image = cell("2.15.0", "a100", "535", LATEST).image
    prediction = predict(Cell(image, HostClass.without_gpu()))
    assert (prediction.outcome, prediction.reasons[0].fact) == (FAILS, "KB-TRT-2150")


def test_an_unlisted_gpu_is_judged_by_its_capability() -> None:
    asked = cell("2.21.0", "a100", "535")
    unnamed = HostClass("x", asked.host.driver, asked.host.compute_capability, gpu="Some New Card")
    assert predict(Cell(asked.image, unnamed)).eager is WORKS
    with_compat = HostClass(
        "x", asked.host.driver, asked.host.compute_capability, "Some New Card", (), "12.9"
    )
    assert predict(Cell(asked.image, with_compat)).reasons[0].fact == "compat-eligible"


def test_an_unknown_release_is_an_error() -> None:
    image = ImageSpec("9.9.9", "3.12", Variant.GPU, Choice(AS_BUILT, "12.5"), Choice(AS_BUILT, "9.3"))
    with pytest.raises(UnknownRelease):
        predict(Cell(image, host("a100", "535")))


@pytest.mark.parametrize(
    ("version", "policy", "eager", "xla"),
    [
        ("2.15.1", AS_BUILT, UNKNOWN, UNKNOWN),  # whether cuDNN 8.9 has kernels is not known
        ("2.16.2", AS_BUILT, FAILS, FAILS),
        ("2.18.1", AS_BUILT, FAILS, FAILS),
        ("2.20.0", LATEST, FAILS, FAILS),
        ("2.21.0", AS_BUILT, WORKS, FAILS),
        ("2.21.0", LATEST, WORKS, FAILS),
        ("2.22.0rc0", AS_BUILT, WORKS, FAILS),
        ("2.22.0rc0", LATEST, WORKS, WORKS),
    ],
)
@pytest.mark.parametrize("gpu", ["b200", "rtx 5090"])
def test_blackwell_with_eager_operations_and_with_xla(
    version: str, policy: str, eager: Outcome, xla: Outcome, gpu: str
) -> None:
    prediction = predict(cell(version, gpu, "580", policy))
    assert (prediction.eager, prediction.xla) == (eager, xla), said(prediction)
    rules = {reason.rule for reason in prediction.reasons if reason.outcome is FAILS}
    knows_blackwell = Version(version) >= Version("2.19")
    assert ("xla_without_gpu_target" in rules) == (xla is FAILS and knows_blackwell)
    assert ("no_kernels_for_gpu" in rules) == (eager is FAILS)


def test_a_jetson_has_no_cuda_with_the_wheel_from_pypi() -> None:
    prediction = predict(cell("2.21.0", "jetson agx orin", "540.4.0"))
    assert prediction.outcome is FAILS
    assert "platform_without_cuda" in {reason.rule for reason in prediction.reasons}


# The summary of the machines that an image supports agrees with every prediction.


VERSIONS = [known.version for known in releases()]


def image(version: str) -> ImageSpec:
    found = release(version)
    cuda, cudnn = choose(found, AS_BUILT, AS_BUILT, within_metadata=False)
    return ImageSpec(version, found.pythons[-1], Variant.GPU, cuda, cudnn)


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_a_branch_is_listed_if_works_is_predicted(version: str) -> None:
    spec = image(version)
    for gpu in image_support(spec).gpus:
        models: list[str | None] = [hardware.gpu(name).slug for name in (gpu.gpus[0], gpu.gpus[-1])]
        if gpu.label == gpu.compute_capability:
            models.append(None)
        capability = ComputeCapability.parse(gpu.compute_capability)
        for branch, model in itertools.product(hardware.branches(), models):
            host = HostClass("any", DriverRelease.parse(str(branch.number)), capability, model)
            works = predict(Cell(spec, host)).outcome is Outcome.WORKS
            assert (branch.number in gpu.drivers) is works, model
        assert (gpu.reason is None) is bool(gpu.drivers)
        assert gpu.reason is None or gpu.reason.outcome is not Outcome.WORKS


def test_the_reason_against_a_gpu_is_not_an_old_driver() -> None:
    [maxwell] = [gpu for gpu in image_support(image("2.18.0")).gpus if gpu.compute_capability == "5.2"]
    assert maxwell.reason is not None
    assert "no kernels for compute capability 5.2" in maxwell.reason.text


@pytest.mark.parametrize("version", VERSIONS)
def test_no_reason_names_a_driver_that_nobody_gave(version: str) -> None:
    reasons = [gpu.reason for gpu in image_support(image(version)).gpus if gpu.reason is not None]
    assert not [reason.text for reason in reasons if "; this is " in reason.text]


def test_a_gpu_whose_last_driver_is_too_old_for_cuda_names_both() -> None:
    [kepler] = [gpu for gpu in image_support(image("2.21.0")).gpus if gpu.compute_capability == "3.5"]
    assert kepler.reason is not None and kepler.reason.rule == "driver_dropped_gpu"
    assert kepler.reason.text.endswith("needs R470 or older, and CUDA 12.5 needs R525 or newer")


def test_spans_of_branches() -> None:
    known = [branch.number for branch in hardware.branches()]
    assert driver_range(known[5:]) == f"R{known[5]} or newer"
    assert driver_range(known[5:8]) == f"R{known[5]} to R{known[7]}"
    assert driver_range(known[5:6]) == f"R{known[5]}"
    assert driver_range([known[5], known[8]]) == f"R{known[5]}, R{known[8]}"


def test_models_about_which_a_fact_says_something_else_are_a_row_of_their_own() -> None:
    spec = ImageSpec("2.21.0", "3.12", Variant.GPU, Choice("as-built", "12.5"), Choice("9.3", "9.3"))
    found = image_support(spec)
    failing = {
        one.label: (one.gpus, one.drivers, one.reason.sentence.partition(" ")[0])
        for one in found.gpus
        if one.reason is not None and one.reason.fact == "KB-FUSED-CONV"
    }
    assert failing == {
        "7.5, T4": (("T4",), (), "XLA:"),
        "8.6, A10, A10G": (("A10", "A10G"), (), "XLA:"),
        "8.9, L4": (("L4",), (), "XLA:"),
    }
    labels = [one.label for one in found.gpus]
    assert "7.5, other GPUs" in labels and "9.0, H200" in labels and "8.0" in labels
    named = [name for one in found.gpus for name in one.gpus]
    assert len(named) == len(set(named))
    # Nothing that holds on every machine speaks about some models.
    assert [one for one in found.reasons if one.fact.startswith("KB-FUSED")] == []
    assert not found.fails
    assert {one.label for one in image_support(spec, "eager").gpus} == {
        one.compute_capability for one in found.gpus
    }
