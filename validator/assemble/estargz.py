"""The parts of an eStargz layer that follow its files: the table of contents and the footer.

Source: https://github.com/containerd/stargz-snapshotter/blob/main/docs/estargz.md
"""

from __future__ import annotations

import hashlib

from . import tar
from .entries import Entry, InMemory

TABLE_NAME = "stargz.index.json"

_TABLE_DIGEST = "containerd.io/snapshot/stargz/toc.digest"
_UNCOMPRESSED_SIZE = "io.containers.estargz.uncompressed-size"


def table_entry(table: bytes) -> bytes:
    """Return the last entry of the archive."""
    header = tar.header(Entry(TABLE_NAME, 0o644, InMemory(table)))
    return header + table + tar.padding(len(table))


def footer(position: int) -> bytes:
    """Return the end of the blob: an empty gzip member that says where the member with the table starts."""
    field = b"%016xSTARGZ" % position
    extra = b"SG" + len(field).to_bytes(2, "little") + field
    header = b"\x1f\x8b\x08\x04\0\0\0\0\0\xff" + len(extra).to_bytes(2, "little") + extra
    return header + b"\x01\0\0\xff\xff" + bytes(8)


def annotations_of(table: bytes, uncompressed: int) -> dict[str, str]:
    """Return the annotations of the layer. uncompressed: the size of the whole archive in bytes."""
    return {
        _TABLE_DIGEST: "sha256:" + hashlib.sha256(table).hexdigest(),
        _UNCOMPRESSED_SIZE: str(uncompressed),
    }
