"""Streams made without a compression library, read back by zlib."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validator.assemble import deflate

PARTS = st.lists(st.one_of(st.binary(max_size=40), st.integers(0, 1200).map(bytes)), max_size=12).map(
    b"".join
)


def read(stream: bytes) -> bytes:
    """Decompress a stream, which must end exactly at its end."""
    reading = zlib.decompressobj(-15)
    data = reading.decompress(stream)
    assert reading.eof
    assert reading.unused_data == b""
    return data


@given(PARTS)
def test_everything_is_read_back(data: bytes) -> None:
    assert read(deflate.compressed(data)) == data
    assert read(deflate.stored(data, is_last=True)) == data


@pytest.mark.parametrize("size", [0, 1, 0xFFFE, 0xFFFF, 0x10000, 3 * 0xFFFF, 1_000_000])
@pytest.mark.parametrize("letter", [b"x", b"\0"])
def test_long_data(letter: bytes, size: int) -> None:
    data = letter * size
    assert read(deflate.compressed(data)) == data
    assert read(deflate.stored(data, is_last=True)) == data
    assert read(deflate.stored(data, is_last=False) + deflate.stored(b"", is_last=True)) == data


def test_every_run_of_zeros() -> None:
    for count in range(1100):
        data = b"a" + bytes(count) + b"b"
        assert read(deflate.compressed(data)) == data


def test_a_header_becomes_small() -> None:
    header = b"name".ljust(100, b"\0") + b"0000644\0" * 6 + b"0" + bytes(100) + b"ustar\x0000" + bytes(247)
    assert len(deflate.compressed(header * 10)) < 1200
