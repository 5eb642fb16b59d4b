"""What a release needs by itself agrees with every prediction that it sums up."""

from __future__ import annotations

import pytest

from validator.compat import drivers
from validator.compat.policies import choose
from validator.compat.predict import predict
from validator.compat.release_requirements import needs
from validator.compat.releases import release, releases
from validator.model.prediction import Outcome
from validator.model.spec import AS_BUILT, Cell, HostClass, ImageSpec, Variant
from validator.reports.terminal import span
from validator.versions import DriverRelease

VERSIONS = [known.version for known in releases()]


def image(version: str) -> ImageSpec:
    found = release(version)
    cuda, cudnn = choose(found, AS_BUILT, AS_BUILT, within_metadata=False)
    return ImageSpec(version, found.pythons[-1], Variant.GPU, cuda, cudnn)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_branch_is_listed_where_the_prediction_says_works(version: str) -> None:
    spec = image(version)
    for need in needs(spec).gpus:
        for branch in drivers.branches():
            host = HostClass("any", DriverRelease.parse(str(branch.number)), need.capability)
            works = predict(Cell(spec, host)).outcome is Outcome.WORKS
            assert (branch.number in need.branches) is works
        assert (need.reason is None) is bool(need.branches)
        assert need.reason is None or need.reason.outcome is not Outcome.WORKS


def test_what_is_against_a_gpu_is_not_the_age_of_some_driver() -> None:
    [maxwell] = [need for need in needs(image("2.18.0")).gpus if str(need.capability) == "5.2"]
    assert maxwell.reason is not None
    assert "no kernels for compute capability 5.2" in maxwell.reason.text


def test_spans_of_branches() -> None:
    known = [branch.number for branch in drivers.branches()]
    assert span(known[5:]) == f"R{known[5]} or newer"
    assert span(known[5:8]) == f"R{known[5]} to R{known[7]}"
    assert span(known[5:6]) == f"R{known[5]}"
    assert span([known[5], known[8]]) == f"R{known[5]}, R{known[8]}"
