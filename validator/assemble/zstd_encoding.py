"""Layers in zstd, as zstd:chunked: each file is a frame of its own, and a table says where.

Source: containers/storage, `pkg/chunked/internal/compression.go`, and RFC 8878.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable

import zstandard

from ..system.pools import map_ahead
from . import tar
from .contents_table import ContentsTable
from .entries import Entry
from .layers import Encoded, Layers, Write
from .streams import Archive, Blob, Member

#: Level 3 takes half as much time again, and makes layers of NVIDIA's libraries 4 % smaller.
LEVEL = 2

_SKIPPABLE = 0x184D2A50
_MAGIC = b"GnUlInUx"
#: The type of the table: that of eStargz.
_TABLE_TYPE = 1
#: The names of the annotations, and those that Debian 12's Podman 4.3 looks for.
_NAMES = ("io.github.containers.zstd-chunked.manifest-", "io.containers.zstd-chunked.manifest-")
#: Files up to this size are compressed with one call.
_SMALL = 1 << 20


class ZstdEncoding:
    """The encoding `zstd`."""

    name = Layers.ZSTD
    media_type = "application/vnd.oci.image.layer.v1.tar+zstd"
    recipe = f"zstd 1, level {LEVEL}, library {'.'.join(map(str, zstandard.ZSTD_VERSION))}"

    def encode(self, entries: Iterable[Entry], write: Write) -> Encoded:
        """Write the layer."""
        archive, blob = Archive(), Blob(write)
        table = ContentsTable(has_ends=True)
        compressor = zstandard.ZstdCompressor(level=LEVEL)
        # Headers and padding, up to the next file.
        waiting = bytearray()

        def finish_frame() -> None:
            if waiting:
                blob.add(compressor.compress(bytes(waiting)))
                waiting.clear()

        for entry in tar.in_order(entries):
            waiting += archive.add(tar.header(entry))
            member = None
            if entry.content is not None:
                finish_frame()
                member = Member(blob.size)
                chunks = archive.add_content(entry.content, member)
                if entry.content.size <= _SMALL:
                    content = b"".join(chunks)
                    if content:
                        blob.add(compressor.compress(content))
                else:
                    _compress(chunks, entry.content.size, compressor, blob)
                member.end = blob.size
                waiting += archive.add(tar.padding(entry.content.size))
            table.add(entry, member if entry.content is not None and entry.content.size else None)
        waiting += archive.add(tar.END)
        finish_frame()
        annotations = _append_table(table.render(), compressor, blob)
        blob.flush()
        return Encoded(blob.digest, blob.size, archive.digest, self.media_type, annotations)


def _compress(chunks: Iterable[bytes], size: int, compressor: zstandard.ZstdCompressor, blob: Blob) -> None:
    compressing = compressor.compressobj(size=size)
    # In one other thread, while this one reads the next chunk, which takes twice as long.
    for compressed in map_ahead(compressing.compress, chunks, 1):
        if compressed:
            blob.add(compressed)
    blob.add(compressing.flush())


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
