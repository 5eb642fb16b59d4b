"""Write a layer in zstd, as zstd:chunked: each file has frames of its own, and a table says where.

Clients fetch single files by that table, or decompress all of it as usual. Sources: containers/storage,
`pkg/chunked/internal/compression.go`; RFC 8878; for the table
https://github.com/containerd/stargz-snapshotter/blob/main/docs/estargz.md.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import zstandard

from ..system.pools import map_ahead
from . import tar
from .entries import Content, Entry
from .layers import Encoded, Write

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
#: The blob is passed on in parts of about this many bytes.
_BLOCK = 1 << 20

_SKIPPABLE = 0x184D2A50
_MAGIC = b"GnUlInUx"
#: The type of the table: that of eStargz.
_TABLE_TYPE = 1
#: The names of the annotations, and those that Debian 12's Podman 4.3 looks for.
_NAMES = ("io.github.containers.zstd-chunked.manifest-", "io.containers.zstd-chunked.manifest-")
_TIME = "1970-01-01T00:00:00Z"


def encode(entries: Iterable[Entry], write: Write) -> Encoded:
    """Write a layer. Entries are sorted by path; each parent directory comes before its content."""
    archive, blob = _Archive(), _Blob(write)
    table: list[bytes] = []
    compressor = zstandard.ZstdCompressor(
        compression_params=zstandard.ZstdCompressionParameters(compression_level=LEVEL, window_log=_WINDOW)
    )
    # Headers and padding, up to the next file.
    waiting = bytearray()

    def finish_frame() -> None:
        if waiting:
            blob.add(compressor.compress(archive.add(bytes(waiting))))
            waiting.clear()

    for entry in tar.in_order(entries):
        waiting += tar.header(entry)
        member = None
        if entry.content is not None:
            finish_frame()
            member = _Member(blob.size)
            content = archive.add_content(entry.content, member)
            if entry.content.size > FRAME:
                # Another thread compresses while this one reads the next frame, in twice the time.
                for compressed in map_ahead(compressor.compress, _frames(content), 1):
                    blob.add(compressed)
            elif whole := b"".join(content):
                blob.add(compressor.compress(whole))
            member.end = blob.size
            waiting += tar.padding(entry.content.size)
        table.append(_described(entry, member))
    waiting += tar.END
    finish_frame()
    annotations = _append_table(b'{"version":1,"entries":[%b]}' % b",".join(table), compressor, blob)
    blob.flush()
    return Encoded(blob.digest, blob.size, archive.digest, MEDIA_TYPE, annotations)


class _Archive:
    """The uncompressed tar archive of a layer, of which only the digest is kept."""

    def __init__(self) -> None:
        self._hashing = hashlib.sha256()

    @property
    def digest(self) -> str:
        return "sha256:" + self._hashing.hexdigest()

    def add(self, data: bytes) -> bytes:
        """Take the next bytes, and return them."""
        self._hashing.update(data)
        return data

    def add_content(self, content: Content, member: _Member) -> Iterator[bytes]:
        """Take a file, and return its parts as they are read. Afterwards, `member.sha256` is known."""
        promised = content.sha256
        hashing = hashlib.sha256() if promised is None else None
        for chunk in content.chunks():
            if hashing is not None:
                hashing.update(chunk)
            yield self.add(chunk)
        member.sha256 = promised if hashing is None else hashing.hexdigest()


class _Member:
    """The place of a file in a blob. sha256: the hex digest of its content, known at its end."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.end = start
        self.sha256: str | None = None


class _Blob:
    """The encoded bytes of a layer, passed on in parts."""

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


def _described(entry: Entry, member: _Member | None) -> bytes:
    """Return an entry of the table as JSON. Each file is one chunk."""
    described: dict[str, Any] = {"name": entry.path, "mode": entry.mode, "modtime": _TIME}
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
    if member is not None and entry.content is not None and entry.content.size:
        digest = f"sha256:{member.sha256}"
        described.update(size=entry.content.size, offset=member.start, digest=digest, chunkDigest=digest)
        described.update(endOffset=member.end, chunkSize=entry.content.size)
    return msgspec.json.encode(described)


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
