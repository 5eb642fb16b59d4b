"""Layers: their sources, and the blobs that are made from them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

# Paths in images: which ones are refused, and the directories that they are in.


#: Bytes of one part, as Linux limits it, and of the whole path.
_LONGEST_NAME, _LONGEST_PATH = 255, 2000
_ODD_LETTER = re.compile(r"[\\\x00-\x1f\x7f]")


def path_problem(path: str) -> str | None:
    """Return why a relative path with `/` may not be in an image, or None."""
    if _is_ordinary(path):
        return None
    parts = path.split("/")
    if path.startswith("/"):
        return "is absolute"
    if "" in parts or "." in parts or ".." in parts:
        return "has empty parts, '.' or '..'"
    if _ODD_LETTER.search(path):
        return "has a backslash or a control character"
    if path.startswith(".wh.") or "/.wh." in path:
        return "has a name that deletes files in images (.wh.)"
    size = len(path.encode())
    if size > _LONGEST_PATH or (
        size > _LONGEST_NAME and max(len(part.encode()) for part in parts) > _LONGEST_NAME
    ):
        return "is too long"
    return None


def _is_ordinary(path: str) -> bool:
    """Return True for a path that needs no further checks. Nearly all are like that, so this saves time."""
    return (
        0 < len(path) <= _LONGEST_NAME
        and path.isascii()
        and path.isprintable()
        and "\\" not in path
        and "/." not in path
        and "//" not in path
        and path[0] not in "./"
        and path[-1] != "/"
    )


def directories_of(paths: Iterable[str]) -> set[str]:
    """Return every directory that one of the paths is in, at any depth."""
    found: set[str] = set()
    for path in paths:
        directory = path.rpartition("/")[0]
        while directory and directory not in found:
            found.add(directory)
            directory = directory.rpartition("/")[0]
    return found


# The files of a layer, before they are encoded.


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


#: Receives the encoded bytes of a layer, in order.
Write = Callable[[bytes], object]


@dataclass(frozen=True)
class Encoded:
    """A layer as a blob.

    digest: of the blob, `sha256:…`. size: of the blob in bytes. diff_id: the digest of the uncompressed tar
    archive. annotations: for the layer's descriptor in the manifest.
    """

    digest: str
    size: int
    diff_id: str
    media_type: str
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class LayerSource:
    """A layer that can be made: its name for people, its key, and its entries.

    made_from: what decides every byte before encoding, in order: digests of wheels and of recipes.
    size: about how many bytes it will have, for progress, or 0 if that is unknown.
    read_from: the SHA-256 of a wheel to read the entries from, if any wheel with the same file would do.
    entries: makes the entries; called once for each time that the layer is encoded.
    """

    name: str
    made_from: tuple[str, ...]
    entries: Callable[[], Iterable[Entry]]
    read_from: tuple[str, ...] = ()
    size: int = 0


def layer_key(recipe: str, made_from: Iterable[str]) -> str:
    """Return the key of a layer in a layer table. recipe: of its encoding. made_from: see `LayerSource`."""
    # As JSON, because no other way to join texts is simpler and unambiguous.
    return hashlib.sha256(json.dumps([recipe, *made_from]).encode()).hexdigest()
