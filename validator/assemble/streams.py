"""The two sides of an encoder: the archive that goes in, and the bytes that come out, with their digests."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from .entries import Content
from .layers import Write

_BLOCK = 1 << 20


class Archive:
    """The uncompressed tar archive of a layer, of which only digest and size are kept."""

    def __init__(self) -> None:
        self._hashing = hashlib.sha256()
        self.size = 0

    @property
    def digest(self) -> str:
        return "sha256:" + self._hashing.hexdigest()

    def add(self, data: bytes) -> bytes:
        """Take the next bytes, and return them."""
        self._hashing.update(data)
        self.size += len(data)
        return data

    def add_content(self, content: Content, member: Member) -> Iterator[bytes]:
        """Take a file, and return its parts as they are read. Afterwards, `member.sha256` is known."""
        promised = content.sha256
        hashing = hashlib.sha256() if promised is None else None
        for chunk in content.chunks():
            if hashing is not None:
                hashing.update(chunk)
            yield self.add(chunk)
        member.sha256 = promised if hashing is None else hashing.hexdigest()


class Member:
    """The place of a file in a blob. sha256: the hex digest of its content, known at its end."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.end = start
        self.sha256: str | None = None


class Blob:
    """The encoded bytes of a layer, passed on in parts of about 1 MiB."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._hashing = hashlib.sha256()
        self._waiting: list[bytes] = []
        self._waiting_size = 0
        self.size = 0

    @property
    def digest(self) -> str:
        """The digest of everything that was flushed."""
        return "sha256:" + self._hashing.hexdigest()

    def add(self, data: bytes) -> None:
        self._waiting.append(data)
        self._waiting_size += len(data)
        self.size += len(data)
        if self._waiting_size >= _BLOCK:
            self.flush()

    def flush(self) -> None:
        data = b"".join(self._waiting)
        self._waiting.clear()
        self._waiting_size = 0
        if data:
            self._hashing.update(data)
            self._write(data)
