"""Files written whole or not at all, and a full disk told apart from other faults."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
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

    Raises MissingError when the disk is full.
    """
    with full_disk_named(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            # mkstemp makes private files; ours are as readable as any other that a person writes.
            os.chmod(name, 0o666 & ~_umask())
            os.replace(name, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
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


def _umask() -> int:
    # There is no way to read the umask without setting it.
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
