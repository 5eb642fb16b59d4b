"""Somebody who wants an image of their own to count as built by us: it has no provenance, or a false one.

Protected is what `--pull-from`, `--push`, `certify` and `promote` accept: only an image whose digest a
registered builder signed, made from the right lock.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from validator.certify import signatures
from validator.certify.provenance import PREDICATE, Provenance, Refusal, provenance_of
from validator.certify.trust import Party, Signatory, TrustFile
from validator.errors import InputError
from validator.model.codec import now_utc
from validator.model.spec import LABEL_BASE, Choice, ImageSpec, Lock, Variant
from validator.pipeline.makers import rebuild_image
from validator.registry.client import Registry
from validator.registry.names import Repository
from validator.system.package_sources import PackageSources

from ..certify.building import INPUTS, Builder, make_builder
from ..certify.conftest import TAG, alone, registry, repository
from ..loop import tiers
from ..registry.images import push_image

__all__ = ["alone", "registry", "repository"]


@pytest.fixture
def image(repository: Repository) -> str:
    """Push an image that nobody has signed yet, and return its digest."""
    return push_image(repository, TAG)


@pytest.fixture(scope="session")
@tiers.service
def builder(tmp_path_factory: pytest.TempPathFactory) -> Builder:
    """Return the registered builder."""
    return make_builder(tmp_path_factory.mktemp("builder"))


@pytest.fixture(scope="session")
@tiers.service
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Builder:
    """Return a builder that nobody registered."""
    return make_builder(tmp_path_factory.mktemp("stranger"), "stranger")


def why(registry: Registry, digest: str, trust: TrustFile) -> str:
    """Return why an image has no provenance that counts."""
    found = provenance_of(registry, digest, trust, image=INPUTS.image, lock_digest=INPUTS.lock_digest)
    assert isinstance(found, Refusal)
    return found.why


def test_an_honest_builder_is_believed(registry: Registry, image: str, builder: Builder) -> None:
    """Without this, the attacks below could fail for another reason."""
    builder.prove(registry, image)
    found = provenance_of(registry, image, TrustFile(builders=(builder.party,)))
    assert isinstance(found, Provenance)
    assert (found.inputs, found.builder, found.fixture) == (INPUTS, "builder-1", True)


def test_an_image_without_provenance(registry: Registry, image: str, builder: Builder) -> None:
    assert why(registry, image, TrustFile(builders=(builder.party,))) == (
        "it has no provenance: nobody signed what it was made from"
    )


def test_provenance_by_an_unregistered_key(
    registry: Registry, image: str, builder: Builder, stranger: Builder
) -> None:
    stranger.prove(registry, image)
    assert "it is not signed by a builder in the trust file" in why(
        registry, image, TrustFile(builders=(builder.party,))
    )


def test_a_stranger_names_the_registered_builder(
    registry: Registry, image: str, builder: Builder, stranger: Builder
) -> None:
    text = builder.statement(image)
    signatures.attach(registry, image, stranger.sign(text), PREDICATE)
    assert "not signed by a builder" in why(registry, image, TrustFile(builders=(builder.party,)))


def test_provenance_by_a_runner_s_key(
    registry: Registry, image: str, builder: Builder, stranger: Builder
) -> None:
    """A runner speaks for measurements, not for what is in an image."""
    runner = replace(stranger.party, host_classes=("*-h100",))
    stranger.prove(registry, image)
    trust = TrustFile(builders=(builder.party,), runners=(runner,))
    assert "not signed by a builder" in why(registry, image, trust)


def test_provenance_by_the_release_key(
    registry: Registry, image: str, builder: Builder, stranger: Builder
) -> None:
    """Whoever certifies must not be able to make up what is certified."""
    stranger.prove(registry, image)
    trust = TrustFile(stranger.party.signatory, builders=(builder.party,))
    assert "not signed by a builder" in why(registry, image, trust)


def test_provenance_of_another_image_with_the_same_content(
    registry: Registry, repository: Repository, image: str, builder: Builder
) -> None:
    """The registry's owner attaches the provenance of a good image to their own."""
    other = push_image(repository, "theirs", content="theirs")
    signatures.attach(registry, other, builder.sign(builder.statement(image)), PREDICATE)
    # cosign looks for the digest as well, so the signature does not fit any builder.
    assert "does not count" in why(registry, other, TrustFile(builders=(builder.party,)))


def test_provenance_from_another_lock(registry: Registry, image: str, builder: Builder) -> None:
    """An older lock has wheels with known faults."""
    other = f"sha256:{'0' * 64}"
    builder.prove(registry, image, replace(INPUTS, lock_digest=other))
    assert f"it was built from the lock {other}, not from" in why(
        registry, image, TrustFile(builders=(builder.party,))
    )


def test_provenance_of_another_image_spec(registry: Registry, image: str, builder: Builder) -> None:
    builder.prove(registry, image, replace(INPUTS, image="tf2.20.0-cuda12.5-cudnn9.3-py312"))
    assert "it was built as tf2.20.0" in why(registry, image, TrustFile(builders=(builder.party,)))


@pytest.mark.parametrize("end", ["until", "revoked"])
def test_a_builder_whose_time_is_over(registry: Registry, image: str, builder: Builder, end: str) -> None:
    """Its key may have been stolen since, and who has the key decides which time the provenance gives."""
    builder.prove(registry, image)
    over = builder.changed(**{end: now_utc() - timedelta(hours=2)})
    assert "the builder builder-1 was " in why(registry, image, TrustFile(builders=(over.party,)))


def test_provenance_of_another_build_type(registry: Registry, image: str, builder: Builder) -> None:
    """The builder's key also signs for another process, such as a build of arbitrary Dockerfiles."""
    document = json.loads(builder.statement(image))
    document["predicate"]["buildDefinition"]["buildType"] = "https://mobyproject.org/buildkit@v1"
    signatures.attach(registry, image, builder.sign(json.dumps(document).encode()), PREDICATE)
    assert "its build type is 'https://mobyproject.org/buildkit@v1'" in why(
        registry, image, TrustFile(builders=(builder.party,))
    )


def test_provenance_that_was_edited_after_it_was_signed(
    registry: Registry, image: str, builder: Builder
) -> None:
    old = builder.sign(builder.statement(image, replace(INPUTS, lock_digest=f"sha256:{'0' * 64}")))
    new = json.loads(builder.sign(builder.statement(image)))
    signature = json.loads(old)["dsseEnvelope"]["signatures"]
    new["dsseEnvelope"]["signatures"] = signature
    signatures.attach(registry, image, json.dumps(new).encode(), PREDICATE)
    assert "not signed by a builder" in why(registry, image, TrustFile(builders=(builder.party,)))


def test_a_certificate_is_no_provenance(registry: Registry, image: str, builder: Builder) -> None:
    """A statement of another type by the right key, marked as provenance in the registry."""
    document = json.loads(builder.statement(image)) | {
        "predicateType": "https://in-toto.io/attestation/test-result/v0.1"
    }
    signatures.attach(registry, image, builder.sign(json.dumps(document).encode()), PREDICATE)
    assert "does not count" in why(registry, image, TrustFile(builders=(builder.party,)))


def test_a_key_does_not_count_for_an_identity(
    registry: Registry, image: str, builder: Builder, tmp_path: Path
) -> None:
    builder.prove(registry, image)
    roots = tmp_path / "roots"
    roots.write_text('{"mediaType":"application/vnd.dev.sigstore.trustedroot+json;version=0.1"}')
    identity = Signatory(identity="https://github.com/team/tf", issuer="https://issuer", trusted_root=roots)
    workflow = Party("ci", identity, now_utc() + timedelta(days=1))
    assert "not signed by a builder" in why(registry, image, TrustFile(builders=(workflow,)))


def test_false_provenance_does_not_hide_the_true_one(
    registry: Registry, image: str, builder: Builder, stranger: Builder
) -> None:
    """Everybody who may write to the registry can attach more."""
    stranger.prove(registry, image)
    signatures.attach(registry, image, b"no bundle", PREDICATE)
    builder.prove(registry, image)
    trust = TrustFile(builders=(builder.party,))
    assert isinstance(provenance_of(registry, image, trust), Provenance)


@pytest.mark.parametrize("base", ["", f"registry:127.0.0.1:9/python:3.12@sha256:{'6' * 64}"])
def test_a_base_of_their_own_is_not_read_to_make_an_image_again(repository: Repository, base: str) -> None:
    """`verify --rebuild` would otherwise count the layers of that base as good, and `certify` sign them."""
    spec = ImageSpec("2.21.0", "3.12", Variant.GPU, Choice("as-built", "12.5"), Choice("as-built", "9.3"))
    lock = Lock(spec.identifier, spec.python, "x86_64-manylinux_2_28", (), ())
    digest = push_image(repository, "theirs", {LABEL_BASE: base})
    with pytest.raises(InputError, match="does not name its base" if not base else "not the one of"):
        rebuild_image(Registry(repository), digest, spec, lock, PackageSources(), lambda _: None)
