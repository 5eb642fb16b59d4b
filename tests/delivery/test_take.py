"""Which image may be taken, and why others may not: a real registry, real signatures."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta

import pytest

from validator.certify.signing import Signer
from validator.certify.trust import Trust
from validator.delivery.candidates import Terms, offers, recommend
from validator.delivery.choose import Standing
from validator.delivery.host import Host
from validator.delivery.pull import NotTaken, Taken, best, local_ids, named
from validator.errors import InputError, MissingError
from validator.model.timestamps import now_utc
from validator.registry import client as registry_module

from ..registry.images import oras, push_image
from ..registry.proxy import Fault, Proxy
from .shelf import A100, H100, Shelf
from .values import OLDER, TAG, digest_of, host

PATHS = ("/tags/list", "/manifests/", "/blobs/")
ON_H100, ON_A100 = host("580.95.05", "h100"), host("535.183", "a100")


def take(shelf: Shelf, on: Host = ON_H100, **asked: str) -> tuple[Taken, list[str]]:
    """The best image, and what was said of others."""
    said: list[str] = []
    taken = best(shelf.registry, on, shelf.terms, asked.get("tensorflow"), asked.get("python"), said.append)
    return taken, said


def refused(shelf: Shelf, on: Host = ON_H100, terms: Terms | None = None) -> str:
    """Why the only image is refused; by its tag as among all."""
    said: list[str] = []
    with pytest.raises(NotTaken, match="nothing was pulled"):
        best(shelf.registry, on, terms or shelf.terms, None, None, said.append)
    with pytest.raises(NotTaken) as caught:
        named(shelf.registry, on, terms or shelf.terms, TAG, said.append)
    assert len(said) == 1
    reason = said[0].removeprefix(f"refused: {TAG}: ")
    assert str(caught.value) == f"refused: {TAG}: {reason}; nothing was pulled"
    return reason


def test_the_newest_certified_image_is_taken_by_its_digest(shelf: Shelf) -> None:
    older, newer = shelf.put(H100, A100, tag=OLDER), shelf.put(H100)
    shelf.push("2.21.0-cpu-py3.12")
    taken, said = take(shelf)
    assert (taken.digest, said) == (newer, [])
    assert taken.reference == f"{shelf.registry.repository}@{newer}"
    assert taken.name == f"{shelf.registry.repository}:{TAG}"
    assert [one.driver for one in taken.certificates] == ["580.65.06"]
    assert newer in local_ids(shelf.registry, newer) and len(local_ids(shelf.registry, newer)) == 2
    # What is better and not for this host is told of.
    taken, said = take(shelf, ON_A100)
    assert taken.digest == older
    assert [line.partition(" on driver")[0] for line in said] == [f"refused: {TAG}: it is certified"]


def test_what_is_asked_for_is_taken(shelf: Shelf) -> None:
    older, newer = shelf.put(H100, tag=OLDER), shelf.put(H100)
    assert take(shelf, tensorflow="2.20")[0].digest == older
    assert take(shelf, python="3.12")[0].digest == newer
    with pytest.raises(InputError, match=r"no image with TensorFlow 2.19 and Python 3.12") as caught:
        take(shelf, tensorflow="2.19", python="3.12")
    assert "2.20.0 with 3.12, 2.21.0 with 3.12" in str(caught.value.hint)


def test_an_image_is_named_by_tag_alias_and_digest(shelf: Shelf) -> None:
    digest = shelf.put(H100)
    for alias in ("2.21", "latest", "2.21-driver580"):
        shelf.registry.tag(digest, alias)
    for name in (TAG, "2.21", "latest", "2.21-driver580", digest):
        taken = named(shelf.registry, ON_H100, shelf.terms, name, pytest.fail)
        # People get the name that never moves.
        assert (taken.digest, taken.name) == (digest, f"{shelf.registry.repository}:{TAG}")
    for name in ("2.20", digest_of(7)):
        with pytest.raises(InputError, match="is not in the registry"):
            named(shelf.registry, ON_H100, shelf.terms, name, pytest.fail)


def test_an_alias_of_another_release_is_refused(shelf: Shelf) -> None:
    shelf.registry.tag(shelf.put(H100, tag=OLDER), "2.21")
    with pytest.raises(NotTaken, match=f"the alias points at {OLDER}"):
        named(shelf.registry, ON_H100, shelf.terms, "2.21", pytest.fail)


def test_what_is_no_image_of_ours_is_refused(shelf: Shelf) -> None:
    push_image(shelf.registry.repository, "mine")
    with pytest.raises(NotTaken, match="it is no image of this project"):
        named(shelf.registry, ON_H100, shelf.terms, "mine", pytest.fail)


def test_an_unsigned_image_is_refused(shelf: Shelf) -> None:
    shelf.push()
    assert refused(shelf) == "it is not signed: no certificate is attached to it"


def test_a_foreign_signature_is_refused(shelf: Shelf, foreign: tuple[Signer, Trust]) -> None:
    shelf.certify(shelf.push(), H100, by=foreign)
    assert re.fullmatch(
        r"its certificate sha256:\w{64} is refused: it is not signed by the key that is trusted",
        refused(shelf),
    )


def test_a_fixture_counts_only_where_a_test_says_so(shelf: Shelf) -> None:
    shelf.put(H100)
    assert shelf.trust.fixtures
    assert "made by a test and proves nothing" in refused(shelf, terms=Terms(Trust(key=shelf.trust.key)))


def test_an_old_measurement_is_refused_where_age_matters(shelf: Shelf) -> None:
    shelf.certify(shelf.push(), H100, age=timedelta(days=40))
    assert take(shelf)[0].certificates
    assert re.search(
        r"it is too old: measured \S+, 40 days ago",
        refused(shelf, terms=Terms(shelf.trust, timedelta(days=30))),
    )
    assert named(
        shelf.registry, ON_H100, Terms(shelf.trust, timedelta(days=41)), TAG, pytest.fail
    ).certificates


@pytest.mark.parametrize("off", [timedelta(days=-400), timedelta(hours=-2)])
def test_a_clock_that_is_behind_is_told_of(shelf: Shelf, off: timedelta) -> None:
    shelf.put(H100)
    said = refused(shelf, terms=Terms(shelf.trust, now=now_utc() + off))
    assert re.search(r"it is of the future \(issued \S+\): a clock is wrong, there or here", said)


@pytest.mark.parametrize(
    ("on", "here"),
    [
        (host("575.57.08", "h100"), "575 and 9.0"),
        (host("580.65.06", "a100"), "580 and 8.0"),
        # One of the two GPUs was measured.
        (host("580.65.06", "h100", "a100"), "580 and 8.0, 9.0"),
    ],
)
def test_a_certificate_of_another_host_is_no_certificate_here(shelf: Shelf, on: Host, here: str) -> None:
    shelf.put(H100)
    assert refused(shelf, on) == (
        "it is certified on driver 580.65.06 with compute capability 9.0, and this host has driver branch "
        + here
    )


def test_another_image_under_the_tag_is_refused(shelf: Shelf) -> None:
    shelf.put(H100)
    shelf.push(content="altered")
    assert refused(shelf) == "it is not signed: no certificate is attached to it"


def test_a_certified_image_under_the_tag_of_another_is_refused(shelf: Shelf) -> None:
    shelf.registry.tag(shelf.put(H100, tag=OLDER), TAG)
    said: list[str] = []
    with pytest.raises(NotTaken, match=r"its certificate is for tf2\.20\.0-.*, so the tag is wrong"):
        named(shelf.registry, ON_H100, shelf.terms, TAG, said.append)
    # The image is there still, under its own tag.
    taken, said = take(shelf)
    assert taken.name.endswith(OLDER)
    assert "so the tag is wrong" in said[0]


def test_what_the_facts_speak_against_is_taken_by_name_alone(shelf: Shelf) -> None:
    # No driver of the branch before R450 runs CUDA 12, the facts say.
    shelf.put(("470.256.02", "a100"))
    on, said = host("470.256.02", "a100"), list[str]()
    with pytest.raises(NotTaken):
        best(shelf.registry, on, shelf.terms, None, None, said.append)
    assert said == ["other images, which don't run on this host: 1; `recommend` says why"]
    assert named(shelf.registry, on, shelf.terms, TAG, said.append).certificates
    assert "is certified for this host, yet the facts say that it fails here" in said[1]


def _certificate_of(shelf: Shelf, digest: str) -> str:
    listed = json.loads(oras("discover", "--format", "json", f"{shelf.registry.repository}@{digest}"))
    return str(listed["referrers"][0]["digest"])


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
def test_what_is_altered_on_the_way_is_refused(
    shelf: Shelf, behind: Shelf, proxy: Proxy, fault: Callable[[Shelf, str], Fault]
) -> None:
    digest = shelf.put(H100)
    proxy.faults.append(fault(shelf, digest))
    said: list[str] = []
    with pytest.raises(NotTaken):
        best(behind.registry, ON_H100, behind.terms, None, None, said.append)
    assert "alter" in said[0] or "not what its digest says" in said[0], said
    proxy.faults.clear()
    assert take(behind)[0].digest == digest


@pytest.mark.parametrize(
    ("status", "path", "says", "hint"),
    [
        *((401, path, "wants a login", "docker login") for path in PATHS),
        *((403, path, "does not permit this", "docker login") for path in PATHS),
        *((0, path, "can't be reached, or the connection breaks", "network") for path in PATHS),
        # oras tries these again by itself, for seven seconds each time.
        (429, "/manifests/", "too many requests", "try again later"),
        (500, "/blobs/", "answers with an error of its own", "try again later"),
    ],
)
def test_a_registry_that_fails_is_no_reason_to_take_something(
    shelf: Shelf,
    behind: Shelf,
    proxy: Proxy,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    path: str,
    says: str,
    hint: str,
) -> None:
    monkeypatch.setattr(registry_module, "_PAUSES", ())
    shelf.put(H100)
    proxy.faults.append(Fault(path=path, status=status))
    with pytest.raises(MissingError, match=re.escape(says)) as caught:
        take(behind)
    assert hint in str(caught.value.hint)


@pytest.mark.parametrize("status", [401, 0])
def test_nothing_is_recommended_by_half(shelf: Shelf, behind: Shelf, proxy: Proxy, status: int) -> None:
    shelf.put(H100)
    wanted = offers(behind.registry, None, None)
    proxy.faults.append(Fault(path="/blobs/", status=status))
    with pytest.raises(MissingError):
        recommend(behind.registry, wanted, ON_H100, behind.terms)


@pytest.mark.parametrize(
    "fault",
    [Fault(status=429, times=2), Fault(status=500, times=2), Fault(times=2), Fault(status=None, delay_s=0.3)],
)
def test_a_registry_that_fails_for_a_moment_or_is_slow_is_waited_for(
    shelf: Shelf, behind: Shelf, proxy: Proxy, fault: Fault
) -> None:
    digest = shelf.put(H100)
    proxy.faults.append(fault)
    assert take(behind)[0].digest == digest
    assert fault.happened >= 2


def test_an_empty_registry(shelf: Shelf) -> None:
    with pytest.raises(MissingError, match="has no images of this project"):
        take(shelf)


def test_all_images_with_the_reason(shelf: Shelf, foreign: tuple[Signer, Trust]) -> None:
    shelf.put(H100)
    shelf.put(A100, tag=OLDER)
    shelf.certify(
        shelf.push("2.19.0-cuda12.5-cudnn9.3-py3.12"), H100, tag="2.19.0-cuda12.5-cudnn9.3-py3.12", by=foreign
    )
    shelf.push("2.18.0-cuda12.5-cudnn9.3-py3.12")
    shelf.push("2.21.0-cpu-py3.12")
    shelf.registry.tag(shelf.push("2.17.0-cuda12.3-cudnn8.9-py3.12"), "latest")
    found = recommend(shelf.registry, offers(shelf.registry, None, None), ON_H100, shelf.terms)
    assert [(one.found.offer.tag[:6], one.standing) for one in found] == [
        ("2.21.0", Standing.CERTIFIED),
        ("2.20.0", Standing.PREDICTED),
        *((release, Standing.UNFIT) for release in ("2.21.0", "2.19.0", "2.18.0", "2.17.0")),
    ]
    whys = [one.why for one in found]
    assert whys[0].startswith("certified for this host: measured on NVIDIA H100")
    assert whys[1].startswith("predicted, not certified for this host: it is certified on driver 535.183.01")
    assert "holds no CUDA" in whys[2]
    assert "not signed by the key that is trusted" in whys[3]
    assert "not signed: no certificate" in whys[4]
