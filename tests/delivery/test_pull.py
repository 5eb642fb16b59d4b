"""Test which image is selected and why others are rejected, with a real registry and real signatures."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from validator.certify.signatures import Signer
from validator.certify.statement import PREDICATE
from validator.certify.trust import Terms, Trust
from validator.delivery.choose import Host, Standing, inspect_tag, recommend, tagged_images
from validator.delivery.pull import NotCertified, SelectedImage, local_ids, select_best, select_named
from validator.errors import InputError, MissingError
from validator.model.codec import now_utc
from validator.registry import session as session_module
from validator.registry.names import Wanted, identifier_of

from ..registry.images import push_image, referrers
from ..registry.proxy import Fault, Proxy
from .shelf import A100, H100, Shelf
from .values import NAMED, OLDER, TAG, digest_of, host

PATHS = ("/tags/list", "/manifests/", "/blobs/")
ON_H100, ON_A100 = host("580.95.05", "h100"), host("535.183", "a100")


def select(shelf: Shelf, on: Host = ON_H100, **asked: Any) -> tuple[SelectedImage, list[str]]:
    """Return the best image and the messages about the others."""
    told: list[str] = []
    selected = select_best(shelf.registry, on, shelf.terms, Wanted(**asked), told.append)
    return selected, told


def reason_for_rejection(shelf: Shelf, on: Host = ON_H100, terms: Terms | None = None) -> str:
    """Return the reason why the only image is rejected, which must be the same for its tag and among all."""
    told: list[str] = []
    with pytest.raises(NotCertified, match="nothing was pulled"):
        select_best(shelf.registry, on, terms or shelf.terms, Wanted(), told.append)
    with pytest.raises(NotCertified) as caught:
        select_named(shelf.registry, on, terms or shelf.terms, NAMED, told.append)
    assert len(told) == 1
    reason = told[0].removeprefix(f"rejected: {NAMED}: ")
    assert str(caught.value) == f"rejected: {NAMED}: {reason}; nothing was pulled"
    return reason


def test_an_image_with_additions_is_selected_only_when_it_is_named(shelf: Shelf) -> None:
    ours = shelf.push_certified(H100, tag=f"{TAG}_ours")
    with pytest.raises(InputError, match="has no image without additions") as caught:
        select(shelf)
    assert "it has images with the additions ours" in str(caught.value.hint)
    plain = shelf.push_certified(H100, tag=OLDER)
    assert select(shelf)[0].digest == plain
    selected, told = select(shelf, additions="ours")
    assert (selected.digest, told) == (ours, [])
    assert selected.image.identifier == "tf2.21.0-cuda12.5-cudnn9.3-py312_ours"
    with pytest.raises(InputError, match="has no image with the additions other"):
        select(shelf, additions="other")
    assert select_named(shelf.registry, ON_H100, shelf.terms, f"{NAMED}_ours", told.append).digest == ours


def test_an_image_of_a_wheel_is_selected_only_when_it_is_named(shelf: Shelf) -> None:
    tag, named = "2.21.0-b3f1c2d4-cuda12.5-cudnn9.3-py3.12", "tf2.21.0+b3f1c2d4-cuda12.5-cudnn9.3-py312"
    ours = shelf.push_certified(H100, tag=tag)
    with pytest.raises(InputError, match="has no image without additions"):
        select(shelf)
    older = shelf.push_certified(H100, tag=OLDER)
    assert select(shelf)[0].digest == older
    by_version = select(shelf, tensorflow="2.21.0+b3f1c2d4")
    for selected, told in (by_version, select(shelf, additions="b3f1c2d4")):
        assert (selected.digest, selected.image.identifier, told) == (ours, named, [])
    assert select_named(shelf.registry, ON_H100, shelf.terms, named, told.append).digest == ours
    [certificate] = inspect_tag(shelf.registry, selected.image, shelf.terms).certificates
    assert certificate.tensorflow_wheel == f"wheels/ours.whl#sha256=b3f1c2d4{'0' * 56}"


def test_an_alias_for_additions_must_point_at_such_an_image(shelf: Shelf) -> None:
    ours, plain = shelf.push_certified(H100, tag=f"{TAG}_ours"), shelf.push_certified(H100)
    shelf.registry.tag(ours, "latest_ours")
    told: list[str] = []
    assert select_named(shelf.registry, ON_H100, shelf.terms, "latest_ours", told.append).digest == ours
    shelf.registry.tag(plain, "latest_ours")
    with pytest.raises(NotCertified, match="the alias points at"):
        select_named(shelf.registry, ON_H100, shelf.terms, "latest_ours", told.append)


def test_the_newest_certified_image_is_selected_by_its_digest(shelf: Shelf) -> None:
    older, newer = shelf.push_certified(H100, A100, tag=OLDER), shelf.push_certified(H100)
    shelf.push("2.21.0-cpu-py3.12")
    selected, told = select(shelf)
    assert (selected.digest, told) == (newer, [])
    assert selected.reference == f"{shelf.registry.repository}@{newer}"
    assert selected.name == f"{shelf.registry.repository}:{TAG}"
    assert [one.driver for one in selected.certificates] == ["580.65.06"]
    assert newer in local_ids(shelf.registry, newer) and len(local_ids(shelf.registry, newer)) == 2
    # A better image for another host is mentioned.
    selected, told = select(shelf, ON_A100)
    assert selected.digest == older
    assert [line.partition(" on driver")[0] for line in told] == [f"rejected: {NAMED}: it is certified"]


def test_the_requested_tensorflow_and_python_are_selected(shelf: Shelf) -> None:
    older, newer = shelf.push_certified(H100, tag=OLDER), shelf.push_certified(H100)
    assert select(shelf, tensorflow="2.20")[0].digest == older
    assert select(shelf, python="3.12")[0].digest == newer
    with pytest.raises(InputError, match=r"no image with TensorFlow 2.19 and Python 3.12") as caught:
        select(shelf, tensorflow="2.19", python="3.12")
    assert "2.20.0 with 3.12, 2.21.0 with 3.12" in str(caught.value.hint)


def test_an_image_can_be_named_by_tag_alias_or_digest(shelf: Shelf) -> None:
    digest = shelf.push_certified(H100)
    for alias in ("2.21", "latest", "2.21-driver580"):
        shelf.registry.tag(digest, alias)
    for name in (NAMED, "2.21", "latest", "2.21-driver580", digest):
        selected = select_named(shelf.registry, ON_H100, shelf.terms, name, pytest.fail)
        # The result has the tag that never moves.
        assert (selected.digest, selected.name) == (digest, f"{shelf.registry.repository}:{TAG}")
    for name in ("2.20", digest_of(7)):
        with pytest.raises(InputError, match="is not in the registry"):
            select_named(shelf.registry, ON_H100, shelf.terms, name, pytest.fail)


def test_an_alias_of_another_release_is_rejected(shelf: Shelf) -> None:
    shelf.registry.tag(shelf.push_certified(H100, tag=OLDER), "2.21")
    with pytest.raises(NotCertified, match=f"the alias points at {identifier_of(OLDER)}"):
        select_named(shelf.registry, ON_H100, shelf.terms, "2.21", pytest.fail)


def test_an_image_of_another_project_is_rejected(shelf: Shelf) -> None:
    push_image(shelf.registry.repository, "mine")
    with pytest.raises(NotCertified, match="it is not an image of this project"):
        select_named(shelf.registry, ON_H100, shelf.terms, "mine", pytest.fail)


def test_an_unsigned_image_is_rejected(shelf: Shelf) -> None:
    shelf.push()
    assert reason_for_rejection(shelf) == "it is not signed: no certificate is attached to it"


def test_a_foreign_signature_is_rejected(shelf: Shelf, foreign: tuple[Signer, Trust]) -> None:
    shelf.certify(shelf.push(), H100, by=foreign)
    assert re.fullmatch(
        r"its certificate sha256:\w{64} is rejected: it is not signed by the trusted key",
        reason_for_rejection(shelf),
    )


def test_a_fixture_counts_only_if_a_test_asks_for_it(shelf: Shelf) -> None:
    shelf.push_certified(H100)
    assert shelf.trust.fixtures
    assert "made by a test and proves nothing" in reason_for_rejection(
        shelf, terms=Terms(Trust(key=shelf.trust.key))
    )


def test_an_old_measurement_is_rejected_by_max_age(shelf: Shelf) -> None:
    shelf.certify(shelf.push(), H100, age=timedelta(days=10))
    assert select(shelf)[0].certificates
    assert re.search(
        r"it is too old: measured \S+, 10 days ago",
        reason_for_rejection(shelf, terms=Terms(shelf.trust, timedelta(days=9))),
    )
    assert select_named(
        shelf.registry, ON_H100, Terms(shelf.trust, timedelta(days=11)), NAMED, pytest.fail
    ).certificates


def test_an_expired_certificate_counts_only_on_request(shelf: Shelf) -> None:
    shelf.certify(shelf.push(), H100, now=now_utc() - timedelta(days=20))
    reason = reason_for_rejection(shelf, terms=Terms(shelf.trust, timedelta(days=30)))
    assert re.search(r"it expired on \S+: measured \S+, 20 days ago", reason)
    old = Terms(shelf.trust, timedelta(days=30), accept_expired=True)
    assert select_named(shelf.registry, ON_H100, old, NAMED, pytest.fail).certificates


def test_an_image_that_failed_on_this_host_class_gives_way_to_the_last_good_one(shelf: Shelf) -> None:
    older = shelf.push_certified(H100, tag=OLDER)
    newer = shelf.push_certified(H100, A100)
    assert select(shelf)[0].digest == newer
    shelf.fail(newer, H100)
    selected, told = select(shelf)
    assert selected.digest == older
    assert any("it failed on r580-h100 (gpu_compute, xla_speedup), measured" in line for line in told)
    # It keeps its certificate for the other host class.
    assert select(shelf, on=host(*A100))[0].digest == newer


@pytest.mark.parametrize("off", [timedelta(days=-400), timedelta(hours=-2)])
def test_a_clock_that_is_behind_is_mentioned(shelf: Shelf, off: timedelta) -> None:
    shelf.push_certified(H100)
    reason = reason_for_rejection(shelf, terms=Terms(shelf.trust, now=now_utc() + off))
    assert re.search(r"it was issued in the future \(\S+\): a clock is wrong, there or here", reason)


@pytest.mark.parametrize(
    ("on", "here"),
    [
        (host("575.57.08", "h100"), "575 and 9.0"),
        (host("580.65.06", "a100"), "580 and 8.0"),
        # Only one of the two GPUs was measured.
        (host("580.65.06", "h100", "a100"), "580 and 8.0, 9.0"),
    ],
)
def test_a_certificate_from_another_host_does_not_count(shelf: Shelf, on: Host, here: str) -> None:
    shelf.push_certified(H100)
    assert reason_for_rejection(shelf, on) == (
        "it is certified on driver 580.65.06 with compute capability 9.0, and this host has driver branch "
        + here
    )


def test_another_image_with_the_tag_is_rejected(shelf: Shelf) -> None:
    shelf.push_certified(H100)
    shelf.push(content="altered")
    assert reason_for_rejection(shelf) == "it is not signed: no certificate is attached to it"


def test_a_certified_image_with_the_tag_of_another_is_rejected(shelf: Shelf) -> None:
    shelf.registry.tag(shelf.push_certified(H100, tag=OLDER), TAG)
    told: list[str] = []
    with pytest.raises(
        NotCertified, match=r"its certificate is for tf2\.20\.0-.*, so the tag points at the wrong image"
    ):
        select_named(shelf.registry, ON_H100, shelf.terms, NAMED, told.append)
    # The image can still be selected by its own tag.
    selected, told = select(shelf)
    assert selected.name.endswith(OLDER)
    assert "so the tag points at the wrong image" in told[0]


def test_an_image_that_the_facts_reject_is_pulled_only_by_name(shelf: Shelf) -> None:
    # According to the facts, no driver branch before R525 runs CUDA 12.
    shelf.push_certified(("470.256.02", "a100"))
    on, told = host("470.256.02", "a100"), list[str]()
    with pytest.raises(NotCertified):
        select_best(shelf.registry, on, shelf.terms, Wanted(), told.append)
    assert told == ["1 other image does not run on this host; `recommend` says why"]
    assert select_named(shelf.registry, on, shelf.terms, NAMED, told.append).certificates
    assert "is certified for this host, but the facts predict that it fails here" in told[1]


def _certificate_of(shelf: Shelf, digest: str) -> str:
    # The provenance of the image is attached as well.
    (certificate,) = [
        one
        for one in referrers(shelf.registry.repository, digest)
        if PREDICATE in one["annotations"].values()
    ]
    return str(certificate["digest"])


def _altered_certificate(shelf: Shelf, digest: str) -> Fault:
    return Fault(method="GET", path="/blobs/", status=None, replace=(b"payload", b"payl0ad"))


def _altered_referrer(shelf: Shelf, digest: str) -> Fault:
    return Fault(
        method="GET",
        path=f"/manifests/{_certificate_of(shelf, digest)}",
        status=None,
        replace=(b"sha256", b"sha257"),
    )


def _altered_manifest(shelf: Shelf, digest: str) -> Fault:
    return Fault(method="GET", path=f"/manifests/{digest}", status=None, replace=(b"tar", b"tbr"))


@pytest.mark.parametrize("fault", [_altered_certificate, _altered_referrer, _altered_manifest])
def test_content_altered_in_transit_is_rejected(
    shelf: Shelf, behind: Shelf, proxy: Proxy, fault: Callable[[Shelf, str], Fault]
) -> None:
    digest = shelf.push_certified(H100)
    proxy.faults.append(fault(shelf, digest))
    told: list[str] = []
    with pytest.raises(NotCertified):
        select_best(behind.registry, ON_H100, behind.terms, Wanted(), told.append)
    assert "it was altered, its content has the digest" in told[0], told
    proxy.faults.clear()
    assert select(behind)[0].digest == digest


@pytest.mark.parametrize(
    ("status", "path", "says", "hint"),
    [
        *((401, path, "requires a login", "docker login") for path in PATHS),
        *((403, path, "denies access", "docker login") for path in PATHS),
        *((0, path, "can't be reached, or the connection was lost", "network") for path in PATHS),
        (429, "/manifests/", "because there were too many", "try again later"),
        (500, "/blobs/", "reports an internal error", "try again later"),
    ],
)
def test_nothing_is_selected_if_the_registry_fails(
    shelf: Shelf,
    behind: Shelf,
    proxy: Proxy,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    path: str,
    says: str,
    hint: str,
) -> None:
    monkeypatch.setattr(session_module, "PAUSES", ())
    shelf.push_certified(H100)
    proxy.faults.append(Fault(path=path, status=status))
    with pytest.raises(MissingError, match=re.escape(says)) as caught:
        select(behind)
    assert hint in str(caught.value.hint)


@pytest.mark.parametrize("status", [401, 0])
def test_recommend_lists_all_images_or_none(shelf: Shelf, behind: Shelf, proxy: Proxy, status: int) -> None:
    shelf.push_certified(H100)
    wanted = tagged_images(behind.registry, Wanted())
    proxy.faults.append(Fault(path="/blobs/", status=status))
    with pytest.raises(MissingError):
        recommend(behind.registry, wanted, ON_H100, behind.terms)


@pytest.mark.parametrize(
    "fault",
    [Fault(status=429, times=2), Fault(status=500, times=2), Fault(times=2), Fault(status=None, delay_s=0.3)],
)
def test_a_registry_that_fails_briefly_or_is_slow_is_retried(
    shelf: Shelf, behind: Shelf, proxy: Proxy, fault: Fault
) -> None:
    digest = shelf.push_certified(H100)
    proxy.faults.append(fault)
    assert select(behind)[0].digest == digest
    assert fault.happened >= 2


def test_an_empty_registry(shelf: Shelf) -> None:
    with pytest.raises(MissingError, match=r"no image is published in .* yet") as caught:
        select(shelf)
    assert "run --uncertified" in str(caught.value.hint)
    assert f"build-matrix --push {shelf.registry.repository}" in str(caught.value.hint)


def test_a_registry_without_certificates(shelf: Shelf) -> None:
    shelf.push()
    shelf.push("2.21.0-cpu-py3.12")
    with pytest.raises(NotCertified, match=r"^no image in .* is certified yet, for this host") as caught:
        select(shelf)
    assert "run --uncertified" in str(caught.value.hint) and "build-matrix --push" in str(caught.value.hint)
    shelf.push_certified(A100, tag=OLDER)
    with pytest.raises(NotCertified, match="has no certified image for this host") as caught:
        select(shelf)
    assert "run --uncertified" in str(caught.value.hint)


def test_recommend_gives_the_reason_for_each_image(shelf: Shelf, foreign: tuple[Signer, Trust]) -> None:
    shelf.push_certified(H100)
    shelf.push_certified(A100, tag=OLDER)
    shelf.certify(
        shelf.push("2.19.0-cuda12.5-cudnn9.3-py3.12"), H100, tag="2.19.0-cuda12.5-cudnn9.3-py3.12", by=foreign
    )
    shelf.push("2.18.0-cuda12.5-cudnn9.3-py3.12")
    shelf.push("2.21.0-cpu-py3.12")
    shelf.registry.tag(shelf.push("2.17.0-cuda12.3-cudnn8.9-py3.12"), "latest")
    assessed = recommend(shelf.registry, tagged_images(shelf.registry, Wanted()), ON_H100, shelf.terms)
    assert [(one.candidate.image.tag[:6], one.standing) for one in assessed] == [
        ("2.21.0", Standing.CERTIFIED),
        ("2.20.0", Standing.PREDICTED),
        *((release, Standing.UNMEASURED) for release in ("2.18.0", "2.17.0")),
        *((release, Standing.UNFIT) for release in ("2.21.0", "2.19.0")),
    ]
    whys = [one.why for one in assessed]
    assert whys[0].startswith("certified for this host: measured on NVIDIA H100")
    assert whys[1].startswith(
        "predicted to work, but not certified for this host: it is certified on driver 535.183.01"
    )
    assert "measured nowhere yet" in whys[2]
    assert "has no CUDA" in whys[4]
    assert "not signed by the trusted key" in whys[5]
