from __future__ import annotations

from dataclasses import replace

import pytest

from validator.model.spec import (
    Additions,
    Cell,
    CheckFile,
    Choice,
    HostClass,
    ImageSpec,
    LocalWheel,
    Requirements,
    Variant,
    is_name,
    slug,
    variant_of,
)
from validator.registry.names import identifier_of, image_tag, is_tag
from validator.versions import ComputeCapability, DriverRelease

AS_BUILT = ImageSpec("2.21.0", "3.12", Variant.GPU, Choice("as-built", "12.5"), Choice("as-built", "9.3"))
HOST = HostClass("r535-h100", DriverRelease.parse("535"), ComputeCapability(9, 0), "h100")


def test_identifiers() -> None:
    assert AS_BUILT.identifier == "tf2.21.0-cuda12.5-cudnn9.3-py312"
    assert ImageSpec("2.21.0", "3.13", Variant.CPU).identifier == "tf2.21.0-cpu-py313"
    assert Cell(AS_BUILT, HOST).identifier == "tf2.21.0-cuda12.5-cudnn9.3-py312@r535-h100"


def test_a_floating_choice_is_named_by_its_policy_so_that_the_name_stays() -> None:
    today = Choice("latest", "12.9", floats=True)
    spec = ImageSpec("2.21.0", "3.12", Variant.GPU, today, Choice("latest", "9.28", floats=True))
    assert spec.identifier == "tf2.21.0-cudalatest-cudnnlatest-py312"


def test_another_base_is_another_image() -> None:
    other = ImageSpec("2.21.0", "3.12", Variant.CPU, base="registry.example/Ubuntu:24.04")
    assert other.identifier == "tf2.21.0-cpu-py312-registry.example-ubuntu-24.04"


def test_additions_are_named_by_their_name_or_by_what_they_are() -> None:
    named = replace(AS_BUILT, additions=Additions("ours", packages=("pandas>=2",)))
    assert named.identifier == "tf2.21.0-cuda12.5-cudnn9.3-py312_ours"
    unnamed = replace(AS_BUILT, additions=Additions(packages=("pandas>=2",)))
    assert unnamed.additions is not None
    assert unnamed.identifier == f"tf2.21.0-cuda12.5-cudnn9.3-py312_{unnamed.additions.digest[:8]}"


@pytest.mark.parametrize(
    "other",
    [
        Additions(packages=("keras-hub",)),
        Additions(wheels=(LocalWheel("a-1-py3-none-any.whl", "a", "1", "00", 1),)),
        Additions(requirements=Requirements("requirements.txt", ("pandas>=2",))),
        Additions(system_packages=("git",)),
        Additions(environment=(("A", "1"),)),
        Additions(checks=(CheckFile("a.py", "00"),)),
        Additions(checks=(CheckFile("a.py", "00", required=False),)),
    ],
)
def test_the_digest_covers_everything_that_is_added(other: Additions) -> None:
    assert other.digest != Additions().digest
    assert replace(other, name="ours").digest == other.digest


@pytest.mark.parametrize("name", ["ours", "a", "team-2.x", "x" * 32, "deadbee", "deadbeef0"])
def test_valid_names(name: str) -> None:
    assert is_name(name)


@pytest.mark.parametrize("name", ["", "Ours", "a_b", "-a", "a-", "a b", "x" * 33, "deadbeef", "01234567"])
def test_invalid_names(name: str) -> None:
    assert not is_name(name)


def test_jupyter_has_cuda_and_starts_jupyterlab() -> None:
    jupyter = replace(AS_BUILT, variant=Variant.JUPYTER, additions=Additions("jupyter"))
    assert jupyter.identifier == "tf2.21.0-cuda12.5-cudnn9.3-py312_jupyter"
    assert jupyter.command[:2] == ("jupyter", "lab")
    assert AS_BUILT.command == ("python",)
    assert [variant.has_cuda for variant in Variant] == [True, False, True]


def test_the_tag_of_an_image_on_a_base_with_a_digest_is_valid() -> None:
    """As the manual recommends to name a base."""
    ours = replace(
        AS_BUILT, base=f"registry.example/ours/python:3.12@sha256:{'ab' * 32}", additions=Additions("ours")
    )
    assert ours.identifier == (
        "tf2.21.0-cuda12.5-cudnn9.3-py312-registry.example-ours-python-3.12-abababababab_ours"
    )
    assert is_tag(image_tag(ours)) and identifier_of(image_tag(ours)) == ours.identifier
    assert replace(ours, base=f"registry.example/ours/python:3.12@sha256:{'a' * 64}") != ours
    without = replace(ours, base="registry.example/ours/python:3.12").identifier
    assert without == "tf2.21.0-cuda12.5-cudnn9.3-py312-registry.example-ours-python-3.12_ours"


def test_slugs_are_safe_in_file_names() -> None:
    assert slug("NVIDIA A100-SXM4/80GB") == "nvidia-a100-sxm4-80gb"


@pytest.mark.parametrize(
    ("identifier", "variant"),
    [
        ("tf2.21.0-cpu-py312", Variant.CPU),
        ("tf2.22.0rc1-cpu-py39-debian-trixie_ours", Variant.CPU),
        ("tf2.21.0-cuda12.5-cudnn9.3-py312", Variant.GPU),
        ("tf2.21.0-cuda12.5-cudnn9.3-py312-registry-cpu-py3.12_cpu-py312", Variant.GPU),
    ],
)
def test_the_identifier_says_whether_an_image_has_cuda(identifier: str, variant: Variant) -> None:
    assert variant_of(identifier) is variant
