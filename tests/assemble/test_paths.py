"""Paths that are refused in images."""

from __future__ import annotations

import pytest

from validator.assemble.layers import path_problem

EMPTY_PARTS = "has empty parts, '.' or '..'"
DELETES = "has a name that deletes files in images (.wh.)"
CONTROL = "has a backslash or a control character"


@pytest.mark.parametrize(
    "path",
    ["a", "a/b.py", "...", "a/..b/c..", ".whl", "a.wh.b", "ä/ö", "n" * 255, "ä" * 127, "d/" * 999 + "ab"],
)
def test_a_usual_path_has_no_problem(path: str) -> None:
    assert path_problem(path) is None


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("/a", "is absolute"),
        ("", EMPTY_PARTS),
        ("a//b", EMPTY_PARTS),
        ("a/", EMPTY_PARTS),
        (".", EMPTY_PARTS),
        ("a/./b", EMPTY_PARTS),
        ("../a", EMPTY_PARTS),
        ("a/..", EMPTY_PARTS),
        ("a\\b", CONTROL),
        ("a\n", CONTROL),
        ("..\n", CONTROL),
        ("a\x7f", CONTROL),
        (".wh.a", DELETES),
        ("a/.wh.", DELETES),
        ("n" * 256, "is too long"),
        ("a/" + "ä" * 128, "is too long"),
        ("d/" * 1000 + "a", "is too long"),
    ],
)
def test_the_problem_of_a_refused_path_is_named(path: str, problem: str) -> None:
    assert path_problem(path) == problem
