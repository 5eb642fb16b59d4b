"""The one reader of files that people name, atomic writes, and the places where this tool keeps files."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from ..errors import InputError, MissingError

_NO_SPACE = {errno.ENOSPC, errno.EDQUOT}
#: The messages that tools print if the disk is full.
_NO_SPACE_TEXT = (
    "No space left on device",
    "no space left on device",
    "Disk quota exceeded",
    "database or disk is full",
)
#: The directories of links to open files: only the system can make links there.
_STREAMS = (Path("/dev"), Path("/dev/fd"), Path("/proc/self/fd"))
#: Bytes of a file that people write by hand: a lock, a list of requirements, a trust file, a notebook.
MAX_BYTES = 16 << 20
#: A TOML key with many parts. The parser needs memory for every prefix of the key.
_LONG_KEY = re.compile(
    r"""(?:^|[\[{,])[ \t]*(?:(?:[\w-]{1,200}|"[^"\n]{0,200}"|'[^'\n]{0,200}')[ \t]*\.[ \t]*){100}""",
    re.MULTILINE,
)


def read_file(path: Path, most: int = MAX_BYTES, *, inside: Path | None = None) -> bytes:
    """Return the content of a file that a person, or a file of a person, names.

    It must be a regular file of at most `most` bytes. So a device, a pipe that nobody writes to or a file
    without an end neither blocks the program nor fills the memory. `/dev/null`, `/dev/stdin` and `/dev/fd/63`
    (as `<(command)` gives it) are read as well, within the same limit.

    inside: the directory that has to contain the file, with all symbolic links followed; for names that come
        from a file, such as a matrix.

    Raises OSError with the path and the reason, whatever is wrong.
    """
    with open_file(path, most, inside=inside) as stream:
        content = stream.read(most + 1)
        if content is None:
            # Some files of the kernel have nothing to read yet.
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), str(path))
        if len(content) > most:
            raise OSError(errno.EFBIG, f"it is larger than {most:,} bytes", str(path))
        return content


def open_file(path: Path, most: int, *, inside: Path | None = None) -> IO[bytes]:
    """Open a file that `read_file` could read, for one that is too large for the memory.

    A path that a person gave may be `-`, which is standard input.
    """
    name = str(path)
    if name == "-" and inside is None:
        if sys.stdin is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), "stdin")
        return sys.stdin.buffer
    flags = os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC
    if inside is not None:
        is_inside = False
        with contextlib.suppress(ValueError):
            is_inside = Path(os.path.realpath(path)).is_relative_to(os.path.realpath(inside))
        if not is_inside:
            raise OSError(errno.EPERM, f"it is outside of {inside.absolute()}", name)
    try:
        if name in ("/dev/stdin", os.devnull) or path.parent in _STREAMS[1:]:
            return open(os.open(name, flags), "rb")
        handle = os.open(name, flags | os.O_NONBLOCK)
    except ValueError:
        raise OSError(errno.EINVAL, "its name contains NUL", name) from None
    found = os.fstat(handle)
    if stat.S_ISREG(found.st_mode) and found.st_size <= most:
        return open(handle, "rb")
    os.close(handle)
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    if stat.S_ISREG(found.st_mode):
        raise OSError(errno.EFBIG, f"it is larger than {most:,} bytes", name)
    raise OSError(errno.EINVAL, "it is not a regular file", name)


def read_text(path: Path, most: int = MAX_BYTES, *, inside: Path | None = None) -> str:
    """Return the text of a file as `read_file` does, without a byte order mark. Raises OSError."""
    try:
        return read_file(path, most, inside=inside).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise OSError(errno.EILSEQ, "it is not UTF-8", str(path)) from None


def parse_toml(text: str) -> dict[str, Any]:
    """Parse a TOML document. Raises ValueError, also for numbers, keys or nesting beyond the limits."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    if _LONG_KEY.search(text):
        raise ValueError("it has a key with too many parts")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise
    except RecursionError:
        raise ValueError("it nests too deep") from None
    except ValueError:
        raise ValueError("it has a number that is too long") from None


def text_or_nothing(path: Path) -> str:
    """Return the text of a file of the system, without blanks around it; empty if it can't be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def write_atomically(path: Path, content: bytes) -> None:
    """Write to a temporary file and rename it to `path`, so that nobody ever sees half a file.

    A device or a pipe (`/dev/stdout`) is written to directly, because renaming would replace it.
    Raises InputError if `path` is a symbolic link: somebody may have put it there to have another file
    overwritten. Raises MissingError if the disk is full or the file can't be written.
    """
    with writing(path):
        mode = stat.S_IFREG
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            mode = path.lstat().st_mode
        if stat.S_ISLNK(mode) and path.absolute().parent not in _STREAMS:
            raise symbolic_link(path)
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            path.write_bytes(content)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            replace_file(directory, path.name, content)
        finally:
            os.close(directory)


def replace_file(directory: int, name: str, content: bytes) -> None:
    """Replace a file in an open directory with a new one. A symbolic link is replaced, not followed.

    Raises OSError.
    """
    # With open(), the kernel gives the file the usual permissions; mkstemp() would need the umask, which
    # can't be read without setting it for all threads.
    partial = f".{name}.{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(partial, flags, 0o666, dir_fd=directory)
    try:
        with open(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(partial, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(partial, dir_fd=directory)
        raise


def symbolic_link(path: Path) -> InputError:
    """Return the error for a symbolic link at the path of a file or directory to write."""
    return InputError(
        f"{path}: is a symbolic link, and this program does not write through links",
        hint="give the path that the link points to, or remove the link",
    )


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an OSError into a MissingError that says that `path` can't be written, and why."""
    try:
        with full_disk_named(path):
            yield
    except OSError as error:
        raise MissingError(
            f"{path}: can't be written: {error.strerror}", hint="choose a path that you may write to"
        ) from error


@contextlib.contextmanager
def full_disk_named(path: Path | str) -> Iterator[None]:
    """Turn "no space left" into a MissingError that names the path."""
    try:
        yield
    except OSError as error:
        if error.errno in _NO_SPACE:
            raise full_disk(path) from error
        raise


def full_disk(path: Path | str) -> MissingError:
    """Return the error for a full disk at `path`."""
    return MissingError(
        f"no space left on the disk that holds {path}",
        hint="free some space and run the same command again; finished work is kept",
    )


def says_full_disk(text: str) -> bool:
    """Return True if a tool's output says that the disk is full."""
    return any(phrase in text for phrase in _NO_SPACE_TEXT)


#: Records and reports, next to the matrix. Ignored by git.
STATE_DIRECTORY = Path(".validator")


def home_directory() -> Path:
    """Return the user's home directory. Raises MissingError for a user who has none."""
    try:
        return Path.home()
    except RuntimeError as error:
        raise MissingError(
            "this user has no home directory: HOME is not set, and the system has no entry for the user",
            hint="set HOME to a directory that you may write to",
        ) from error


def cache_directory() -> Path:
    """Return `$VALIDATOR_CACHE`, or a directory in the XDG cache directory. It may be deleted at any time."""
    own = os.environ.get("VALIDATOR_CACHE")
    if own:
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else home_directory() / ".cache") / "tensorflow-gpu-matrix"


def machine_directory() -> Path:
    """Return the directory with this machine's own keys and challenges, in the XDG state directory.

    It belongs to the user, not to a matrix, and nothing that is measured can reach it. Unlike the cache, it
    must be kept.
    """
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else home_directory() / ".local" / "state") / "tensorflow-gpu-matrix"


def make_machine_directory() -> Path:
    """Create `machine_directory` if it is not there, for its owner only. Raises MissingError."""
    directory = machine_directory()
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.chmod(0o700)
    except OSError as error:
        raise MissingError(
            f"{directory}: can't be created: {error.strerror}",
            hint="this machine's keys are stored there; set XDG_STATE_HOME to a directory you may write to",
        ) from error
    return directory
