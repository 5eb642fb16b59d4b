"""Find the files of the build context that an image holds, by where a Dockerfile copies them."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

#: The newest copies count, so that a file with countless ones is read in time.
_MOST_COPIES = 200


@dataclass(frozen=True)
class Copy:
    """Files and directories of the build context, and where they are in the image.

    destination: an absolute path. into: True if it is certainly a directory.
    """

    sources: tuple[str, ...]
    destination: PurePosixPath
    into: bool


@dataclass(frozen=True)
class BuildContext:
    """The directories that may be the build context of a Dockerfile.

    It is the directory of the Dockerfile or one above it, up to the current directory.
    """

    directories: tuple[Path, ...]
    here: Path
    _files: dict[str, Path | None] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, dockerfile: Path) -> BuildContext:
        """Return the build context of a Dockerfile."""
        here, directory = Path.cwd().resolve(), dockerfile.parent.resolve()
        directories = [directory]
        if directory.is_relative_to(here):
            directories += [one for one in directory.parents if one.is_relative_to(here)]
        return cls(tuple(directories), here)

    def file(self, relative: str) -> Path | None:
        """Return a file of the build context, None if there is none of this name."""
        if relative in self._files:
            return self._files[relative]
        self._files[relative] = None
        for directory in self.directories:
            try:
                path = (directory / relative.lstrip("/")).resolve()
                is_there = path.is_file() and path.is_relative_to(self.directories[-1])
            except (OSError, ValueError):
                # Nothing can have this name: it is too long, or has a NUL.
                continue
            if is_there:
                path = path.relative_to(self.here) if path.is_relative_to(self.here) else path
                self._files[relative] = path
                break
        return self._files[relative]

    def file_in_image(self, copies: Sequence[Copy], path: PurePosixPath) -> Path | None:
        """Return the file that is at an absolute path in the image, None if no copy puts one there."""
        for copy in reversed(copies[-_MOST_COPIES:]):
            for relative in _sources(copy, path):
                file = self.file(relative)
                if file is not None:
                    return file
        return None


def absolute(directory: PurePosixPath, path: str | PurePosixPath) -> PurePosixPath:
    """Return a path in the image as an absolute one without `..`. directory: where a relative one begins."""
    return PurePosixPath(posixpath.normpath(PurePosixPath("/", directory, path)))


def _sources(copy: Copy, path: PurePosixPath) -> Iterator[str]:
    """Yield the names that a file of the image may have in the build context."""
    for source in copy.sources:
        if "://" in source:
            continue
        name = PurePosixPath(source).name
        if copy.destination == path.parent and fnmatchcase(path.name, name):
            yield str(PurePosixPath(source).parent / path.name)
        if copy.destination == path and not copy.into:
            yield source
        if path.is_relative_to(copy.destination):
            yield str(PurePosixPath(source, path.relative_to(copy.destination)))
