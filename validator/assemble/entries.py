"""The files of a layer, before they are encoded."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol


class Content(Protocol):
    """The content of a regular file.

    Every iterator raises ValidatorError with the name of the source (the wheel) if what it reads does not
    have the promised size, CRC or hash, at the end at the latest.
    """

    @property
    def size(self) -> int:
        """The uncompressed size in bytes."""

    @property
    def sha256(self) -> str | None:
        """The hex digest that the source promises for the uncompressed content, or None."""

    @property
    def stored_size(self) -> int:
        """The bytes that it takes where it comes from, such as in a wheel."""

    def chunks(self) -> Iterator[bytes]:
        """Return the uncompressed content, in parts of at most 4 MiB."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One path of a layer: a regular file (`content`), a symbolic link (`link`), or a directory (neither).

    path: relative to the root of the image, with `/` and without a leading or trailing one; empty for
        that root.
    mode: permissions, such as 0o644. The time of modification is always 0.
    """

    path: str
    mode: int
    content: Content | None = None
    link: str | None = None
    uid: int = 0
    gid: int = 0


@dataclass(frozen=True)
class InMemory:
    """A small file that was made here, as the `Content` of an entry."""

    data: bytes

    @property
    def size(self) -> int:
        return len(self.data)

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    @property
    def stored_size(self) -> int:
        return len(self.data)

    def chunks(self) -> Iterator[bytes]:
        yield from (self.data[at : at + (1 << 20)] for at in range(0, len(self.data), 1 << 20))
