"""Layers: their sources, and the blobs that are made from them."""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

import msgspec
import zstandard

from ..system.pools import map_ahead

# Paths in images: which ones are refused, and the directories that they are in.

#: Bytes of one part, as Linux limits it, and of the whole path.
_LONGEST_NAME, _LONGEST_PATH = 255, 2000
_ODD_LETTER = re.compile(r"[\\\x00-\x1f\x7f]")


def path_problem(path: str) -> str | None:
    """Return why a relative path with `/` may not be in an image, or None."""
    if (
        0 < len(path) <= _LONGEST_NAME
        and path.isascii()
        and path.isprintable()
        and "\\" not in path
        and "/." not in path
        and "//" not in path
        and path[0] not in "./"
        and path[-1] != "/"
    ):
        # Nearly all paths are like that, so this saves time.
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

    size: uncompressed, in bytes. sha256: the hex digest that the source promises for it, or None.
    stored_size: the bytes that it takes where it comes from, such as in a wheel. chunks: returns the content
    in parts of at most 4 MiB; raises ValidatorError with the name of the source, at the end at the latest, if
    the size, CRC or hash is not what was promised.
    """

    @property
    def size(self) -> int: ...
    @property
    def sha256(self) -> str | None: ...
    @property
    def stored_size(self) -> int: ...
    def chunks(self) -> Iterator[bytes]: ...


@dataclass(frozen=True, slots=True)
class Entry:
    """One path of a layer: a regular file (`content`), a symbolic link (`link`), or a directory (neither).

    path: relative to the root of the image, with `/` and without a leading or trailing one; empty for that
    root. mode: permissions, such as 0o644. The time of modification is always 0.
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

    stored_size = size

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    def chunks(self) -> Iterator[bytes]:
        yield from (self.data[at : at + (1 << 20)] for at in range(0, len(self.data), 1 << 20))


#: Receives the encoded bytes of a layer, in order.
Write = Callable[[bytes], object]


@dataclass(frozen=True)
class Encoded:
    """A layer as a blob. size: of the blob in bytes. annotations: for its descriptor in the manifest.

    digest: of the blob, `sha256:…`. diff_id: the digest of the uncompressed tar archive.
    """

    digest: str
    size: int
    diff_id: str
    media_type: str
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class LayerSource:
    """A layer that can be made. entries: makes the entries, each time that the layer is encoded.

    made_from: what decides every byte before encoding, in order: digests of wheels and of recipes. size:
    about how many bytes it will have, for progress, or 0 if that is unknown. read_from: the SHA-256 of a
    wheel to read the entries from, if any wheel with the same file would do.
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


# The tar archive of a layer: POSIX ustar, with extended headers only where a field is too small.
# Source: POSIX.1-2017, pax, "ustar Interchange Format" and "pax Extended Header".

BLOCK = 512
#: Two empty blocks end an archive.
END = bytes(2 * BLOCK)

_NAME, _PREFIX = 100, 155
_LARGEST_SIZE = 8**11 - 1
_LARGEST_ID = 8**7 - 1
_FILE, _LINK, _DIRECTORY, _EXTENDED = b"0", b"2", b"5", b"x"
_TIME = b"%011o" % 0


def header(entry: Entry) -> bytes:
    """Return the blocks that come before the content of an entry."""
    # The root of the image is "./", as tar itself writes it.
    path = entry.path.encode() or b"."
    link = b"" if entry.link is None else entry.link.encode()
    size = 0 if entry.content is None else entry.content.size
    kind = _FILE
    if entry.link is not None:
        kind = _LINK
    elif entry.content is None:
        kind = _DIRECTORY
        path += b"/"
    extended = {}
    prefix, name = _split(path)
    if name is None:
        extended["path"] = path
        prefix, name = b"", path[:_NAME]
    if len(link) > _NAME or not link.isascii():
        extended["linkpath"] = link
    for key, number in (("uid", entry.uid), ("gid", entry.gid)):
        if number > _LARGEST_ID:
            extended[key] = b"%d" % number
    if size > _LARGEST_SIZE:
        extended["size"] = b"%d" % size
    before = b""
    if extended:
        records = b"".join(_record(field.encode(), extended[field]) for field in sorted(extended))
        before = _ustar(b"PaxHeaders", b"", 0o644, 0, 0, len(records), _EXTENDED, b"")
        before += records + padding(len(records))
    uid, gid = (0 if "uid" in extended else entry.uid), (0 if "gid" in extended else entry.gid)
    size = 0 if "size" in extended else size
    return before + _ustar(name, prefix, entry.mode, uid, gid, size, kind, link[:_NAME])


def padding(size: int) -> bytes:
    """Return the zeros after a content of `size` bytes."""
    return bytes(-size % BLOCK)


def in_order(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Return the entries. Raises ValueError where one is not sorted or lacks its parent directory."""
    last: str | None = None
    # The root of the image may be missing.
    directories = {""}
    for entry in entries:
        if last is not None and entry.path <= last:
            raise ValueError(f"{entry.path} comes after {last}")
        last = entry.path
        if entry.path.rpartition("/")[0] not in directories:
            raise ValueError(f"{entry.path} comes without its parent directory")
        if entry.content is None and entry.link is None:
            directories.add(entry.path)
        yield entry


def _split(path: bytes) -> tuple[bytes, bytes | None]:
    """Return prefix and name of a path as ustar has them; no name if they don't fit."""
    if not path.isascii():
        return b"", None
    if len(path) <= _NAME:
        return b"", path
    # The slash between them is in neither; the name is not empty, and of a directory not only its slash.
    at = path.find(b"/", len(path) - _NAME - 1)
    if at <= 0 or at > _PREFIX or at >= len(path) - 1:
        return b"", None
    return path[:at], path[at + 1 :]


def _record(field: bytes, value: bytes) -> bytes:
    """Return a record of an extended header, which starts with its own length in decimal."""
    rest = b" " + field + b"=" + value + b"\n"
    length = len(rest) + 1
    while length != len(rest) + len(b"%d" % length):
        length = len(rest) + len(b"%d" % length)
    return b"%d" % length + rest


def _ustar(
    name: bytes, prefix: bytes, mode: int, uid: int, gid: int, size: int, kind: bytes, link: bytes
) -> bytes:
    owner, rest, constant = _common(mode, uid, gid, kind, link)
    digits = b"%011o" % size
    checksum = constant + sum(name) + sum(digits) + sum(prefix)
    name, prefix = name.ljust(_NAME, b"\0"), prefix.ljust(_PREFIX + 12, b"\0")
    return b"%b%b%b\0%b\0%06o\0 %b%b" % (name, owner, digits, _TIME, checksum, rest, prefix)


@lru_cache(maxsize=256)
def _common(mode: int, uid: int, gid: int, kind: bytes, link: bytes) -> tuple[bytes, bytes, int]:
    """Return the fields around the size, with their part of the checksum: mostly the same in a layer."""
    owner = b"%07o\0%07o\0%07o\0" % (mode, uid, gid)
    rest = kind + link.ljust(_NAME, b"\0") + b"ustar\x0000" + bytes(64) + b"0000000\0" * 2
    return owner, rest, sum(owner) + sum(_TIME) + sum(rest) + 8 * ord(" ")


# Write a layer as zstd:chunked: each file has frames of its own, and a table says where. Clients fetch single
# files by that table, or decompress all of it as usual. Sources: containers/storage,
# `pkg/chunked/internal/compression.go`; RFC 8878; for the table
# https://github.com/containerd/stargz-snapshotter/blob/main/docs/estargz.md.

#: Level 3 takes twice as long, and makes layers of NVIDIA's libraries 4 % smaller.
LEVEL = 2
#: The most content of a frame, in bytes. A frame is compressed with one call, because a stream would be
#: copied to a ring buffer, in which zstd searches more slowly. Larger frames take more memory and are hardly
#: smaller.
FRAME = 4 << 20
MEDIA_TYPE = "application/vnd.oci.image.layer.v1.tar+zstd"
#: It changes whenever the same entries would give other bytes: with this code, and with the library. It is
#: part of a layer's key in the layer table.
RECIPE = f"zstd 2, level {LEVEL}, library {'.'.join(map(str, zstandard.ZSTD_VERSION))}"
#: The window is 2 to the power of this: as large as a frame.
_WINDOW = 22

_SKIPPABLE = 0x184D2A50
_MAGIC = b"GnUlInUx"
#: The type of the table: that of eStargz.
_TABLE_TYPE = 1
#: The names of the annotations, and those that Debian 12's Podman 4.3 looks for.
_NAMES = ("io.github.containers.zstd-chunked.manifest-", "io.containers.zstd-chunked.manifest-")
_ENCODING_TIME = "1970-01-01T00:00:00Z"


def encode(entries: Iterable[Entry], write: Write, diff_id: str | None = None) -> Encoded:
    """Write a layer. Entries are sorted by path; each parent directory comes before its content.

    diff_id: the one that the blob had when it was made before. The archive is then not hashed again: the
    caller compares the digest of the blob.
    """
    archive, blob = hashlib.sha256() if diff_id is None else None, _Blob(write)
    table: list[bytes] = []
    compressor = zstandard.ZstdCompressor(
        compression_params=zstandard.ZstdCompressionParameters(compression_level=LEVEL, window_log=_WINDOW)
    )
    # Headers and padding, up to the next file.
    waiting = bytearray()

    def finish_frame() -> None:
        if waiting:
            if archive is not None:
                archive.update(waiting)
            blob.add(compressor.compress(bytes(waiting)))
            waiting.clear()

    for entry in in_order(entries):
        waiting += header(entry)
        described = _described(entry)
        if entry.content is not None:
            finish_frame()
            start, size, sha256 = blob.size, entry.content.size, entry.content.sha256
            hashing = hashlib.sha256() if sha256 is None else None
            content = hashed(entry.content.chunks(), *filter(None, (archive, hashing)))
            if size > FRAME:
                # Another thread compresses while this one reads the next frame, in twice the time.
                for compressed in map_ahead(compressor.compress, _frames(content), 1):
                    blob.add(compressed)
            elif whole := b"".join(content):
                blob.add(compressor.compress(whole))
            if size:
                # Each file is one chunk.
                digest = f"sha256:{sha256 if hashing is None else hashing.hexdigest()}"
                described.update(size=size, offset=start, digest=digest, chunkDigest=digest)
                described.update(endOffset=blob.size, chunkSize=size)
            waiting += padding(size)
        table.append(msgspec.json.encode(described))
    waiting += END
    finish_frame()
    annotations = _append_table(b'{"version":1,"entries":[%b]}' % b",".join(table), compressor, blob)
    found = f"sha256:{archive.hexdigest()}" if archive is not None else str(diff_id)
    return Encoded(blob.digest, blob.size, found, MEDIA_TYPE, annotations)


def hashed(chunks: Iterable[bytes], *hashing: Any) -> Iterator[bytes]:
    """Return the chunks, and add them to hashes."""
    for chunk in chunks:
        for one in hashing:
            one.update(chunk)
        yield chunk


class _Blob:
    """The encoded bytes of a layer, on their way to `write`. size: of those that were written."""

    def __init__(self, write: Write) -> None:
        self._write, self._hashing = write, hashlib.sha256()
        self.size = 0

    @property
    def digest(self) -> str:
        return "sha256:" + self._hashing.hexdigest()

    def add(self, data: bytes) -> None:
        self._hashing.update(data)
        self.size += len(data)
        self._write(data)


def _frames(chunks: Iterable[bytes]) -> Iterator[bytes | memoryview]:
    """Return the same content in parts of `FRAME` bytes, of which only the last one may be shorter."""
    parts: list[memoryview] = []
    missing = FRAME
    for chunk in chunks:
        rest = memoryview(chunk)
        while rest:
            part, rest = rest[:missing], rest[missing:]
            parts.append(part)
            missing -= len(part)
            if not missing:
                # A chunk that is a whole frame is not copied.
                yield parts[0] if len(parts) == 1 else b"".join(parts)
                parts, missing = [], FRAME
    if parts:
        yield b"".join(parts)


def _described(entry: Entry) -> dict[str, Any]:
    """Return an entry of the table, without the place of its content."""
    described: dict[str, Any] = {"name": entry.path, "mode": entry.mode, "modtime": _ENCODING_TIME}
    if entry.uid:
        described["uid"] = entry.uid
    if entry.gid:
        described["gid"] = entry.gid
    if entry.link is not None:
        described.update(type="symlink", linkName=entry.link)
    elif entry.content is None:
        described.update(type="dir", name=f"{entry.path or '.'}/")
    else:
        described.update(type="reg")
    return described


def _append_table(table: bytes, compressor: zstandard.ZstdCompressor, blob: _Blob) -> dict[str, str]:
    """Write the table and the footer, in frames that decompressors skip. Return the layer's annotations."""
    compressed = compressor.compress(table)
    frame = struct.pack("<LL", _SKIPPABLE, len(compressed))
    position = blob.size + len(frame)
    blob.add(frame + compressed)
    numbers = (position, len(compressed), len(table), _TABLE_TYPE)
    footer = struct.pack("<4Q", *numbers) + _MAGIC
    blob.add(struct.pack("<LL", _SKIPPABLE, len(footer)) + footer)
    values = {
        "checksum": "sha256:" + hashlib.sha256(compressed).hexdigest(),
        "position": ":".join(map(str, numbers)),
    }
    return {name + key: value for name in _NAMES for key, value in values.items()}
