"""Test what pull rejects: images without a valid certificate for the host, and altered content."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from uuid import uuid4

import pytest

from validator.certify.signatures import Signer
from validator.certify.trust import Trust
from validator.delivery.pull import Engine, local_ids, select_named
from validator.engines.endpoint import Endpoint
from validator.errors import EXIT_FAILED, ValidatorError
from validator.model.codec import now_utc

from ..registry.proxy import Fault, Proxy
from .commands import ON_H100, run
from .shelf import H100, Shelf
from .values import NAMED, OLDER, TAG, digest_of, host


def _unsigned(shelf: Shelf, foreign: tuple[Signer, Trust], proxy: Proxy) -> tuple[str, ...]:
    shelf.push()
    return ()


def _foreign(shelf: Shelf, foreign: tuple[Signer, Trust], proxy: Proxy) -> tuple[str, ...]:
    shelf.certify(shelf.push(), H100, by=foreign)
    return ()


def _wrong_key(shelf: Shelf, foreign: tuple[Signer, Trust], proxy: Proxy) -> tuple[str, ...]:
    shelf.push_certified(H100)
    return ("--key", str(foreign[1].key))


def _expired(shelf: Shelf, foreign: tuple[Signer, Trust], proxy: Proxy) -> tuple[str, ...]:
    digest = shelf.push()
    shelf.certify(digest, H100, now=now_utc() - timedelta(days=15))
    return ("--max-age", "30d")


def _too_old(shelf: Shelf, foreign: tuple[Signer, Trust], proxy: Proxy) -> tuple[str, ...]:
    shelf.certify(shelf.push(), H100, age=timedelta(days=8))
    return ("--max-age", "7d")


def _failed(shelf: Shelf, foreign: tuple[Signer, Trust], proxy: Proxy) -> tuple[str, ...]:
    digest = shelf.push_certified(H100, ("535.183.01", "a100"))
    shelf.fail(digest, H100)
    return ()


def _failed_by_name(shelf: Shelf, foreign: tuple[Signer, Trust], proxy: Proxy) -> tuple[str, ...]:
    _failed(shelf, foreign, proxy)
    return ("--image", NAMED)


def _future(shelf: Shelf, foreign: tuple[Signer, Trust], proxy: Proxy) -> tuple[str, ...]:
    shelf.certify(shelf.push(), H100, now=now_utc() + timedelta(days=3))
    return ()


def _other_driver(shelf: Shelf, foreign: tuple[Signer, Trust], proxy: Proxy) -> tuple[str, ...]:
    shelf.push_certified(("575.57.08", "h100"))
    return ()


def _other_gpu(shelf: Shelf, foreign: tuple[Signer, Trust], proxy: Proxy) -> tuple[str, ...]:
    shelf.push_certified(("580.65.06", "a100"))
    return ()


def _other_digest(shelf: Shelf, foreign: tuple[Signer, Trust], proxy: Proxy) -> tuple[str, ...]:
    shelf.push_certified(H100)
    shelf.push(content="altered")
    return ()


def _other_tag(shelf: Shelf, foreign: tuple[Signer, Trust], proxy: Proxy) -> tuple[str, ...]:
    digest = shelf.push_certified(H100, tag=OLDER)
    shelf.registry.tag(digest, TAG)
    return ("--image", NAMED)


def _altered_certificate(shelf: Shelf, foreign: tuple[Signer, Trust], proxy: Proxy) -> tuple[str, ...]:
    shelf.push_certified(H100)
    proxy.faults.append(Fault(method="GET", path="/blobs/", status=None, replace=(b"payload", b"payl0ad")))
    return ("--registry", f"{proxy.address}/{shelf.registry.repository.path}")


def _altered_manifest(shelf: Shelf, foreign: tuple[Signer, Trust], proxy: Proxy) -> tuple[str, ...]:
    digest = shelf.push_certified(H100)
    proxy.faults.append(
        Fault(method="GET", path=f"/manifests/{digest}", status=None, replace=(b"tar", b"tbr"))
    )
    return ("--registry", f"{proxy.address}/{shelf.registry.repository.path}")


@pytest.mark.parametrize(
    ("tamper", "says"),
    [
        (_unsigned, "it is not signed: no certificate is attached to it"),
        (_foreign, "it is not signed by the trusted key"),
        (_wrong_key, "it is not signed by the trusted key"),
        (_expired, "it expired on "),
        (_too_old, "it is too old: measured"),
        (_failed, "it failed on r580-h100 (gpu_compute, xla_speedup), measured "),
        (_failed_by_name, "it failed on r580-h100 (gpu_compute, xla_speedup), measured "),
        (_future, "a clock is wrong, there or here"),
        (_other_driver, "certified on driver 575.57.08"),
        (_other_gpu, "with compute capability 8.0, and this host has driver branch 580 and 9.0"),
        (_other_digest, "it is not signed: no certificate is attached to it"),
        (_other_tag, "so the tag points at the wrong image"),
        (_altered_certificate, "it was altered, its content has the digest"),
        (_altered_manifest, "it was altered, its content has the digest"),
    ],
)
def test_pull_rejects(
    shelf: Shelf,
    foreign: tuple[Signer, Trust],
    proxy: Proxy,
    stored: Callable[[], list[str]],
    tamper: Callable[[Shelf, tuple[Signer, Trust], Proxy], tuple[str, ...]],
    says: str,
) -> None:
    arguments = tamper(shelf, foreign, proxy)
    done = run(shelf, "pull", "--fixtures", *ON_H100, *arguments)
    assert (done.code, done.out) == (EXIT_FAILED, ""), done.err
    assert f"rejected: {NAMED}: " in done.err and says in done.err, done.err
    assert stored() == []


def test_a_fixture_is_never_pulled_as_a_real_image(shelf: Shelf, stored: Callable[[], list[str]]) -> None:
    shelf.push_certified(H100)
    done = run(shelf, "pull", *ON_H100)
    assert (done.code, done.out, stored()) == (EXIT_FAILED, "", [])
    assert "it was made by a test and proves nothing" in done.err


def test_the_engine_rejects_an_altered_layer(
    shelf: Shelf, proxy: Proxy, stored: Callable[[], list[str]]
) -> None:
    # The content is new each time, since the engine does not fetch a layer that it already has.
    digest = shelf.push(content=f"as it was {uuid4()}")
    shelf.certify(digest, H100)
    manifest = shelf.registry.manifest(digest)
    assert manifest is not None and manifest.layers is not None
    layer = manifest.layers[0].digest
    altered = Fault(method="GET", path=f"/blobs/{layer}", status=None, replace=(b"as it was", b"as it is!"))
    proxy.faults.append(altered)
    through = f"{proxy.address}/{shelf.registry.repository.path}"
    done = run(shelf, "pull", "--fixtures", "--registry", through, *ON_H100)
    assert altered.happened
    assert (done.code, done.out) == (EXIT_FAILED, ""), done.err
    assert "does not match its digest" in done.err
    assert stored() == []


@pytest.fixture
def local_engine(engine: Endpoint) -> Iterator[Engine]:
    own = Engine()
    yield own
    own.close()


def test_a_tag_that_moves_after_verification_changes_nothing(
    shelf: Shelf, local_engine: Engine, engine: Endpoint, stored: Callable[[], list[str]]
) -> None:
    digest = shelf.push_certified(H100)
    selected = select_named(shelf.registry, host(*ON_H100[1::2]), shelf.terms, NAMED, pytest.fail)
    assert shelf.push(content="moved in between") != digest
    local_engine.pull(selected, local_ids(shelf.registry, digest), lambda _: None)
    repository = shelf.registry.repository
    assert stored() == sorted([repository.tagged(TAG), repository.at(digest)])


def test_the_pulled_image_is_checked_before_it_is_tagged(
    shelf: Shelf, local_engine: Engine, stored: Callable[[], list[str]]
) -> None:
    digest = shelf.push_certified(H100)
    selected = select_named(shelf.registry, host(*ON_H100[1::2]), shelf.terms, NAMED, pytest.fail)
    with pytest.raises(ValidatorError, match="was pulled, but the engine stores sha256"):
        local_engine.pull(selected, frozenset({digest_of(1)}), lambda _: None)
    assert stored() == [shelf.registry.repository.at(digest)]
