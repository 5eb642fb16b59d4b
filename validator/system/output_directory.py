"""A directory of generated files, replaced while it is being read, and shared with other people's files.

Every file that is written here has a mark near its beginning, and only files with that mark are ever
replaced or removed. The entry file, which leads to all others, is replaced last: whoever reads, and whatever
is killed, finds the old state or the new one.
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

#: How far from its beginning a file may have its mark.
_HEAD = 256
#: What `write_atomically` leaves behind when it is killed.
_PARTIAL = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{16}")


@dataclass(frozen=True)
class Published:
    """How many files were written, left as they were, and removed."""

    written: int
    unchanged: int
    removed: int


def publish(
    directory: Path, files: Iterable[tuple[str, bytes]], *, entry: str, mark: bytes, folders: Iterable[str]
) -> Published:
    """Write the files and remove those of an earlier time.

    files: relative paths with their contents, each with `mark` in it; taken one by one, so that they need
        not all be in memory.
    entry: the path among them that is written last.
    folders: where files of an earlier time are looked for, with `entry`'s own directory left alone.

    Raises InputError when another file has the name of one of ours, MissingError when the directory can't be
    written.
    """
    with _alone_in(directory):
        _check_ours(directory / entry, mark)
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
    return Published(count[True], count[False], removed)


@contextlib.contextmanager
def _alone_in(directory: Path) -> Iterator[None]:
    """Wait until no other process publishes here."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except (FileExistsError, NotADirectoryError) as error:
        raise InputError(f"{directory}: is no directory", hint="name a directory") from error
    except OSError as error:
        raise MissingError(
            f"{directory}: can't be written: {error.strerror}", hint="name a place where files can be written"
        ) from error
    try:
        # The kernel lets go when the process ends, however it ends.
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _write(path: Path, content: bytes, mark: bytes) -> bool:
    """Whether there was anything to write."""
    if mark not in content[:_HEAD]:
        raise ValueError(f"{path.name} has no mark")
    if _check_ours(path, mark) and path.read_bytes() == content:
        return False
    write_atomically(path, content)
    return True


def _check_ours(path: Path, mark: bytes) -> bool:
    """Whether there is an earlier file of ours. Raises InputError when there is one that is not."""
    if not path.exists():
        return False
    if not _is_marked(path, mark):
        raise InputError(
            f"{path}: is there already, and was not written by this program",
            hint="name another directory, or move the file away",
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
        # A partial file may have been cut before its mark. Then its name has to be one of ours, but with an
        # empty one nobody loses anything.
        ours = partial is not None and (f"{folder}/{partial['name']}" in names or path.stat().st_size == 0)
        if f"{folder}/{path.name}" not in names and (ours or _is_marked(path, mark)):
            path.unlink(missing_ok=True)
            removed += 1
    return removed
