"""Test the rules that choose an image for a host, and what the facts predict for it."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validator.certify.verify import preference
from validator.delivery.choose import (
    Assessment,
    Candidate,
    Forecast,
    Host,
    Standing,
    TaggedImage,
    assess,
    best_first,
    covering,
    forecast,
)
from validator.model.prediction import Outcome
from validator.model.record import Certificate, Failure
from validator.registry.names import tag_of

from ..certify.fixtures import LIMIT
from .values import (
    FAILS,
    TAG,
    UNKNOWN,
    WORKS,
    candidate,
    certificate,
    digest_of,
    failure,
    host,
    tagged_image,
)


@pytest.mark.parametrize(
    ("measured", "asked", "covered"),
    [
        (("580.65.06", "h100"), ("580.65.06", "h100"), True),
        # Other releases of the branch are covered, older ones too, and so is the branch itself.
        (("580.65.06", "h100"), ("580.95.05", "h100"), True),
        (("580.65.06", "h100"), ("580.10", "h100"), True),
        (("580.65.06", "h100"), ("580", "9.0"), True),
        (("580.65.06", "h100"), ("575.57.08", "h100"), False),
        (("580.65.06", "h100"), ("590.10", "h100"), False),
        # The capability decides, not the model: H100 and H200 have the same one.
        (("580.65.06", "h100"), ("580.65.06", "h200"), True),
        (("580.65.06", "h100"), ("580.65.06", "a100"), False),
        (("580.65.06", "a100"), ("580.65.06", "8.6"), False),
        # Every GPU of the host must have been measured.
        (("580.65.06", "a100"), ("580.65.06", "a100", "a100"), True),
        (("580.65.06", "a100"), ("580.65.06", "a100", "t4"), False),
        # On a host with both, it is not known which one was measured.
        (("580.65.06", "a100", "t4"), ("580.65.06", "a100", "t4"), False),
        (("580.65.06", "a100", "t4"), ("580.65.06", "t4"), False),
    ],
)
def test_a_certificate_covers_its_driver_branch_and_capability(
    measured: tuple[str, ...], asked: tuple[str, ...], covered: bool
) -> None:
    assert bool(covering(candidate(certificate(*measured)), host(*asked))) is covered


def test_two_certificates_cover_a_host_with_two_kinds_of_gpu() -> None:
    both = [certificate("580.65.06", "t4"), certificate("580.95.05", "a100")]
    assert len(covering(candidate(*both), host("580.65.06", "a100", "t4", "a100"))) == 2
    assert covering(candidate(*both[:1]), host("580.65.06", "a100", "t4")) == ()


@pytest.mark.parametrize(
    ("failed", "asked", "against"),
    [
        (failure("580.65.06", "h100"), ("580.95.05", "h100"), True),
        # Another model of the same capability, or another branch, keeps its certificate.
        (failure("580.65.06", "h100"), ("580.65.06", "h200"), False),
        (failure("575.57.08", "h100"), ("580.65.06", "h100"), False),
        (failure("580.65.06", "a100"), ("580.65.06", "h100"), False),
        # The model is not known, so it may be the one that failed.
        (failure("580.65.06", "h100"), ("580.65.06", "9.0"), True),
        # The probe of a broken image could not read the driver; the host class still names the machine.
        (failure(driver=None, gpus=()), ("580.65.06", "h100"), True),
        (failure(driver=None, gpus=()), ("580.65.06", "h200"), False),
        (failure("580.65.06", "t4", "h100"), ("580.65.06", "h100"), True),
    ],
)
def test_a_failure_speaks_against_the_image_on_hosts_of_its_kind(
    failed: Failure, asked: tuple[str, ...], against: bool
) -> None:
    one = candidate(certificate("580.65.06", "h100"), failures=(failed,))
    found = assess(one, host(*asked), WORKS)
    assert bool(covering(one, host(*asked))) is not against
    assert found.standing is (Standing.UNFIT if against else Standing.CERTIFIED)
    assert (found.why == failed.why) is against


def test_the_reason_names_the_newest_measurement() -> None:
    newest_first = [
        certificate(measured="2026-11-20T00:00:00Z"),
        certificate(measured="2026-01-01T00:00:00Z"),
    ]
    one = assess(candidate(*newest_first), host(), WORKS)
    assert one.standing is Standing.CERTIFIED
    assert one.why == (
        "certified for this host: measured on NVIDIA H100 80GB HBM3 (9.0) with driver 580.65.06 on 2026-11-20"
    )


def test_a_certificate_from_another_host_leaves_a_prediction() -> None:
    one = assess(candidate(certificate("550.54.15", "a100")), host(), WORKS)
    assert one.standing is Standing.PREDICTED
    assert one.why == (
        "predicted to work, but not certified for this host: it is certified on driver 550.54.15 with compute"
        " capability 8.0, and this host has driver branch 580 and 9.0"
    )


def test_only_a_measurement_counts_when_the_facts_do_not_decide() -> None:
    assert assess(candidate(certificate()), host(), UNKNOWN).standing is Standing.CERTIFIED
    elsewhere = assess(candidate(certificate("550.54.15")), host(), UNKNOWN)
    assert elsewhere.standing is Standing.UNFIT
    assert elsewhere.why.startswith("it is not known to work here: it is certified on driver 550.54.15")
    assert elsewhere.why.endswith("nobody knows that GPU")


def test_an_image_that_the_facts_reject_is_unfit_even_if_it_was_measured() -> None:
    one = assess(candidate(certificate("580.95.05")), host("580.10"), FAILS)
    assert one.standing is Standing.UNFIT
    assert "with driver 580.95.05" in one.why and one.why.endswith("fails here: the driver is too old")


@pytest.mark.parametrize(
    ("problems", "says"),
    [
        (
            ("its certificate x is rejected: a reason", "another"),
            "its certificate x is rejected: a reason; another",
        ),
    ],
)
def test_an_image_without_a_valid_certificate_is_unfit(problems: tuple[str, ...], says: str) -> None:
    one = assess(candidate(problems=problems), host(), WORKS)
    assert (one.standing, one.why) == (Standing.UNFIT, says)


@pytest.mark.parametrize(
    ("predicted", "standing", "says"),
    [
        (WORKS, Standing.UNMEASURED, "measured nowhere yet; the facts predict that it works here: "),
        (UNKNOWN, Standing.UNMEASURED, "measured nowhere yet; the facts don't say that it works here: "),
        (FAILS, Standing.UNFIT, "the facts predict that it fails here: "),
    ],
)
def test_an_image_that_nobody_has_measured_is_only_unfit_if_the_facts_reject_it(
    predicted: Forecast, standing: Standing, says: str
) -> None:
    one = assess(candidate(), host(), predicted)
    assert (one.standing, one.why) == (standing, f"{says}{predicted.why}")


def test_an_image_without_cuda_is_unfit() -> None:
    one = assess(candidate(certificate(), tag="2.21.0-cpu-py3.12"), host(), WORKS)
    assert one.standing is Standing.UNFIT
    assert one.why == "it has no CUDA, so TensorFlow cannot use a GPU in it"


@pytest.mark.parametrize(
    ("tag", "parts"),
    [
        (TAG, ("2.21.0", "3.12", "12.5", "9.3", None)),
        ("2.21.0rc1-cudalatest-cudnn9.10-py3.9", ("2.21.0rc1", "3.9", "latest", "9.10", None)),
        ("2.21.0-cpu-py3.13", ("2.21.0", "3.13", None, None, None)),
        ("2.14.1-cuda11.8-cudnn8.7-py3.10-ubuntu-22.04", ("2.14.1", "3.10", "11.8", "8.7", "ubuntu-22.04")),
        ("2.14.1-cpu-py3.10-ubuntu-22.04", ("2.14.1", "3.10", None, None, "ubuntu-22.04")),
        (
            "2.21.0-b3f1c2d4-cuda12.5-cudnn9.3-py3.12-ubuntu-22.04_ours",
            ("2.21.0+b3f1c2d4", "3.12", "12.5", "9.3", "ubuntu-22.04"),
        ),
        (
            "2.23.0.dev20261127-00000000-cuda12.9-cudnnlatest-py3.13",
            ("2.23.0.dev20261127+00000000", "3.13", "12.9", "latest", None),
        ),
        (
            "2.21.0-cu128.b3f1c2d4-cuda12.5-cudnn9.3-py3.9",
            ("2.21.0+cu128.b3f1c2d4", "3.9", "12.5", "9.3", None),
        ),
    ],
)
def test_a_tag_is_parsed(tag: str, parts: tuple[str | None, ...]) -> None:
    image = tagged_image(tag)
    assert (image.tensorflow, image.python, image.cuda, image.cudnn, image.base) == parts
    assert tag_of(image.identifier) == tag


@pytest.mark.parametrize("tag", ["latest", "2.21", "2.21-driver535", "sha256-" + "0" * 64, "mine"])
def test_other_tags_are_not_images_of_this_project(tag: str) -> None:
    assert TaggedImage.of_tag(tag) is None


@pytest.mark.parametrize(
    ("asked", "matches"),
    [
        ((None, None), True),
        (("2.21", None), True),
        (("2.21.0", "3.12"), True),
        (("2", "3.12"), True),
        (("2.2", None), False),
        (("2.21.1", None), False),
        ((None, "3.1"), False),
        (("2.21", "3.11"), False),
    ],
)
def test_an_image_matches_the_tensorflow_and_python_asked_for(
    asked: tuple[str | None, str | None], matches: bool
) -> None:
    assert tagged_image().is_of(*asked) is matches


def test_a_wheel_that_no_table_lists_is_asked_for_exactly() -> None:
    ours, plain = tagged_image("2.21.0-b3f1c2d4-cuda12.5-cudnn9.3-py3.12"), tagged_image()
    assert [one.is_of("2.21.0+b3f1c2d4", None) for one in (ours, plain)] == [True, False]
    assert not ours.is_of("2.21.0+00000000", None)


def test_better_images_come_first() -> None:
    order = [
        "2.21.0-cuda12.10-cudnn9.3-py3.12",
        "2.21.0-cuda12.5-cudnn9.10-py3.12",
        "2.21.0-cuda12.5-cudnn9.3-py3.12",
        "2.21.0-cuda12.5-cudnn9.3-py3.9",
        "2.21.0-cudalatest-cudnnlatest-py3.13",
        "2.21.0-cuda12.5-cudnn9.3-py3.13-slim-trixie",
        "2.9.0-cuda11.2-cudnn8.1-py3.10",
        # A pre-release comes last: it is only for those who ask for it.
        "2.22.0rc1-cuda12.5-cudnn9.3-py3.13",
    ]
    assert sorted(order, key=lambda tag: tagged_image(tag).preference, reverse=True) == order


releases = st.sampled_from(["2.22.0rc1", "2.21.0", "2.20.0", "2.9.3", "2.10.1"])
libraries = st.sampled_from(
    ["cpu", "cuda12.5-cudnn9.3", "cuda12.10-cudnn9.3", "cuda11.2-cudnn8.1", "cudalatest-cudnnlatest"]
)
tags = st.builds(
    lambda release, library, python, base: f"{release}-{library}-py{python}{base}",
    releases,
    libraries,
    st.sampled_from(["3.9", "3.11", "3.12"]),
    st.sampled_from(["", "-slim-trixie"]),
)
names = st.lists(st.sampled_from(["h100", "a100", "t4"]), min_size=1, max_size=3)
drivers = st.sampled_from(["535.183.01", "580.65.06", "580.95.05", "590.10"])
hosts = st.builds(lambda driver, gpus: host(driver, *gpus), drivers, names)
measured = st.builds(lambda driver, gpus: certificate(driver, *gpus), drivers, names)
candidates = st.builds(
    lambda tag, certificates, number: Candidate(tagged_image(tag), digest_of(number), tuple(certificates)),
    tags,
    st.lists(measured, max_size=3),
    st.integers(0, 99),
)
forecasts = st.sampled_from([WORKS, FAILS, UNKNOWN])
registries = st.lists(st.tuples(candidates, forecasts), max_size=8)


def _assessed(registry: list[tuple[Candidate, Forecast]], on: Host) -> list[Assessment]:
    return best_first(assess(one, on, predicted) for one, predicted in registry)


@given(registries, hosts)
def test_images_certified_for_the_host_come_first(
    registry: list[tuple[Candidate, Forecast]], on: Host
) -> None:
    order = [one.standing for one in _assessed(registry, on)]
    assert order == sorted(order, key=list(Standing).index)


@given(registries, hosts)
def test_an_image_that_fails_or_is_not_signed_is_never_recommended(
    registry: list[tuple[Candidate, Forecast]], on: Host
) -> None:
    for one in _assessed(registry, on):
        assert one.why
        if one.standing in (Standing.CERTIFIED, Standing.PREDICTED):
            assert one.forecast.outcome is not Outcome.FAILS
            assert one.candidate.certificates
            assert one.candidate.image.cuda is not None


@given(registries, hosts)
def test_certified_means_measured_on_the_branch_and_on_every_kind_of_gpu(
    registry: list[tuple[Candidate, Forecast]], on: Host
) -> None:
    for one in _assessed(registry, on):
        if one.standing is Standing.CERTIFIED:
            seen = {
                gpu.capability
                for each in one.candidate.certificates
                for gpu in each.gpus
                if each.driver_release.branch == on.driver.branch
                and len({g.capability for g in each.gpus}) == 1
            }
            assert set(on.capabilities) <= seen


@given(candidates, hosts, st.sampled_from(["h100", "a100", "t4"]), forecasts)
def test_another_gpu_never_improves_the_standing(
    one: Candidate, on: Host, gpu: str, predicted: Forecast
) -> None:
    more = Host(on.driver, (*on.gpus, *host("580", gpu).gpus))
    order = list(Standing)
    before, after = assess(one, on, predicted), assess(one, more, predicted)
    assert order.index(before.standing) <= order.index(after.standing)


@given(registries, hosts, st.randoms(use_true_random=False))
def test_the_order_does_not_depend_on_the_order_in_the_registry(
    registry: list[tuple[Candidate, Forecast]], on: Host, random: Random
) -> None:
    shuffled = list(registry)
    random.shuffle(shuffled)

    def shown(assessed: list[Assessment]) -> list[tuple[Standing, str]]:
        return [(one.standing, one.candidate.image.tag) for one in assessed]

    assert shown(_assessed(registry, on)) == shown(_assessed(shuffled, on))


def _certified(tag: str) -> Certificate:
    """Return the certificate that a record of this image would lead to."""
    one = tagged_image(tag)
    return certificate(
        image=one.identifier,
        tensorflow=one.tensorflow,
        python=f"{one.python}.1",
        cuda="12.9" if one.cuda == "latest" else one.cuda,
        cudnn="9.20" if one.cudnn == "latest" else one.cudnn,
    )


@given(
    st.lists(
        tags.filter(lambda tag: "cpu" not in tag and "rc" not in tag), min_size=2, max_size=6, unique=True
    )
)
def test_pull_and_promote_prefer_the_same_images(several: list[str]) -> None:
    ours = sorted(several, key=lambda tag: tagged_image(tag).preference)

    def rank(tag: str) -> tuple[object, ...]:
        return preference(_certified(tag), limited=False)

    by_alias = sorted(several, key=rank)
    assert [rank(tag)[:7] for tag in ours] == [rank(tag)[:7] for tag in by_alias]


def test_of_images_that_differ_only_in_cuda_and_cudnn_one_without_limits_comes_first() -> None:
    on = host("580.65.06")
    newer_cudnn, newer_python = "2.21.0-cuda12.9-cudnn9.24-py3.12", "2.21.0-cuda12.5-cudnn9.3-py3.13"

    def order(*limited: str) -> list[str]:
        found = [
            assess(candidate(certificate(limits=(LIMIT,) if tag in limited else ()), tag=tag), on, WORKS)
            for tag in (TAG, newer_cudnn, newer_python)
        ]
        return [one.candidate.image.tag for one in best_first(found)]

    assert order() == order(TAG) == order(newer_python) == [newer_python, newer_cudnn, TAG]
    assert order(newer_cudnn) == [newer_python, TAG, newer_cudnn]
    # A limit that was seen on another GPU says nothing about this host.
    elsewhere = candidate(certificate(), certificate("580.65.06", "t4", limits=(LIMIT,)))
    assert assess(elsewhere, on, WORKS).limits == ()
    assert assess(candidate(certificate(limits=(LIMIT,))), on, WORKS).limits == (LIMIT,)


#: An image whose CUDA and cuDNN depend on the day it was locked.
FLOATING = "2.21.0-cudalatest-cudnnlatest-py3.12"


@pytest.mark.parametrize(
    ("tag", "on", "outcome"),
    [
        (TAG, host("580.65.06", "h200"), Outcome.WORKS),
        (TAG, host("580.65.06", "h200", "t4"), Outcome.FAILS),
        # CUDA 12 needs R525 (minor-version compatibility).
        (TAG, host("470.256.02", "a100"), Outcome.FAILS),
        # TensorFlow 2.21 has no code for Kepler.
        (TAG, host("535.183.01", "3.5"), Outcome.FAILS),
        (TAG, host("580.65.06", "h100", "3.5"), Outcome.FAILS),
        # A pin that differs from what the release was built with.
        ("2.20.0-cuda12.8-cudnn9.10-py3.12", host("580.65.06", "h100"), Outcome.WORKS),
        (FLOATING, host("580.65.06", "h100"), Outcome.WORKS),
        # The facts say nothing about the base.
        (f"{TAG}-slim-trixie", host("580.65.06", "h200"), Outcome.WORKS),
    ],
)
def test_the_worst_gpu_decides(tag: str, on: Host, outcome: Outcome) -> None:
    assert forecast(tagged_image(tag), (), on).outcome is outcome


@pytest.mark.parametrize(
    "tag",
    [
        "2.99.0-cuda12.5-cudnn9.3-py3.12",
        "2.21.0-cuda99.1-cudnn9.3-py3.12",
        "2.21.0-cuda12.5-cudnn99.1-py3.12",
    ],
)
def test_an_image_that_the_facts_do_not_know_is_unknown(tag: str) -> None:
    predicted = forecast(tagged_image(tag), (), host())
    assert predicted.outcome is Outcome.UNKNOWN
    assert predicted.why.startswith("the facts don't cover this image: ")


def test_the_certificate_says_which_versions_latest_meant() -> None:
    # cuDNN 9.11 dropped the GPUs before Turing; an image that was built before has an older one, with which
    # only XLA is not measured.
    old = certificate(image=tagged_image(FLOATING).identifier, cudnn="9.3.0")
    new = certificate(image=tagged_image(FLOATING).identifier, cudnn="9.12.0")
    volta = host("580.65.06", "v100")
    answers = [forecast(tagged_image(FLOATING), [one], volta).outcome for one in (old, new)]
    assert answers == [Outcome.UNKNOWN, Outcome.FAILS]
    # If the tag names the versions, the certificate changes nothing.
    assert forecast(tagged_image(TAG), [new], volta) == forecast(tagged_image(TAG), (), volta)


def test_a_certificate_with_an_invalid_version_leaves_the_outcome_unknown() -> None:
    invalid = certificate(image=tagged_image(FLOATING).identifier, cuda="twelve")
    assert forecast(tagged_image(FLOATING), [invalid], host()) == Forecast(
        Outcome.UNKNOWN,
        'the facts don\'t cover this image: "twelve" is not a CUDA version (expected something like 12.5)',
    )
