"""The size budget of an image."""

from __future__ import annotations

from dataclasses import replace

import pytest

from validator.errors import BuildError
from validator.model.spec import ImageSpec, Lock, Variant, Wheel
from validator.pipeline.makers import refuse_too_large

SPEC = ImageSpec("2.21.0", "3.12", Variant.CPU, max_size=500_000_000)


def wheel(name: str, version: str, megabytes: int | None) -> Wheel:
    size = None if megabytes is None else megabytes * 1_000_000
    return Wheel(name, version, version.rjust(64, "0"), f"{name}-{version}-py3-none-any.whl", size)


LOCK = Lock(
    SPEC.identifier,
    "3.12",
    "x",
    (),
    (wheel("numpy", "2.0", 20), wheel("pandas", "2.2", 13), wheel("tensorflow-cpu", "2.21.0", 250)),
)


def unknown() -> None:
    """Return no lock before the last change."""


def test_an_image_within_its_budget_passes() -> None:
    refuse_too_large(SPEC, 500_000_000, LOCK, unknown, is_whole=True)
    refuse_too_large(replace(SPEC, max_size=None), 10**12, LOCK, unknown, is_whole=True)


def test_a_larger_image_is_refused_with_its_largest_wheels() -> None:
    with pytest.raises(BuildError) as caught:
        refuse_too_large(SPEC, 500_100_000, LOCK, unknown, is_whole=True)
    assert str(caught.value) == (
        "tf2.21.0-cpu-py312: the image has 500.1 MB, but max_size is 500.0 MB. The largest wheels are"
        " tensorflow-cpu 250 MB, numpy 20 MB, pandas 13 MB."
    )


def test_a_part_of_the_image_is_called_a_part() -> None:
    refuse_too_large(SPEC, 500_000_000, LOCK, unknown, is_whole=False)
    with pytest.raises(BuildError, match=r"the image has at least 1\.20 GB, but max_size is 500\.0 MB"):
        refuse_too_large(SPEC, 1_200_000_000, LOCK, unknown, is_whole=False)


def test_what_changed_since_the_last_lock_comes_with_its_sizes() -> None:
    numpy = replace(wheel("numpy", "2.0", 20), sha256="f" * 64)
    before = replace(LOCK, wheels=(numpy, wheel("pandas", "2.1", 12), wheel("six", "1", 1)))
    with pytest.raises(BuildError) as caught:
        refuse_too_large(SPEC, 600_000_000, LOCK, lambda: before, is_whole=True)
    assert str(caught.value).endswith(
        " Since the last lock: tensorflow-cpu==2.21.0 was added (+250.0 MB),"
        " pandas==2.1 became 2.2 (+1.0 MB), six==1 was removed (-1.0 MB),"
        " numpy==2.0 is another file (+0.0 MB)."
    )


def test_long_lists_are_cut() -> None:
    many = tuple(wheel(f"w{number}", "1", number) for number in range(10, 20))
    with pytest.raises(BuildError) as caught:
        before = replace(LOCK, wheels=())
        refuse_too_large(SPEC, 600_000_000, replace(LOCK, wheels=many), lambda: before, is_whole=True)
    message = str(caught.value)
    assert "w19 19 MB, w18 18 MB, w17 17 MB, w16 16 MB, w15 15 MB." in message
    assert message.endswith("and 5 more.")
