"""A directory of generated files that may be read while it is updated, and may contain the user's own files.

Every generated file has a mark near its beginning, and only files with the mark are replaced or removed. The
entry file, which leads to all others, is replaced last, so readers see either the old state or the new one,
even if the update is killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import InputError, MissingError
from .files import write_atomically

#: The mark is within this many bytes from the beginning of a file.
_HEAD = 256
#: The temporary files of `write_atomically`, which it leaves behind if it is killed.
_PARTIAL = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{16}")


@dataclass(frozen=True)
class Changes:
    """The numbers of files that were written, left unchanged, and removed."""

    written: int
    unchanged: int
    removed: int


def update_directory(
    directory: Path, files: Iterable[tuple[str, bytes]], *, entry: str, mark: bytes, folders: Iterable[str]
) -> Changes:
    """Write the files, and remove generated files that are no longer among them.

    files: relative paths with their contents, each containing `mark`; consumed one by one, so that they need
        not all be in memory.
    entry: the path of the file to write last.
    folders: the subdirectories to remove outdated files from.

    Raises InputError if a file of the user's has the name of a generated one, and MissingError if the
    directory can't be written.
    """
    with _exclusive(directory):
        _is_generated(directory / entry, mark)
        names: set[str] = set()
        count = {True: 0, False: 0}
        held: bytes | None = None
        for name, content in files:
            names.add(name)
            if name == entry:
                held = content
            else:
                count[_write(directory / name, content, mark)] += 1
        if held is None:
            raise ValueError(f"{entry} is not among the files")
        count[_write(directory / entry, held, mark)] += 1
        removed = sum(_remove_stale(directory, folder, names, mark) for folder in folders)
    return Changes(count[True], count[False], removed)


@contextlib.contextmanager
def _exclusive(directory: Path) -> Iterator[None]:
    """Wait until no other process updates the directory, and keep others out."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except (FileExistsError, NotADirectoryError) as error:
        raise InputError(f"{directory}: not a directory", hint="choose a directory") from error
    except OSError as error:
        raise MissingError(
            f"{directory}: can't be written: {error.strerror}", hint="choose a path that you may write to"
        ) from error
    try:
        # The kernel releases the lock when the process ends, even if it is killed.
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _write(path: Path, content: bytes, mark: bytes) -> bool:
    """Write a file if its content changed. Return True if it did."""
    if mark not in content[:_HEAD]:
        raise ValueError(f"{path.name} has no mark")
    if _is_generated(path, mark) and path.read_bytes() == content:
        return False
    write_atomically(path, content)
    return True


def _is_generated(path: Path, mark: bytes) -> bool:
    """Return True if there is a generated file. Raises InputError if there is a file without the mark."""
    if not path.exists():
        return False
    if not _is_marked(path, mark):
        raise InputError(
            f"{path}: this file exists and was not written by this program, so it is not replaced",
            hint="choose another directory, or move the file away",
        )
    return True


def _is_marked(path: Path, mark: bytes) -> bool:
    try:
        with open(path, "rb") as stream:
            return mark in stream.read(_HEAD)
    except OSError:
        return False


def _remove_stale(directory: Path, folder: str, names: set[str], mark: bytes) -> int:
    removed = 0
    for path in sorted((directory / folder).glob("*")):
        partial = _PARTIAL.fullmatch(path.name)
        # A partial file may have been cut off before its mark. Then it is removed only if its name belongs to
        # a generated file, or if it is empty.
        is_leftover = partial is not None and (
            f"{folder}/{partial['name']}" in names or path.stat().st_size == 0
        )
        if f"{folder}/{path.name}" not in names and (is_leftover or _is_marked(path, mark)):
            path.unlink(missing_ok=True)
            removed += 1
    return removed
