"""The rows of images/layers.json are those that the code of this revision would write for its locks.

If one of these tests fails after a change of a lock, the rules of layers or the version of zstandard, run
`scripts/refresh layers`. `scripts/check-layers` checks whether the digests are right.
"""

from __future__ import annotations

import pytest

from validator.assemble.layer_table import FILE, SharedRow, read_rows
from validator.assemble.layers import MEDIA_TYPE, RECIPE
from validator.assemble.wheel_layers import _LARGE, made_from, wheel_layers
from validator.cli.planning import load_plan
from validator.locks.lock_files import DIRECTORY, LockDirectory
from validator.matrix.load import load_matrix
from validator.pipeline.sharing_layers import Image, locked_images, without_row
from validator.resources import images_directory, shipped_matrix


@pytest.fixture(scope="module")
def rows() -> tuple[SharedRow, ...]:
    found = read_rows(images_directory() / FILE)
    assert len(found) > 100
    return found


@pytest.fixture(scope="module")
def images() -> list[Image]:
    return locked_images(
        load_matrix(shipped_matrix()).images, LockDirectory(shipped_matrix().parent / DIRECTORY)
    )


def test_each_row_is_of_the_encoding_of_this_code(rows: tuple[SharedRow, ...]) -> None:
    assert {(row.recipe, row.media_type) for row in rows} == {(RECIPE, MEDIA_TYPE)}


def test_each_row_is_a_layer_of_a_lock(rows: tuple[SharedRow, ...], images: list[Image]) -> None:
    layers = {
        (group.name, made_from(group))
        for image in images
        for group in wheel_layers(image.lock, image.spec.variant)
    }
    large = [row for row in rows if row.read_from]
    assert {(row.name, row.made_from) for row in rows if row not in large} <= layers
    # Only a lock does not tell which large files TensorFlow's wheel has.
    wheels = {wheel.sha256 for image in images for wheel in image.lock.wheels if "tensorflow" in wheel.name}
    assert {row.made_from[0] for row in large} == {_LARGE}
    assert {part for row in large for part in row.read_from} <= wheels


@pytest.mark.slow
def test_every_image_of_the_nightly_profile_has_its_rows(
    rows: tuple[SharedRow, ...], images: list[Image]
) -> None:
    nightly = {spec.identifier for spec in load_plan(shipped_matrix(), "nightly", ()).images}
    missing = {
        image.spec.identifier: names
        for image in images
        if image.spec.identifier in nightly and (names := without_row(image, rows))
    }
    assert missing == {}


def test_no_layer_has_two_rows(rows: tuple[SharedRow, ...]) -> None:
    assert len({row.key for row in rows}) == len(rows)
