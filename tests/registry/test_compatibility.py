"""The description of the nodes that fit an image is attached to it, and found among its referrers."""

from __future__ import annotations

import pytest

from validator.assemble.configuration import ARTIFACT, MEDIA_TYPE, attach_compatibility, compatibility
from validator.registry.client import Registry
from validator.registry.names import Repository

from ..assemble.bases import CPU, GPU
from .images import push_image, referrers

pytestmark = pytest.mark.service


def test_it_is_found_among_what_refers_to_the_image(repository: Repository) -> None:
    digest, registry = push_image(repository, "one"), Registry(repository)
    attach_compatibility(registry, digest, GPU)
    (entry,) = referrers(repository, digest)
    # If there are several, the newest by this time counts.
    assert entry["annotations"]["org.opencontainers.image.created"]
    manifest = registry.manifest(entry["digest"])
    assert manifest is not None and manifest.layers is not None
    (layer,) = manifest.layers
    assert layer.media_type == MEDIA_TYPE
    assert registry.blob(layer.digest, 1 << 16) == compatibility(GPU)


def test_the_same_is_attached_once(repository: Repository) -> None:
    digest, registry = push_image(repository, "one"), Registry(repository)
    registry.attach(digest, ARTIFACT, b"version: v1alpha1\n", {}, media_type=MEDIA_TYPE)
    for _ in range(2):
        attach_compatibility(registry, digest, GPU)
    assert len(referrers(repository, digest)) == 2, "somebody else's, and this one"


def test_an_image_without_cuda_gets_none(repository: Repository) -> None:
    digest = push_image(repository, "one")
    attach_compatibility(Registry(repository), digest, CPU)
    assert referrers(repository, digest) == []
