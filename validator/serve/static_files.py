"""Find and open the files of a directory by the paths of requests, and nothing outside of it."""

from __future__ import annotations

import contextlib
import os
import stat
import urllib.parse
from dataclasses import dataclass
from typing import BinaryIO

#: The file that a request for the directory itself gets.
ENTRY = "index.html"
#: The media types of a page's files. Browsers refuse scripts, modules and WebAssembly of another type.
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".md": "text/markdown; charset=utf-8",
    ".svg": "image/svg+xml",
    ".wasm": "application/wasm",
    ".whl": "application/zip",
    ".xml": "application/atom+xml; charset=utf-8",
    ".zip": "application/zip",
}
_OTHER = "application/octet-stream"
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True)
class Found:
    """An open file. tag: changes when its content does. The caller closes the stream."""

    stream: BinaryIO
    size: int
    kind: str
    tag: str


def find(directory: int, target: str) -> Found | None:
    """Open the file that a request names; None if there is none.

    directory: the open directory. target: the path of the request, perhaps with a query. No symbolic link is
    followed, and no hidden file is found.
    """
    parts = _parts(target)
    if parts is None:
        return None
    handle = os.dup(directory)
    try:
        for number, part in enumerate(parts):
            last = number == len(parts) - 1
            below = os.open(part, _FLAGS | (0 if last else os.O_DIRECTORY), dir_fd=handle)
            os.close(handle)
            handle = below
        facts = os.fstat(handle)
        if not stat.S_ISREG(facts.st_mode):
            return None
        stream = open(os.dup(handle), "rb")  # noqa: SIM115
    except (OSError, ValueError):
        return None
    finally:
        with contextlib.suppress(OSError):
            os.close(handle)
    kind = TYPES.get(os.path.splitext(parts[-1])[1], _OTHER)
    return Found(stream, facts.st_size, kind, f'"{facts.st_mtime_ns:x}-{facts.st_ino:x}-{facts.st_size:x}"')


def _parts(target: str) -> list[str] | None:
    """Return the names in a path, or None for a path that a page's file can't have."""
    path = target.partition("?")[0].partition("#")[0]
    if not path.startswith("/"):
        return None
    names = path[1:].split("/") if path != "/" else [ENTRY]
    try:
        parts = [urllib.parse.unquote(name, errors="strict") for name in names]
    except UnicodeDecodeError:
        return None
    wrong = any(not part or part.startswith(".") or set(part) & {"/", "\\", "\0"} for part in parts)
    return None if wrong else parts
