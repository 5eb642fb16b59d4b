"""TensorFlow releases, listed and not."""

from __future__ import annotations

import pytest

from validator.compat import facts, releases
from validator.compat.facts import UnknownRelease
from validator.errors import EXIT_INPUT
from validator.versions import major_minor

pytestmark = pytest.mark.usefixtures("releases_up_to_2_22rc")


def test_newest_is_stable() -> None:
    newest = releases.newest()
    assert not newest.prerelease
    assert releases.releases()[-1].prerelease, "the tables hold a release candidate; this test needs one"
    assert newest.version == "2.21.0"


@pytest.mark.parametrize(("minor", "expected"), [("2.14", "2.14.1"), ("2.15", "2.15.1"), ("2.19", "2.19.1")])
def test_newest_patch(minor: str, expected: str) -> None:
    assert releases.newest_patch(minor).version == expected


def test_newest_patch_of_a_minor_with_only_a_candidate() -> None:
    with pytest.raises(UnknownRelease, match=r"the nearest are 2\.21"):
        releases.newest_patch("2.22")


def test_a_post_release_is_another_release() -> None:
    assert releases.release("2.15.0").needs_tensorrt
    assert not releases.release("2.15.0.post1").needs_tensorrt


def test_a_version_of_two_parts_is_the_first_patch() -> None:
    assert releases.release("2.21") is releases.release("2.21.0")


@pytest.mark.parametrize(
    ("asked", "first"),
    [
        ("2.23.0", "2.22.0rc0"),
        ("2.99", "2.22.0rc0"),
        ("1.15.0", "2.8.0"),
        ("2.7.0", "2.8.0"),
        ("2.18.5", "2.18.1"),
        ("2.19.3", "2.19.1"),
        ("2.15.2", "2.15.1"),
        ("2.19.0rc1", "2.19.1"),
    ],
)
def test_an_unknown_release_names_the_nearest(asked: str, first: str) -> None:
    with pytest.raises(UnknownRelease) as caught:
        releases.release(asked)
    assert caught.value.nearest[0] == first
    assert caught.value.exit_code == EXIT_INPUT
    assert isinstance(caught.value, ValueError)


def test_a_release_that_is_only_a_candidate_says_so() -> None:
    with pytest.raises(UnknownRelease, match=r"only its candidate 2\.22\.0rc0 was inspected") as caught:
        releases.release("2.22.0")
    assert caught.value.nearest[0] == "2.22.0rc0"
    assert caught.value.hint and "2.21.0" in caught.value.hint


@pytest.mark.parametrize("asked", ["", "latest", "two", "2..1"])
def test_text_that_is_not_a_version_is_rejected(asked: str) -> None:
    with pytest.raises(UnknownRelease, match="is not a TensorFlow release"):
        releases.release(asked)


def test_a_release_whose_wheel_was_not_opened_follows_the_nearest_one_that_was() -> None:
    rows = facts.rows("tensorflow", "kernels")
    opened = {major_minor(row["tensorflow"]) for row in rows if row["status"] == "verified-local"}
    for row in rows:
        if major_minor(row["tensorflow"]) in opened:
            assert facts.fact(row).decides, row["id"]
