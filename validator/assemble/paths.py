"""Paths in images: which ones are refused, and the directories that they are in."""

from __future__ import annotations

import re
from collections.abc import Iterable

#: Bytes of one part, as Linux limits it, and of the whole path.
_LONGEST_NAME, _LONGEST_PATH = 255, 2000
_ODD_LETTER = re.compile(r"[\\\x00-\x1f\x7f]")


def path_problem(path: str) -> str | None:
    """Return why a relative path with `/` may not be in an image, or None."""
    if _is_ordinary(path):
        return None
    parts = path.split("/")
    if path.startswith("/"):
        return "is absolute"
    if "" in parts or "." in parts or ".." in parts:
        return "has empty parts, '.' or '..'"
    if _ODD_LETTER.search(path):
        return "has a backslash or a control character"
    if path.startswith(".wh.") or "/.wh." in path:
        return "has a name that deletes files in images (.wh.)"
    size = len(path.encode())
    if size > _LONGEST_PATH or (
        size > _LONGEST_NAME and max(len(part.encode()) for part in parts) > _LONGEST_NAME
    ):
        return "is too long"
    return None


def _is_ordinary(path: str) -> bool:
    """Return True for a path that needs no further checks. Nearly all are like that, so this saves time."""
    return (
        0 < len(path) <= _LONGEST_NAME
        and path.isascii()
        and path.isprintable()
        and "\\" not in path
        and "/." not in path
        and "//" not in path
        and path[0] not in "./"
        and path[-1] != "/"
    )


def directories_of(paths: Iterable[str]) -> set[str]:
    """Return every directory that one of the paths is in, at any depth."""
    found: set[str] = set()
    for path in paths:
        directory = path.rpartition("/")[0]
        while directory and directory not in found:
            found.add(directory)
            directory = directory.rpartition("/")[0]
    return found
