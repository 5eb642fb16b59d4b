"""Hints for an image that the engine does not have."""

from __future__ import annotations

import pytest

from validator.engines.containers import _find_image_hint


@pytest.mark.parametrize(
    ("image", "hint"),
    [
        ("ghcr.io/team/tensorflow:1", "pull it with `docker pull ghcr.io/team/tensorflow:1`"),
        (
            "tf2.21.0-cpu-py312",
            "the local image of this specification is tensorflow-gpu-matrix:tf2.21",
        ),
        (
            "tensorflow-gpu-matrix:tf2.21.0-cpu-py312",
            "build it with `validator build-matrix --profile full --select image=tf2.21",
        ),
        ("ours:1", "list the local images"),
        ("sha256:" + "0" * 64, "list the local images"),
    ],
)
def test_no_pull_of_a_name_that_is_in_no_registry(image: str, hint: str) -> None:
    found = _find_image_hint(image)
    assert found.startswith(hint)
    assert ("docker pull" in found) == ("/" in image)
