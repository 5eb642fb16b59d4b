"""The few files of a base that decide what its images need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .entries import Entry


@dataclass(frozen=True)
class BaseFile:
    """A small regular file of a base. mode: permissions, such as 0o640."""

    content: bytes
    mode: int = 0o644
    uid: int = 0
    gid: int = 0


@dataclass(frozen=True)
class Interpreter:
    """The Python of a base. path: such as `/usr/local/bin/python3.12`. version: exact, such as `3.12.12`."""

    path: str
    version: str

    @property
    def feature(self) -> str:
        """The version without its last part: `3.12`."""
        return ".".join(self.version.split(".")[:2])


@dataclass(frozen=True)
class BaseFiles:
    """What was found in the file system of a base.

    files: small regular files by path without a leading slash, such as `etc/passwd` and those of `etc/skel`.
    directories: those that an image adds something to, such as `etc` and `usr/local`.
    paths: which of `usr/local/cuda` and `opt/venv` are there.
    glibc: such as `2.36`.
    """

    interpreter: Interpreter
    glibc: str
    files: Mapping[str, BaseFile] = field(default_factory=dict)
    paths: frozenset[str] = frozenset()
    directories: Mapping[str, Entry] = field(default_factory=dict)

    @property
    def glibc_version(self) -> tuple[int, int]:
        """Major and minor version of glibc."""
        major, minor = self.glibc.split(".")[:2]
        return int(major), int(minor)
