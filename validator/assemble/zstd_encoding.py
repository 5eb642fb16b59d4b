"""Layers in zstd, as zstd:chunked: each file has frames of its own, and a table says where.

Source: containers/storage, `pkg/chunked/internal/compression.go`, and RFC 8878.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator

import zstandard

from ..system.pools import map_ahead
from . import tar
from .contents_table import ContentsTable
from .entries import Entry
from .layers import Encoded, Layers, Write
from .streams import Archive, Blob, Member

#: Level 3 takes twice as long, and makes layers of NVIDIA's libraries 4 % smaller.
LEVEL = 2
#: The most content of a frame, in bytes. A frame is compressed with one call, because a stream would be
#: copied to a ring buffer, in which zstd searches more slowly. Larger frames take more memory and are hardly
#: smaller.
FRAME = 4 << 20
#: The window is 2 to the power of this: as large as a frame.
_WINDOW = 22

_SKIPPABLE = 0x184D2A50
_MAGIC = b"GnUlInUx"
#: The type of the table: that of eStargz.
_TABLE_TYPE = 1
#: The names of the annotations, and those that Debian 12's Podman 4.3 looks for.
_NAMES = ("io.github.containers.zstd-chunked.manifest-", "io.containers.zstd-chunked.manifest-")


class ZstdEncoding:
    """The encoding `zstd`."""

    name = Layers.ZSTD
    media_type = "application/vnd.oci.image.layer.v1.tar+zstd"
    recipe = f"zstd 2, level {LEVEL}, library {'.'.join(map(str, zstandard.ZSTD_VERSION))}"

    def encode(self, entries: Iterable[Entry], write: Write) -> Encoded:
        """Write the layer."""
        archive, blob = Archive(), Blob(write)
        table = ContentsTable(has_ends=True)
        compressor = zstandard.ZstdCompressor(
            compression_params=zstandard.ZstdCompressionParameters(
                compression_level=LEVEL, window_log=_WINDOW
            )
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
                member = Member(blob.size)
                content = archive.add_content(entry.content, member)
                if entry.content.size > FRAME:
                    # Another thread compresses while this one reads the next frame, in twice the time.
                    for compressed in map_ahead(compressor.compress, _frames(content), 1):
                        blob.add(compressed)
                elif whole := b"".join(content):
                    blob.add(compressor.compress(whole))
                member.end = blob.size
                waiting += tar.padding(entry.content.size)
            table.add(entry, member if entry.content is not None and entry.content.size else None)
        waiting += tar.END
        finish_frame()
        annotations = _append_table(table.render(), compressor, blob)
        blob.flush()
        return Encoded(blob.digest, blob.size, archive.digest, self.media_type, annotations)


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


def _append_table(table: bytes, compressor: zstandard.ZstdCompressor, blob: Blob) -> dict[str, str]:
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
