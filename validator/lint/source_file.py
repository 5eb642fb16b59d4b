"""Read a file within limits, and find the comments that silence findings in it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import InputError

#: The most bytes of a file that is read. The largest lock files have some megabytes.
MAX_BYTES = 16 * 1024 * 1024

_IGNORE = re.compile(r"#\s*validator:\s*ignore\[(?P<codes>[\w\s,-]*)\]")
_COMMENT_ONLY = re.compile(r"\s*#")


@dataclass(frozen=True)
class Source:
    """A file's text.

    name: as messages show it. ignored: line -> the codes that a comment silences there.
    """

    name: str
    text: str
    ignored: Mapping[int, frozenset[str]] = field(default_factory=dict, hash=False)


def read_source(path: Path) -> Source:
    """Read a text file. Raises InputError if it can't be read, is too large, or is not UTF-8."""
    name = str(path)
    try:
        if not path.is_file():
            what = "is not a file" if path.exists() else "does not exist"
            raise InputError(f"{name} {what}", hint="name the files to check, such as requirements.txt")
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        # ValueError: the name contains NUL, which no file name can.
        said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(f"{name} can't be read: {said}") from None
    if len(content) > MAX_BYTES:
        raise InputError(f"{name} is larger than {MAX_BYTES:,} bytes, so it is not checked")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{name} is not UTF-8", hint="save the file as UTF-8") from None
    return Source(name, text, _ignored(text))


def _ignored(text: str) -> dict[int, frozenset[str]]:
    """Return the codes that are silenced on each line: by a comment there, or on a line of its own above."""
    found: dict[int, frozenset[str]] = {}
    above: frozenset[str] = frozenset()
    if "validator:" not in text:
        return found
    for number, line in enumerate(text.splitlines(), start=1):
        match = _IGNORE.search(line)
        codes = frozenset(re.findall(r"[\w-]+", match["codes"])) if match else frozenset()
        if _COMMENT_ONLY.match(line):
            above |= codes
            continue
        if above | codes:
            found[number] = above | codes
        above = frozenset()
    return found
