"""Create a directory atomically: all of it or nothing."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from ..errors import InputError
from .files import symbolic_link, writing
from .runs import temporary_directory


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
        _make(path.parent)
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


def _make(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise InputError(f"{directory}: not a directory", hint="choose a directory") from error


def _sync(directory: Path) -> None:
    """Wait until the names in a directory are on the disk."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
