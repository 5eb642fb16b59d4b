"""DEFLATE streams that depend on no compression library: bytes as they are, runs of zeros as repetitions.

Headers of tar archives consist mostly of zeros. A compression library would make them smaller still, but
other bytes in each of its versions. Source: RFC 1951, 3.2.4 to 3.2.6.
"""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Iterator

_LARGEST_BLOCK = 0xFFFF
#: Shorter runs would not become smaller.
_ZEROS = re.compile(rb"\0{16,}")
_LONGEST_MATCH = 258
#: For each length code from 257 on: the shortest length, and how many extra bits follow.
_LENGTHS = (
    *((length, 0) for length in range(3, 11)),
    *((length, 1) for length in range(11, 19, 2)),
    *((length, 2) for length in range(19, 35, 4)),
    *((length, 3) for length in range(35, 67, 8)),
    *((length, 4) for length in range(67, 131, 16)),
    *((length, 5) for length in range(131, 258, 32)),
    (258, 0),
)


def stored(data: bytes, *, is_last: bool) -> bytes:
    """Return blocks that hold the data as it is. is_last: the stream ends with it."""
    parts = []
    for at in range(0, len(data), _LARGEST_BLOCK) or range(1):
        part = data[at : at + _LARGEST_BLOCK]
        final = is_last and at + _LARGEST_BLOCK >= len(data)
        parts += [struct.pack("<BHH", final, len(part), len(part) ^ 0xFFFF), part]
    return b"".join(parts)


def compressed(data: bytes) -> bytes:
    """Return a whole stream in which runs of zeros are short."""
    return b"".join(_compressed(data))


def _compressed(data: bytes) -> Iterator[bytes]:
    start = 0
    for run in _ZEROS.finditer(data):
        if run.start() > start:
            yield stored(data[start : run.start()], is_last=False)
        yield _zeros(run.end() - run.start())
        start = run.end()
    yield stored(data[start:], is_last=True)


@functools.lru_cache(maxsize=4096)
def _zeros(count: int) -> bytes:
    """Return a block with this many zeros, and an empty one that ends with a whole byte."""
    bits = _Bits()
    bits.add(0b010, 3)  # not the last one, fixed codes
    bits.add_code(0x30, 8)  # a zero
    left = count - 1
    while left:
        length = min(left, _LONGEST_MATCH)
        if 0 < left - length < 3:
            length -= 3
        code, (shortest, extra) = max(
            (code, entry) for code, entry in enumerate(_LENGTHS, 257) if entry[0] <= length
        )
        # RFC 1951, 3.2.6: codes up to 279 have 7 bits.
        if code < 280:
            bits.add_code(code - 256, 7)
        else:
            bits.add_code(0xC0 + code - 280, 8)
        bits.add(length - shortest, extra)
        bits.add_code(0, 5)  # from one byte before
        left -= length
    bits.add_code(0, 7)  # end of the block
    bits.add(0b000, 3)  # not the last one, stored
    return bits.value.to_bytes(-(-bits.count // 8), "little") + b"\0\0\xff\xff"


class _Bits:
    """Bits in the order of DEFLATE: numbers from the lowest bit on, codes from the highest."""

    def __init__(self) -> None:
        self.value = 0
        self.count = 0

    def add(self, number: int, count: int) -> None:
        self.value |= number << self.count
        self.count += count

    def add_code(self, code: int, count: int) -> None:
        self.add(int(f"{code:0{count}b}"[::-1], 2), count)
