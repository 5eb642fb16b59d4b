"""Layers in gzip that compress nothing: the DEFLATE streams of wheels become members of a gzip stream.

No byte of anything else depends on a compression library. Source: RFC 1952.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator

from . import deflate, estargz, tar
from .contents_table import ContentsTable
from .entries import Content, Deflated, Entry
from .layers import Encoded, Layers, Write
from .streams import Archive, Blob, Member

#: No flags, no time, no compression level, unknown system.
_HEADER = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
#: Files up to this size share a gzip member with what follows them.
_SMALL = 1 << 20


class GzipEncoding:
    """The encoding `gzip`: as an eStargz layer."""

    name = Layers.GZIP
    media_type = "application/vnd.oci.image.layer.v1.tar+gzip"
    recipe = "gzip 1"

    def encode(self, entries: Iterable[Entry], write: Write) -> Encoded:
        """Write the layer."""
        archive, blob = Archive(), Blob(write)
        table = ContentsTable(has_ends=False)
        # Headers, padding and small files, up to the next file.
        waiting = bytearray()

        def finish_member() -> None:
            if waiting:
                blob.add(small_member(bytes(waiting)))
                waiting.clear()

        for entry in tar.in_order(entries):
            waiting += archive.add(tar.header(entry))
            member = None
            if entry.content is not None:
                # Clients start to read at a file, so it is the start of a member.
                finish_member()
                member = Member(blob.size)
                chunks = archive.add_content(entry.content, member)
                if (deflated := entry.content.deflated) is not None:
                    for _ in chunks:
                        pass
                    _pass_through(entry.content, deflated, blob)
                elif entry.content.size <= _SMALL:
                    for chunk in chunks:
                        waiting += chunk
                else:
                    _store(chunks, entry.content.size, blob)
                waiting += archive.add(tar.padding(entry.content.size))
            table.add(entry, member if entry.content is not None and entry.content.size else None)
        finish_member()
        toc = table.render()
        position = blob.size
        blob.add(small_member(archive.add(estargz.table_entry(toc) + tar.END)))
        blob.add(estargz.footer(position))
        blob.flush()
        return Encoded(
            blob.digest, blob.size, archive.digest, self.media_type, estargz.annotations_of(toc, archive.size)
        )


def small_member(data: bytes) -> bytes:
    """Return a gzip member with this content."""
    return _HEADER + deflate.compressed(data) + _trailer(zlib.crc32(data), len(data))


def _pass_through(content: Content, deflated: Deflated, blob: Blob) -> None:
    """Write a DEFLATE stream as a member. Its content was read and verified just before."""
    blob.add(_HEADER)
    for part in content.stream():
        blob.add(part)
    blob.add(_trailer(deflated.crc32, content.size))


def _store(chunks: Iterator[bytes], size: int, blob: Blob) -> None:
    blob.add(_HEADER)
    crc32 = 0
    for chunk in chunks:
        crc32 = zlib.crc32(chunk, crc32)
        blob.add(deflate.stored(chunk, is_last=False))
    # An empty last block, because a file's last part is known as such only after it.
    blob.add(deflate.stored(b"", is_last=True))
    blob.add(_trailer(crc32, size))


def _trailer(crc32: int, size: int) -> bytes:
    return struct.pack("<LL", crc32, size & 0xFFFFFFFF)
