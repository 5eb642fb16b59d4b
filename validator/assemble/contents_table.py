"""The table of contents of a layer, with which clients fetch single files. eStargz and zstd:chunked share it.

Source: https://github.com/containerd/stargz-snapshotter/blob/main/docs/estargz.md
"""

from __future__ import annotations

from typing import Any

import msgspec

from .entries import Entry
from .streams import Member

_TIME = "1970-01-01T00:00:00Z"


class ContentsTable:
    """The entries of a layer so far. Each file is one chunk.

    has_ends: each chunk also has the offset of its end, as zstd:chunked wants it.
    """

    def __init__(self, *, has_ends: bool) -> None:
        self._has_ends = has_ends
        self._entries: list[bytes] = []

    def add(self, entry: Entry, member: Member | None) -> None:
        """member: where the content is; None for a file without content, and for everything but files."""
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
        if member is not None and entry.content is not None:
            digest = f"sha256:{member.sha256}"
            described.update(size=entry.content.size, offset=member.start, digest=digest, chunkDigest=digest)
            if self._has_ends:
                described.update(endOffset=member.end, chunkSize=entry.content.size)
        self._entries.append(msgspec.json.encode(described))

    def render(self) -> bytes:
        """Return the table as JSON."""
        return b'{"version":1,"entries":[%b]}' % b",".join(self._entries)
