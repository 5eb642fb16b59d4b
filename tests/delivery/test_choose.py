"""Which image is the best for a host: the rules, and their laws."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validator.certify.promote import rank
from validator.delivery.choose import Assessed, Expected, Found, Offer, Standing, assess, covering, ranked
from validator.delivery.host import Host
from validator.model.certificate import Certificate
from validator.model.prediction import Outcome
from validator.registry.names import tag_of

from .values import FAILS, TAG, UNKNOWN, WORKS, certificate, digest_of, found, host, offer


@pytest.mark.parametrize(
    ("measured", "asked", "covered"),
    [
        (("580.65.06", "h100"), ("580.65.06", "h100"), True),
        # Another release of the branch is covered, an older one too, and the branch itself.
        (("580.65.06", "h100"), ("580.95.05", "h100"), True),
        (("580.65.06", "h100"), ("580.10", "h100"), True),
        (("580.65.06", "h100"), ("580", "9.0"), True),
        (("580.65.06", "h100"), ("575.57.08", "h100"), False),
        (("580.65.06", "h100"), ("590.10", "h100"), False),
        # The very capability, whatever the model: H100 and H200 have the same.
        (("580.65.06", "h100"), ("580.65.06", "h200"), True),
        (("580.65.06", "h100"), ("580.65.06", "a100"), False),
        (("580.65.06", "a100"), ("580.65.06", "8.6"), False),
        # Every GPU of the host must have been measured.
        (("580.65.06", "a100"), ("580.65.06", "a100", "a100"), True),
        (("580.65.06", "a100"), ("580.65.06", "a100", "t4"), False),
        # Of a machine with both, nobody knows which was measured.
        (("580.65.06", "a100", "t4"), ("580.65.06", "a100", "t4"), False),
        (("580.65.06", "a100", "t4"), ("580.65.06", "t4"), False),
    ],
)
def test_what_a_certificate_covers(measured: tuple[str, ...], asked: tuple[str, ...], covered: bool) -> None:
    assert bool(covering([certificate(*measured)], host(*asked))) is covered


def test_two_certificates_cover_a_host_with_two_kinds_of_gpu() -> None:
    both = [certificate("580.65.06", "t4"), certificate("580.95.05", "a100")]
    assert len(covering(both, host("580.65.06", "a100", "t4", "a100"))) == 2
    assert covering(both[:1], host("580.65.06", "a100", "t4")) == ()


def test_the_newest_measurement_is_named() -> None:
    newest_first = [
        certificate(measured="2026-11-20T00:00:00Z"),
        certificate(measured="2026-01-01T00:00:00Z"),
    ]
    one = assess(found(*newest_first), host(), WORKS)
    assert one.standing is Standing.CERTIFIED
    assert one.why == (
        "certified for this host: measured on NVIDIA H100 80GB HBM3 (9.0) with driver 580.65.06 on 2026-11-20"
    )


def test_a_certificate_of_another_host_is_a_prediction() -> None:
    one = assess(found(certificate("550.54.15", "a100")), host(), WORKS)
    assert one.standing is Standing.PREDICTED
    assert one.why == (
        "predicted, not certified for this host: it is certified on driver 550.54.15 with compute capability"
        " 8.0, and this host has driver branch 580 and 9.0"
    )


def test_where_the_facts_decide_nothing_only_a_measurement_counts() -> None:
    assert assess(found(certificate()), host(), UNKNOWN).standing is Standing.CERTIFIED
    elsewhere = assess(found(certificate("550.54.15")), host(), UNKNOWN)
    assert elsewhere.standing is Standing.UNFIT
    assert elsewhere.why.startswith("nothing says that it works here: it is certified on driver 550.54.15")
    assert elsewhere.why.endswith("nobody knows that GPU")


def test_what_the_facts_say_fails_is_not_recommended_even_if_it_was_measured() -> None:
    one = assess(found(certificate("580.95.05")), host("580.10"), FAILS)
    assert one.standing is Standing.UNFIT
    assert "with driver 580.95.05" in one.why and one.why.endswith("fails here: the driver is too old")


@pytest.mark.parametrize(
    ("against", "says"),
    [
        ((), "it is not signed: no certificate is attached to it"),
        (
            ("its certificate x is refused: a reason", "another"),
            "its certificate x is refused: a reason; another",
        ),
    ],
)
def test_without_a_valid_certificate_nothing_is_recommended(against: tuple[str, ...], says: str) -> None:
    one = assess(found(against=against), host(), WORKS)
    assert (one.standing, one.why) == (Standing.UNFIT, says)


def test_an_image_without_cuda_fits_no_gpu() -> None:
    one = assess(found(certificate(), tag="2.21.0-cpu-py3.12"), host(), WORKS)
    assert one.standing is Standing.UNFIT
    assert one.why == "it holds no CUDA: TensorFlow uses no GPU in it"


@pytest.mark.parametrize(
    ("tag", "parts"),
    [
        (TAG, ("2.21.0", "3.12", "12.5", "9.3", None)),
        ("2.21.0rc1-cudalatest-cudnn9.10-py3.9", ("2.21.0rc1", "3.9", "latest", "9.10", None)),
        ("2.21.0-cpu-py3.13", ("2.21.0", "3.13", None, None, None)),
        ("2.14.1-cuda11.8-cudnn8.7-py3.10-ubuntu-22.04", ("2.14.1", "3.10", "11.8", "8.7", "ubuntu-22.04")),
        ("2.14.1-cpu-py3.10-ubuntu-22.04", ("2.14.1", "3.10", None, None, "ubuntu-22.04")),
    ],
)
def test_a_tag_is_read(tag: str, parts: tuple[str | None, ...]) -> None:
    read = offer(tag)
    assert (read.tensorflow, read.python, read.cuda, read.cudnn, read.base) == parts
    assert tag_of(read.identifier) == tag


@pytest.mark.parametrize("tag", ["latest", "2.21", "2.21-driver535", "sha256-" + "0" * 64, "mine"])
def test_other_tags_are_no_offers(tag: str) -> None:
    assert Offer.of_tag(tag) is None


@pytest.mark.parametrize(
    ("asked", "takes"),
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
def test_which_tensorflow_and_python_are_asked_for(asked: tuple[str | None, str | None], takes: bool) -> None:
    assert offer().is_of(*asked) is takes


def test_better_images_come_first() -> None:
    order = [
        "2.21.0-cuda12.10-cudnn9.3-py3.12",
        "2.21.0-cuda12.5-cudnn9.10-py3.12",
        "2.21.0-cuda12.5-cudnn9.3-py3.12",
        "2.21.0-cuda12.5-cudnn9.3-py3.9",
        "2.21.0-cudalatest-cudnnlatest-py3.13",
        "2.21.0-cuda12.5-cudnn9.3-py3.13-slim-trixie",
        "2.9.0-cuda11.2-cudnn8.1-py3.10",
        # A pre-release is for those who ask for it.
        "2.22.0rc1-cuda12.5-cudnn9.3-py3.13",
    ]
    assert sorted(order, key=lambda tag: offer(tag).preference, reverse=True) == order


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
looked_at = st.builds(
    lambda tag, certificates, number: Found(offer(tag), digest_of(number), tuple(certificates)),
    tags,
    st.lists(measured, max_size=3),
    st.integers(0, 99),
)
expectations = st.sampled_from([WORKS, FAILS, UNKNOWN])
registries = st.lists(st.tuples(looked_at, expectations), max_size=8)


def _assessed(registry: list[tuple[Found, Expected]], on: Host) -> list[Assessed]:
    return ranked(assess(one, on, expectation) for one, expectation in registry)


@given(registries, hosts)
def test_what_is_certified_for_the_host_is_never_below_what_is_not(
    registry: list[tuple[Found, Expected]], on: Host
) -> None:
    order = [one.standing for one in _assessed(registry, on)]
    assert order == sorted(order, key=list(Standing).index)


@given(registries, hosts)
def test_nothing_is_recommended_that_fails_or_that_nobody_vouches_for(
    registry: list[tuple[Found, Expected]], on: Host
) -> None:
    for one in _assessed(registry, on):
        assert one.why
        if one.standing is not Standing.UNFIT:
            assert one.expected.outcome is not Outcome.FAILS
            assert one.found.certificates
            assert one.found.offer.cuda is not None


@given(registries, hosts)
def test_certified_means_a_measurement_of_the_branch_and_of_every_kind_of_gpu(
    registry: list[tuple[Found, Expected]], on: Host
) -> None:
    for one in _assessed(registry, on):
        if one.standing is Standing.CERTIFIED:
            seen = {
                gpu.capability
                for each in one.found.certificates
                for gpu in each.gpus
                if each.driver_release.branch == on.driver.branch
                and len({g.capability for g in each.gpus}) == 1
            }
            assert set(on.capabilities) <= seen


@given(looked_at, hosts, st.sampled_from(["h100", "a100", "t4"]), expectations)
def test_one_more_gpu_never_makes_an_image_fit_better(
    one: Found, on: Host, gpu: str, expectation: Expected
) -> None:
    more = Host(on.driver, (*on.gpus, *host("580", gpu).gpus))
    order = list(Standing)
    before, after = assess(one, on, expectation), assess(one, more, expectation)
    assert order.index(before.standing) <= order.index(after.standing)


@given(registries, hosts, st.randoms(use_true_random=False))
def test_the_order_does_not_depend_on_the_registry_s(
    registry: list[tuple[Found, Expected]], on: Host, random: Random
) -> None:
    shuffled = list(registry)
    random.shuffle(shuffled)

    def shown(assessed: list[Assessed]) -> list[tuple[Standing, str]]:
        return [(one.standing, one.found.offer.tag) for one in assessed]

    assert shown(_assessed(registry, on)) == shown(_assessed(shuffled, on))


def _certified(tag: str) -> Certificate:
    """As a record of that image would say it."""
    one = offer(tag)
    floating = {"cuda": "12.9", "cudnn": "9.20"}
    versions = {
        name: floating[name] if value == "latest" else value
        for name, value in (("cuda", one.cuda), ("cudnn", one.cudnn))
    }
    return certificate(image=one.identifier, tensorflow=one.tensorflow, python=f"{one.python}.1", **versions)


@given(
    st.lists(
        tags.filter(lambda tag: "cpu" not in tag and "rc" not in tag), min_size=2, max_size=6, unique=True
    )
)
def test_pull_and_promote_prefer_the_same(several: list[str]) -> None:
    ours = sorted(several, key=lambda tag: offer(tag).preference)
    by_alias = sorted(several, key=lambda tag: rank(_certified(tag)))
    assert [rank(_certified(tag))[:6] for tag in ours] == [rank(_certified(tag))[:6] for tag in by_alias]
