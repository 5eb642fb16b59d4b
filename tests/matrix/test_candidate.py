"""`candidate`: the newest candidate of a release that is not there yet, in the matrix and as a selector."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from validator.compat import releases
from validator.matrix import load
from validator.matrix.load import load_matrix, parse_selectors
from validator.matrix.plan import expand

from .support import FILE, matrix

CACHED = (
    releases.release,
    releases.newest,
    releases.newest_patch,
    releases.is_candidate,
    load.is_newest_patch,
)


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make these the only releases, with the facts of 2.21.0."""
    like = releases.release("2.21.0")

    def only(*versions: str) -> None:
        rows = tuple(replace(like, version=version) for version in versions)
        monkeypatch.setattr(releases, "releases", lambda: rows)
        for function in CACHED:
            function.cache_clear()

    yield only
    monkeypatch.undo()
    for function in CACHED:
        function.cache_clear()


@pytest.mark.parametrize(
    ("versions", "candidates"),
    [
        (("2.21.0", "2.22.0rc0"), {"2.22.0rc0"}),
        (("2.21.0", "2.22.0rc0", "2.22.0rc1"), {"2.22.0rc1"}),
        (("2.21.0", "2.22.0rc0", "2.23.0rc0"), {"2.22.0rc0", "2.23.0rc0"}),
        (("2.21.0", "2.22.0rc0", "2.22.0"), set()),
        (("2.21.0", "2.23.0.dev20990101"), set()),
        (("2.21.0",), set()),
    ],
)
def test_a_candidate_is_the_newest_of_a_release_that_is_not_there_yet(
    known: Any, versions: tuple[str, ...], candidates: set[str]
) -> None:
    known(*versions)
    assert {version for version in versions if releases.is_candidate(version)} == candidates
    with_candidate = matrix("  - {tensorflow: [newest, candidate], python: all}")
    found = {cell.image.tensorflow for cell in expand(with_candidate, None).cells}
    assert found == {releases.newest().version} | candidates
    chosen = expand(with_candidate, None, select=parse_selectors(["tensorflow=candidate"])).cells
    assert {cell.image.tensorflow for cell in chosen} == candidates


def test_the_repository_has_a_profile_for_the_candidate() -> None:
    ours = load_matrix(FILE)
    there = {known.version for known in releases.releases() if releases.is_candidate(known.version)}
    found = expand(ours, "candidate").cells
    assert {cell.image.tensorflow for cell in found} == there
    assert len({(cell.image.tensorflow, cell.image.python) for cell in found}) == len(there)
    for profile in ("quick", "cpu", "nightly", "legacy"):
        assert not {cell.image.tensorflow for cell in expand(ours, profile).cells} & there


def test_a_candidate_is_no_newest_patch() -> None:
    assert not load.is_newest_patch("2.22.0rc0")
