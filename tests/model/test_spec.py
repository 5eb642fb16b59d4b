from __future__ import annotations

from validator.model.spec import Cell, Choice, HostClass, ImageSpec, Variant, slug
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


def test_slugs_are_safe_in_file_names() -> None:
    assert slug("NVIDIA A100-SXM4/80GB") == "nvidia-a100-sxm4-80gb"
