"""Read one package that a matrix or a requirements file asks for: a requirement, or the path of a wheel."""

from __future__ import annotations

import functools
import hashlib
import os
import re
from pathlib import Path

from .._vendor.packaging.requirements import InvalidRequirement, Requirement
from .._vendor.packaging.utils import InvalidWheelFilename, parse_wheel_filename
from ..model.additions import LocalWheel
from .problems import quote

_EDITABLE = re.compile(r"(?:-e|--editable)\b")
_VCS = re.compile(r"(?:git|hg|svn|bzr)\+", re.IGNORECASE)
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://|file:", re.IGNORECASE)
_ARCHIVES = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".zip")
#: The platforms of wheels that the images can install; the lock compares versions of glibc.
_PLATFORM = re.compile(r"any|(?:manylinux[0-9_]*|linux)_x86_64")


def read_package(text: str, directory: Path, root: Path) -> str | LocalWheel:
    """Return a requirement in its normal form, or the wheel that a path names.

    directory: the one to which the path is relative. root: the directory of the matrix file.
    Raises ValueError, with what to do, for everything that is not a wheel or not the name of one.
    """
    if _EDITABLE.match(text):
        raise ValueError(_from_source("is an editable requirement", re.sub(r"^\S+?[ =]+", "", text)))
    if _VCS.match(text):
        raise ValueError(_from_source("names a repository", text))
    if _ADDRESS.match(text):
        raise ValueError(_ADDRESS_REFUSED)
    if _is_path(text):
        return _wheel(text, directory, root)
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        raise ValueError(f"is not a requirement: {str(error).splitlines()[0]}") from None
    if requirement.url is None:
        return str(requirement)
    if _VCS.match(requirement.url):
        raise ValueError(_from_source("names a repository", requirement.url))
    raise ValueError(_ADDRESS_REFUSED)


_ADDRESS_REFUSED = (
    "is an address, but a lock is the same on every network; download the wheel, and write its path,"
    " such as ./wheels/ours-1.0-py3-none-any.whl"
)


def _from_source(what: str, source: str) -> str:
    return (
        f"{what}; images are made only from wheels: build one with"
        f" `uvx pip wheel --no-deps --wheel-dir wheels {quote(source)}` and write its path"
    )


def _is_path(text: str) -> bool:
    if " @ " in text:
        return False
    return text.startswith((".", "/", "~")) or "\\" in text or text.lower().endswith((".whl", *_ARCHIVES))


def _wheel(text: str, directory: Path, root: Path) -> LocalWheel:
    if text.startswith(("/", "~")) or "\\" in text:
        raise ValueError("must be a path relative to this file, with /, so that it is the same elsewhere")
    path = directory / text
    if not text.lower().endswith(".whl"):
        what = "is a source distribution" if text.lower().endswith(_ARCHIVES) else "is not a wheel"
        raise ValueError(_from_source(what, text))
    try:
        name, version, _, tags = parse_wheel_filename(path.name)
    except InvalidWheelFilename as error:
        raise ValueError(f"is not the name of a wheel: {error}") from None
    platforms = sorted({tag.platform for tag in tags})
    if not any(_PLATFORM.fullmatch(platform) for platform in platforms):
        raise ValueError(
            f"is for {', '.join(platforms)}, but images are for Linux on x86_64 with glibc; build it for that"
        )
    sha256, size = file_hash(path)
    return LocalWheel(relative_to(path, root), name, str(version), sha256, size)


def relative_to(path: Path, root: Path) -> str:
    """Return a path relative to the directory of the matrix file, with `/` and without `./`."""
    return Path(os.path.relpath(path, root)).as_posix()


def file_hash(path: Path) -> tuple[str, int]:
    """Return the SHA-256 (hex) and the size of a file. Raises ValueError if it can't be read."""
    try:
        found = path.stat()
        if not path.is_file():
            raise ValueError("is not a file")
        return _hash(path, found.st_mtime_ns, found.st_size), found.st_size
    except OSError as error:
        raise ValueError(f"can't be read: {error.strerror}") from None


@functools.lru_cache(maxsize=256)
def _hash(path: Path, modified_ns: int, size: int) -> str:
    """Return the hash of a file. The other parameters make a changed file another one for the cache."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while part := stream.read(1024 * 1024):
            digest.update(part)
    return digest.hexdigest()
