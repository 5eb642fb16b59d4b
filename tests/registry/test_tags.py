"""The tags of images and their aliases."""

from __future__ import annotations

from dataclasses import replace

import pytest

from validator.errors import InputError
from validator.model.spec import Additions, Choice, ImageSpec, Variant
from validator.registry.names import (
    additions_of,
    driver_alias,
    identifier_of,
    image_tag,
    release_alias,
    tag_named,
    tag_of,
)

GPU = ImageSpec("2.21.0", "3.12", Variant.GPU, Choice("as-built", "12.5"), Choice("as-built", "9.3"))


@pytest.mark.parametrize(
    ("spec", "tag"),
    [
        (GPU, "2.21.0-cuda12.5-cudnn9.3-py3.12"),
        (ImageSpec("2.21.0", "3.9", Variant.CPU), "2.21.0-cpu-py3.9"),
        (
            ImageSpec(
                "2.22.0rc1", "3.13", Variant.GPU, Choice("latest", "12.9", True), Choice("9.10.2", "9.10.2")
            ),
            "2.22.0rc1-cudalatest-cudnn9.10.2-py3.13",
        ),
        (
            ImageSpec("2.21.0", "3.12", Variant.CPU, base="debian:trixie"),
            "2.21.0-cpu-py3.12-debian-trixie",
        ),
        (replace(GPU, additions=Additions("ours")), "2.21.0-cuda12.5-cudnn9.3-py3.12_ours"),
        (
            replace(GPU, base="debian:trixie", additions=Additions(packages=("pandas>=2",))),
            "2.21.0-cuda12.5-cudnn9.3-py3.12-debian-trixie_0d67bfe3",
        ),
    ],
)
def test_a_tag_is_converted_to_its_image_spec_and_back(spec: ImageSpec, tag: str) -> None:
    assert image_tag(spec) == tag
    assert identifier_of(tag) == spec.identifier
    assert additions_of(tag) == additions_of(spec.identifier) == (spec.additions and spec.additions.label)


@pytest.mark.parametrize(
    "tag", ["latest", "2.21", "2.21-driver535", "2.21.0", "sha256-" + "a" * 64 + ".att", "2.21.0-gpu", "v1"]
)
def test_aliases_and_foreign_tags_have_no_identifier(tag: str) -> None:
    assert identifier_of(tag) is None


def test_people_name_an_image_by_its_spec() -> None:
    assert tag_named("tf2.21.0-cpu-py312_ours") == "2.21.0-cpu-py3.12_ours"
    assert all(tag_named(name) == name for name in ("latest", "2.21-driver580", "mine"))
    with pytest.raises(InputError) as caught:
        tag_named("2.21.0-cpu-py3.12")
    assert caught.value.hint == "write tf2.21.0-cpu-py312"


@pytest.mark.parametrize("identifier", ["", "2.21.0-cpu-py3.12", "tf2.21.0", "tf2.21.0-cpu-py3.12", "latest"])
def test_an_invalid_identifier_has_no_tag(identifier: str) -> None:
    with pytest.raises(ValueError, match="not the identifier"):
        tag_of(identifier)


def test_aliases_are_made_from_releases() -> None:
    assert release_alias("2.21.0") == "2.21"
    assert driver_alias("2.21.0", 535) == "2.21-driver535"
