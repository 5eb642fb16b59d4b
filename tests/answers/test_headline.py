"""The headline of an answer, as it follows from the ways of getting releases."""

from __future__ import annotations

from typing import Any

import pytest

from validator.answers.what_works import headline, newest_in_mode


def made(name: str, release: str, outcome: str = "works", **changes: Any) -> dict[str, Any]:
    """Return a way of getting a release."""
    return {
        "way": name, "release": release, "modes": "eager and XLA", "outcome": outcome,
        "verdict": None, "measured": None,
        "other_build_certified": False, "cell": "a cell",
    } | changes  # fmt: skip


CERTIFIED = {"verdict": "certified"}
EAGER = {"modes": "eager-only"}


@pytest.mark.parametrize(
    ("ways", "says"),
    [
        ([], "No TensorFlow release is expected to use the GPU here."),
        ([made("image", "2.9.0"), made("pip", "2.9.0")], "TensorFlow 2.9.0 should work."),
        ([made("pip", "2.9.0")], "TensorFlow 2.9.0 should work with pip."),
        ([made("image", "2.9.0")], "TensorFlow 2.9.0 should work in an image."),
        (
            [made("image", "2.9.0", **CERTIFIED), made("pip", "2.9.0")],
            "TensorFlow 2.9.0 works in an image, and should work with pip.",
        ),
        ([made("image", "2.9.0", "unknown"), made("pip", "2.8.0")], "TensorFlow 2.8.0 should work with pip."),
        (
            [made("image", "2.9.0", **CERTIFIED), made("pip", "2.10.0", "unknown")],
            "TensorFlow 2.9.0 works in an image.",
        ),
        (
            [made("image", "2.10.0", **EAGER), made("image", "2.9.0", **CERTIFIED), made("pip", "2.8.0")],
            "TensorFlow 2.9.0 works in an image, and 2.8.0 should work with pip."
            " An image of TensorFlow 2.10.0 should work too for eager operations.",
        ),
        (
            [made("image", "2.10.0", **EAGER), made("image", "2.9.0"), made("pip", "2.8.0")],
            "For eager operations, TensorFlow 2.10.0 should work in an image, and 2.8.0 with pip."
            " With XLA, TensorFlow 2.9.0 should work in an image, and 2.8.0 with pip.",
        ),
        (
            [made("pip", "2.9.0", **EAGER), made("image", "2.8.0", "unknown")],
            "For eager operations, TensorFlow 2.9.0 should work with pip."
            " No release is known to work with XLA.",
        ),
    ],
)
def test_the_headline_follows_from_the_ways(ways: list[dict[str, Any]], says: str) -> None:
    assert headline(ways, (), ()) == says


def test_the_headline_names_what_was_refuted() -> None:
    one = {"release": "2.9.0", "name": "CUDA 11.2", "verdict": "failed"}
    assert headline([], (), [one]) == (
        "No TensorFlow release is expected to use the GPU here."
        " The image of TensorFlow 2.9.0 with CUDA 11.2 failed when it was measured."
    )
    several = [one, {**one, "verdict": "broken"}, {**one, "release": "2.8.0"}]
    assert headline([], (), several).endswith(
        " 3 images of TensorFlow 2.9.0 and 2.8.0 were tried and do not work."
    )


def test_the_newest_way_is_that_of_the_newest_release() -> None:
    # As text, 2.9.0 is greater than 2.10.0.
    ways = [made("image", "2.9.0"), made("image", "2.10.0"), made("pip", "2.9.0")]
    assert newest_in_mode(ways, "eager")["shown"] == "TensorFlow 2.10.0 in an image, 2.9.0 with pip"
    assert newest_in_mode(ways[:0:-1], "eager")["release"] == "2.10.0"
