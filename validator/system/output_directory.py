"""A directory of generated files that may be read while it is updated, and may contain the user's own files.

Every generated file has a mark near its beginning, and only files with the mark are replaced or removed. The
entry file, which leads to all others, is replaced last, so readers see either the old state or the new one,
even if the update is killed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import InputError
from .files import replace_file, symbolic_link, writing
from .pools import map_ahead
from .runs import temporary_directory

#: Files that are written at once. Each has to reach the disk before it gets its name, and a disk takes
#: several in the time of one.
_AT_ONCE = 8
#: The mark is within this many bytes from the beginning of a file.
_HEAD = 256
#: The temporary files of `replace_file`, which it leaves behind if it is killed.
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

    files: relative paths, each once, with their contents, each containing `mark`; consumed one by one, so
        that they need not all be in memory.
    entry: the path of the file to write last.
    folders: the subdirectories to remove outdated files from.

    Raises InputError if one of the user's own files has the name of a generated one, or if the directory or
    a part of it is a symbolic link. Raises MissingError if the directory can't be written.
    """
    with _exclusive(directory) as output:
        output.content(entry, mark)
        names: set[str] = set()
        held: bytes | None = None

        def others() -> Iterator[tuple[str, bytes]]:
            nonlocal held
            for name, content in files:
                names.add(name)
                if name == entry:
                    held = content
                else:
                    yield name, content

        count = Counter(map_ahead(lambda one: output.write(*one, mark), others(), _AT_ONCE))
        if held is None:
            raise ValueError(f"{entry} is not among the files")
        count[output.write(entry, held, mark)] += 1
        removed = sum(output.remove_stale(folder, names, mark) for folder in folders)
    return Changes(count[True], count[False], removed)


@dataclass(frozen=True)
class _Output:
    """The open directory. Below it, no symbolic link is followed: somebody else may have put it there.

    path: for messages.
    """

    path: Path
    handle: int

    def write(self, name: str, content: bytes, mark: bytes) -> bool:
        """Write a file if its content changed. Return True if it did."""
        if mark not in content[:_HEAD]:
            raise ValueError(f"{name} has no mark")
        if self.content(name, mark) == content:
            return False
        folder, _, last = name.rpartition("/")
        with writing(self.path / name), self._folder(folder, create=True) as handle:
            replace_file(handle, last, content)
        return True

    def content(self, name: str, mark: bytes) -> bytes | None:
        """Return the content of a generated file, or None if there is none.

        Raises InputError if there is a file without the mark, or something else.
        """
        folder, _, last = name.rpartition("/")
        path = self.path / name
        with writing(path), contextlib.suppress(FileNotFoundError), self._folder(folder) as handle:
            content = _read(handle, last, path, mark)
            if content is None or mark not in content[:_HEAD]:
                raise InputError(
                    f"{path}: this file exists and was not written by this program, so it is not replaced",
                    hint="choose another directory, or move the file away",
                )
            return content
        return None

    def remove_stale(self, folder: str, names: set[str], mark: bytes) -> int:
        """Remove the generated files of a folder that are not among `names`. Return their number."""
        removed, path = 0, self.path / folder
        with writing(path), contextlib.suppress(FileNotFoundError), self._folder(folder) as handle:
            for last in sorted(os.listdir(handle)):
                if f"{folder}/{last}" in names:
                    continue
                content = None
                with contextlib.suppress(OSError, InputError):
                    content = _read(handle, last, Path(last), mark)
                if content is None:
                    continue
                partial = _PARTIAL.fullmatch(last)
                # A partial file may have been cut off before its mark. Then it is removed only if its name
                # belongs to a generated file, or if it is empty.
                is_leftover = partial is not None and (f"{folder}/{partial['name']}" in names or not content)
                if is_leftover or mark in content[:_HEAD]:
                    os.unlink(last, dir_fd=handle)
                    removed += 1
        return removed

    @contextlib.contextmanager
    def _folder(self, folder: str, *, create: bool = False) -> Iterator[int]:
        """Open a subdirectory. Raises OSError, and InputError if it is a symbolic link."""
        handle = os.dup(self.handle)
        path = self.path
        try:
            for part in folder.split("/") if folder else ():
                path /= part
                if create:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(part, dir_fd=handle)
                below = _open_directory(part, path, handle)
                os.close(handle)
                handle = below
            yield handle
        finally:
            os.close(handle)


@contextlib.contextmanager
def _exclusive(directory: Path) -> Iterator[_Output]:
    """Wait until no other process updates the directory, then lock it."""
    with writing(directory):
        try:
            directory.mkdir(parents=True, exist_ok=True)
            handle = _open_directory(directory, directory)
        except (FileExistsError, NotADirectoryError) as error:
            raise InputError(f"{directory}: not a directory", hint="choose a directory") from error
    try:
        # The kernel releases the lock when the process ends, even if it is killed.
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield _Output(directory, handle)
    finally:
        os.close(handle)


def _open_directory(name: Path | str, path: Path, above: int | None = None) -> int:
    try:
        return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    except OSError as error:
        # With O_DIRECTORY, Linux reports a link as "not a directory".
        if error.errno in (errno.ELOOP, errno.ENOTDIR) and path.is_symlink():
            raise symbolic_link(path) from error
        raise


def _read(directory: int, name: str, path: Path, mark: bytes) -> bytes | None:
    """Return the content of a file, or its beginning if that has no mark. None: it is not a regular file.

    Raises OSError, and InputError for a symbolic link.
    """
    try:
        # Without O_NONBLOCK, opening a pipe would wait for its other end.
        handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise symbolic_link(path) from error
        raise
    with open(handle, "rb") as stream:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return None
        head = stream.read(_HEAD)
        return head + stream.read() if mark in head else head


@contextlib.contextmanager
def whole_directory(path: Path, may_replace: Callable[[Path], None]) -> Iterator[Path]:
    """Yield an empty directory next to `path`, and rename it to `path` when the block ends without an error.

    What was not finished is removed, after a `kill -9` by the next command. Until the end, nothing changes
    at `path`.

    may_replace: called with a directory that is at `path` and not empty, before and after the block. It
        raises an error if that directory may not be replaced.

    Raises InputError if `path` is a symbolic link or is not a directory, and MissingError if nothing can be
    written there.
    """
    path = Path(os.path.abspath(path))
    _check(path, may_replace)
    with writing(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise InputError(f"{path.parent}: not a directory", hint="choose a directory") from error
        with temporary_directory("export", path.parent) as work:
            new, old = work / "new", work / "old"
            new.mkdir()
            yield new
            _sync(new)
            # Somebody may have put something there in the meantime.
            if _check(path, may_replace):
                os.rename(path, old)
            try:
                # An empty directory is replaced by this.
                os.rename(new, path)
            except OSError:
                with contextlib.suppress(FileNotFoundError):
                    os.rename(old, path)
                raise
            _sync(path.parent)


def _check(path: Path, may_replace: Callable[[Path], None]) -> bool:
    """Return True if there is a directory to move away. Raises InputError for what can't be replaced."""
    if path.is_symlink():
        raise symbolic_link(path)
    with writing(path):
        if not os.path.lexists(path):
            return False
        if not path.is_dir():
            raise InputError(f"{path}: not a directory", hint="choose a directory")
        if not os.listdir(path):
            return False
    may_replace(path)
    return True


def _sync(directory: Path) -> None:
    """Wait until the names in a directory are on the disk."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
