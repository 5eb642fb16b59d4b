"""The matrix.yaml of this repository covers what it promises."""

from __future__ import annotations

import functools
import re

import pytest

from validator.compat import policies, releases
from validator.matrix.load import DEFAULT_PROFILE, Matrix, load_matrix
from validator.matrix.plan import MAX_JOBS, Expansion, expand, plan
from validator.model.prediction import Outcome
from validator.model.spec import RECOMMENDED, Variant

from .support import FILE


@functools.cache
def found() -> Matrix:
    return load_matrix(FILE)


def pythons(expansion: Expansion, version: str, policy: str | None = None) -> set[str]:
    return {
        cell.image.python
        for cell in expansion.cells
        if cell.image.tensorflow == version
        and (policy is None or (cell.image.cuda is not None and cell.image.cuda.policy == policy))
    }


def test_every_release_from_2_14_on_has_every_python() -> None:
    whole = expand(found(), "full")
    for release in releases.releases():
        if tuple(map(int, release.minor.split("."))) >= (2, 14) and not release.prerelease:
            assert pythons(whole, release.version, "as-built") == set(release.pythons)


def test_quick_has_the_newest_release_as_recommended_on_one_python() -> None:
    [image] = {cell.image for cell in expand(found(), DEFAULT_PROFILE).cells}
    newest = releases.newest()
    cuda, cudnn = policies.choose(newest, RECOMMENDED, RECOMMENDED)
    assert image.identifier == f"tf{newest.version}-cuda{cuda.version}-cudnn{cudnn.version}-py312"


def test_quick_fits_a_github_matrix() -> None:
    assert len(expand(found(), DEFAULT_PROFILE).cells) <= MAX_JOBS


def test_cpu_has_the_newest_release_without_cuda() -> None:
    [cell] = expand(found(), "cpu").cells
    assert cell.image.variant is Variant.CPU
    assert cell.host.identifier == "no-gpu"


def test_nightly_has_the_newest_patch_of_every_minor() -> None:
    nightly = expand(found(), "nightly")
    minors = [f"2.{minor}" for minor in range(14, 22)]
    newest = [releases.newest_patch(minor) for minor in minors]
    assert {cell.image.tensorflow for cell in nightly.cells} == {release.version for release in newest}
    for release in newest:
        assert pythons(nightly, release.version) == set(release.pythons)
    assert pythons(nightly, "2.21.0", "latest") == {"3.10", "3.11", "3.12", "3.13"}
    assert any("cudnn9.10" in cell.image.identifier for cell in nightly.cells)


def test_legacy_has_the_releases_before_the_extra() -> None:
    legacy = expand(found(), "legacy")
    assert {cell.image.tensorflow for cell in legacy.cells} == {"2.12.0", "2.12.1", "2.13.0", "2.13.1"}
    assert {cell.image.cuda.version for cell in legacy.cells if cell.image.cuda} == {"11.8"}


@pytest.mark.parametrize(
    ("version", "said"), [("2.14.0", "tensorrt"), ("2.14.1", "tensorrt"), ("2.15.0", "tensorrt")]
)
def test_latest_with_tensorrt_is_excluded_and_says_why(version: str, said: str) -> None:
    excluded = [one for one in expand(found(), "full").excluded if one.cell.image.tensorflow == version]
    assert {one.cell.image.cuda.policy for one in excluded if one.cell.image.cuda} == {"latest"}
    assert all(said in one.reason for one in excluded)
    assert all(one.link for one in excluded)


def test_all_driver_branches_and_generations_are_covered() -> None:
    branches = {host.driver.branch for host in found().hosts if host.has_gpu}
    assert branches == {470, 525, 535, 550, 570, 580, 595, 615}
    capabilities = {str(host.compute_capability) for host in found().hosts if host.has_gpu}
    assert capabilities >= {"7.0", "7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "12.0"}


def test_every_host_has_a_runner() -> None:
    assert all(host.runner for host in found().hosts)


@pytest.mark.slow
def test_every_cell_is_decided_or_names_the_missing_fact() -> None:
    undecided = [
        cell.prediction.reasons[0].text
        for cell in plan(found(), "full").cells
        if cell.prediction.outcome is Outcome.UNKNOWN
    ]
    assert [text for text in undecided if not re.search("not (known|measured)", text)] == []
