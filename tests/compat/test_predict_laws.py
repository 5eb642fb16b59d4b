"""Laws that hold for every prediction."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from validator._vendor.packaging.version import Version
from validator.compat import facts, hardware, policies
from validator.compat.predict import predict
from validator.compat.releases import Release, releases
from validator.model.prediction import Outcome, Prediction
from validator.model.spec import AS_BUILT, LATEST, Cell, HostClass, ImageSpec, Variant
from validator.versions import ComputeCapability, DriverRelease

BRANCHES = (440, *(branch.number for branch in hardware.branches()), 700)
CAPABILITIES = sorted({gpu.compute_capability for gpu in hardware.gpus()} | {ComputeCapability(8, 7)})
COMPATS = (None, *(row["compat"] for row in facts.rows("forward", "packages")), "12.7", "14.0")

points = st.tuples(st.sampled_from(BRANCHES), st.integers(0, 300), st.integers(0, 99)).map(
    lambda parts: DriverRelease.parse(".".join(map(str, parts)))
)
drivers_of_any_kind = st.one_of(points, st.sampled_from(BRANCHES).map(lambda branch: DriverRelease(branch)))


def images() -> list[ImageSpec]:
    """Every listed release with every Python and pair of policies that it can have."""
    found = []
    for release in releases():
        for cuda, cudnn in itertools.product((AS_BUILT, LATEST), repeat=2):
            if release.extra_style == "none" and LATEST in (cuda, cudnn):
                continue
            chosen = policies.choose(release, cuda, cudnn)
            found += [
                ImageSpec(release.version, python, Variant.GPU, *chosen)
                for python in ("3.6", *release.pythons)
            ]
    return list(dict.fromkeys(found))


IMAGES = images()

hosts = st.builds(
    HostClass,
    identifier=st.just("host"),
    driver=drivers_of_any_kind,
    compute_capability=st.sampled_from(CAPABILITIES),
    gpu=st.sampled_from([None, "no such card", *(gpu.name for gpu in hardware.gpus())]),
    compat=st.sampled_from(COMPATS),
)
cells = st.builds(Cell, st.sampled_from(IMAGES), hosts)


@given(cells)
def test_every_reason_has_a_fact_and_a_source(asked: Cell) -> None:
    check(predict(asked))


def check(prediction: Prediction) -> None:
    assert prediction.reasons
    outcomes = {reason.outcome for reason in prediction.reasons}
    # The first reason decides: one failure fails, one gap leaves open, and nothing works by default.
    assert prediction.outcome is prediction.reasons[0].outcome
    assert (prediction.outcome is Outcome.FAILS) == (Outcome.FAILS in outcomes)
    assert (prediction.outcome is Outcome.WORKS) == (outcomes == {Outcome.WORKS})
    for reason in prediction.reasons:
        assert reason.text and reason.fact and reason.source
        assert "\n" not in reason.source
        assert reason.status in facts.STATUSES
        if reason.status == facts.UNVERIFIED and not reason.advisory:
            assert reason.outcome is Outcome.UNKNOWN


@pytest.mark.slow
def test_no_listed_cell_raises() -> None:
    """Every listed image on every branch and capability; the properties above sample the rest."""
    for image in IMAGES:
        for branch, capability in itertools.product(BRANCHES[::3], CAPABILITIES):
            check(predict(Cell(image, HostClass("host", DriverRelease(branch), capability))))


@given(st.sampled_from(IMAGES), hosts, st.integers(1, 300), st.integers(0, 99))
def test_a_newer_driver_of_the_same_branch_breaks_nothing(
    image: ImageSpec, where: HostClass, point: int, patch: int
) -> None:
    assume(not where.driver.is_branch)
    newer = DriverRelease(where.driver.branch, (where.driver.point[0] + point, patch))
    later = HostClass("host", newer, where.compute_capability, where.gpu, (), where.compat)
    if predict(Cell(image, where)).outcome is Outcome.WORKS:
        assert predict(Cell(image, later)).outcome is Outcome.WORKS


@given(st.sampled_from(IMAGES), st.sampled_from(CAPABILITIES), drivers_of_any_kind, drivers_of_any_kind)
def test_a_newer_branch_breaks_only_retired_gpus(
    image: ImageSpec, capability: ComputeCapability, one: DriverRelease, other: DriverRelease
) -> None:
    older, newer = sorted((one, other))
    before = predict(Cell(image, HostClass("host", older, capability)))
    after = predict(Cell(image, HostClass("host", newer, capability)))
    if hardware.branch_of(newer.branch) is None:
        assert after.outcome is not Outcome.WORKS
    elif before.outcome is Outcome.WORKS and after.outcome is not Outcome.WORKS:
        assert after.reasons[0].fact.startswith("last-branch-")


@given(cells)
def test_the_name_of_a_host_does_not_matter(asked: Cell) -> None:
    where = asked.host
    renamed = HostClass(
        "another", where.driver, where.compute_capability, where.gpu, ("self-hosted",), where.compat
    )
    assert predict(Cell(asked.image, renamed)) == predict(asked)


@given(cells)
@example(Cell(IMAGES[0], HostClass("host", DriverRelease(535), ComputeCapability(8, 0))))
def test_predicting_twice_gives_the_same_result(asked: Cell) -> None:
    assert predict(asked) == predict(asked)
    assert predict(asked, {}) == predict(asked)


@pytest.mark.parametrize(
    "release",
    [known for known in releases() if Version(known.version) <= Version("2.22.0rc0")],
    ids=lambda release: release.version,
)
def test_blackwell_works_nowhere_up_to_2_22_0rc0(release: Release) -> None:
    image = ImageSpec(
        release.version, release.pythons[-1], Variant.GPU, *policies.choose(release, AS_BUILT, AS_BUILT)
    )
    for capability in (ComputeCapability(10, 0), ComputeCapability(12, 0)):
        for branch in BRANCHES:
            prediction = predict(Cell(image, HostClass("host", DriverRelease(branch), capability)))
            assert prediction.outcome is not Outcome.WORKS
            # It is not known what releases whose XLA has no target for Blackwell do with older PTX.
            known = Version("2.16") <= Version(release.version) and not release.prerelease
            assert prediction.outcome is Outcome.FAILS or not known
