"""Files written whole or not at all, and a full disk told apart from other faults."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from ..errors import MissingError

_NO_SPACE = {errno.ENOSPC, errno.EDQUOT}
#: What tools print when the disk is full, whatever the tool.
NO_SPACE_TEXT = (
    "No space left on device",
    "no space left on device",
    "Disk quota exceeded",
    "database or disk is full",
)


def write_atomically(path: Path, content: bytes) -> None:
    """Write beside the target and rename over it, so that a reader or a crash never sees half a file.

    A target that is a device or a pipe (`/dev/stdout`) is written to as it is; renaming would replace it.
    Raises MissingError when the disk is full or the place can't be written.
    """
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(content)
        else:
            _replace(path.resolve(), content)
    except OSError as error:
        if error.errno in _NO_SPACE:
            raise full_disk(path) from error
        raise MissingError(
            f"{path}: can't be written: {error.strerror}", hint="name a place where files can be written"
        ) from error


def _replace(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # open() rather than mkstemp(): the file gets the usual permissions from the kernel. To ask for the
    # umask is to set it, for all threads.
    partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with open(partial, "xb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def full_disk_named(path: Path | str) -> Iterator[None]:
    """Turn "no space left" into a MissingError that names the place."""
    try:
        yield
    except OSError as error:
        if error.errno in _NO_SPACE:
            raise full_disk(path) from error
        raise


def full_disk(path: Path | str) -> MissingError:
    """The error for a disk that is full at `path`."""
    return MissingError(
        f"no space left on the disk that holds {path}",
        hint="free some space and run the same command again; what was finished is kept",
    )


def says_full_disk(text: str) -> bool:
    """Whether a tool's output says that the disk is full."""
    return any(phrase in text for phrase in NO_SPACE_TEXT)


# Where things are kept: caches under the user's cache directory, records beside the matrix.

#: Kept inside the project's checkout: records and reports. Ignored by git.
STATE_DIRECTORY = Path(".validator")


def cache_directory() -> Path:
    """`$VALIDATOR_CACHE`, else `validator` under the XDG cache directory. May be removed at any time."""
    own = os.environ.get("VALIDATOR_CACHE")
    if own:
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tensorflow-gpu-matrix"
