"""Small things with text: names, the end of a message, and keeping the head and tail of a flood."""

import re
from typing import List


def normalized(name: str) -> str:
    """As PyPA's name normalization says: lower case, runs of `-_.` become one dash."""
    return re.sub(r"[-_.]+", "-", name).lower()


def tail(text: str, lines: int = 1, width: int = 600) -> str:
    """The last `lines` lines that say something, each cut at `width` characters."""
    kept: List[str] = [line.rstrip()[:width] for line in text.splitlines() if line.strip()]
    return "\n".join(kept[-lines:])


class Capture:
    """Keeps the first and the last half of `limit` bytes, and counts what lies between."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.total = 0
        self._head = bytearray()
        self._tail = bytearray()

    def add(self, data: bytes) -> None:
        """Take in what came next."""
        self.total += len(data)
        room = self.limit // 2 - len(self._head)
        self._head += data[: max(room, 0)]
        self._tail += data[max(room, 0) :]
        del self._tail[: max(0, len(self._tail) - (self.limit - self.limit // 2))]

    @property
    def truncated(self) -> bool:
        """Whether anything was dropped."""
        return self.total > len(self._head) + len(self._tail)

    @property
    def text(self) -> str:
        """What was kept, with a line in the middle that says how much is missing."""
        dropped = self.total - len(self._head) - len(self._tail)
        cut = f"\n[... {dropped} bytes left out ...]\n".encode() if dropped else b""
        return bytes(self._head + cut + self._tail).decode(errors="replace")

    def recent(self, size: int) -> str:
        """The last `size` bytes that came in, as far as they were kept."""
        return bytes((self._head + self._tail)[-size:] if size else b"").decode(errors="replace")
