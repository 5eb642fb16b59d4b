"""The summary of the machines that an image supports agrees with every prediction."""

from __future__ import annotations

import itertools

import pytest

from validator.compat import drivers, gpus
from validator.compat.image_support import image_support
from validator.compat.policies import choose
from validator.compat.predict import predict
from validator.compat.releases import release, releases
from validator.model.prediction import Outcome
from validator.model.spec import AS_BUILT, Cell, Choice, HostClass, ImageSpec, Variant
from validator.reports.terminal import driver_range
from validator.versions import DriverRelease

VERSIONS = [known.version for known in releases()]


def image(version: str) -> ImageSpec:
    found = release(version)
    cuda, cudnn = choose(found, AS_BUILT, AS_BUILT, within_metadata=False)
    return ImageSpec(version, found.pythons[-1], Variant.GPU, cuda, cudnn)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_branch_is_listed_if_works_is_predicted(version: str) -> None:
    spec = image(version)
    for gpu in image_support(spec).gpus:
        models: list[str | None] = [gpus.gpu(name).slug for name in (gpu.gpus[0], gpu.gpus[-1])]
        if gpu.label == str(gpu.capability):
            models.append(None)
        for branch, model in itertools.product(drivers.branches(), models):
            host = HostClass("any", DriverRelease.parse(str(branch.number)), gpu.capability, model)
            works = predict(Cell(spec, host)).outcome is Outcome.WORKS
            assert (branch.number in gpu.branches) is works, model
        assert (gpu.reason is None) is bool(gpu.branches)
        assert gpu.reason is None or gpu.reason.outcome is not Outcome.WORKS


def test_the_reason_against_a_gpu_is_not_an_old_driver() -> None:
    [maxwell] = [gpu for gpu in image_support(image("2.18.0")).gpus if str(gpu.capability) == "5.2"]
    assert maxwell.reason is not None
    assert "no kernels for compute capability 5.2" in maxwell.reason.text


@pytest.mark.parametrize("version", VERSIONS)
def test_no_reason_names_a_driver_that_nobody_gave(version: str) -> None:
    reasons = [gpu.reason for gpu in image_support(image(version)).gpus if gpu.reason is not None]
    assert not [reason.text for reason in reasons if "; this is " in reason.text]


def test_a_gpu_whose_last_driver_is_too_old_for_cuda_names_both() -> None:
    [kepler] = [gpu for gpu in image_support(image("2.21.0")).gpus if str(gpu.capability) == "3.5"]
    assert kepler.reason is not None and kepler.reason.rule == "driver_dropped_gpu"
    assert kepler.reason.text.endswith("needs R470 or older, and CUDA 12.5 needs R525 or newer")


def test_spans_of_branches() -> None:
    known = [branch.number for branch in drivers.branches()]
    assert driver_range(known[5:]) == f"R{known[5]} or newer"
    assert driver_range(known[5:8]) == f"R{known[5]} to R{known[7]}"
    assert driver_range(known[5:6]) == f"R{known[5]}"
    assert driver_range([known[5], known[8]]) == f"R{known[5]}, R{known[8]}"


def test_models_about_which_a_fact_says_something_else_are_a_row_of_their_own() -> None:
    spec = ImageSpec("2.21.0", "3.12", Variant.GPU, Choice("as-built", "12.5"), Choice("9.3", "9.3"))
    found = image_support(spec)
    failing = {
        one.label: (one.gpus, one.branches, one.reason.sentence.partition(" ")[0])
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
        str(one.capability) for one in found.gpus
    }
