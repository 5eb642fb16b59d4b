"""Headers of the tar archive, read back by the standard library."""

from __future__ import annotations

import io
import subprocess
import tarfile
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validator.assemble import layers
from validator.assemble.layers import Entry, InMemory


@dataclass(frozen=True)
class Sized(InMemory):
    """Content that only claims to have a size."""

    claimed: int = 0

    @property
    def size(self) -> int:
        return self.claimed


def read(archive: bytes) -> tarfile.TarInfo:
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:", format=tarfile.PAX_FORMAT) as reader:
        found = reader.next()
    assert found is not None
    return found


PARTS = st.text(
    st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=90
).filter(lambda part: part not in (".", ".."))
PATHS = st.lists(PARTS, min_size=1, max_size=6).map("/".join)
ASCII_PATHS = st.lists(
    st.text(st.sampled_from("abc.-_"), min_size=1, max_size=120), min_size=1, max_size=4
).map("/".join)
IDS = st.integers(0, 2**32 - 1)


@given(
    st.one_of(PATHS, ASCII_PATHS),
    st.one_of(st.none(), PATHS),
    st.booleans(),
    IDS,
    IDS,
    st.integers(0, 0o7777),
)
def test_headers_are_read_back(
    path: str, link: str | None, is_directory: bool, uid: int, gid: int, mode: int
) -> None:
    content = None if is_directory or link is not None else InMemory(b"content")
    header = layers.header(Entry(path, mode, content, link, uid, gid))
    assert len(header) % 512 == 0
    body = b"" if content is None else content.data + layers.padding(content.size)
    found = read(header + body + layers.END)
    assert (found.name, found.mode, found.uid, found.gid, found.mtime) == (path, mode, uid, gid, 0)
    assert (found.uname, found.gname) == ("", "")
    if link is not None:
        assert (found.issym(), found.linkname) == (True, link)
    else:
        assert (found.isdir(), found.isreg()) == (is_directory, not is_directory)
        assert found.size == len(content.data if content else b"")


@pytest.mark.parametrize("size", [8**11 - 1, 8**11, 2**40])
def test_sizes_beyond_8_gib(size: int) -> None:
    assert read(layers.header(Entry("a", 0o644, Sized(b"", size))) + layers.END).size == size


@pytest.mark.parametrize(
    ("path", "blocks"),
    [
        ("a" * 100, 1),
        ("d" * 155 + "/" + "a" * 100, 1),
        ("a" * 101, 3),
        ("d" * 156 + "/" + "a" * 100, 3),
        ("ä", 3),
    ],
)
def test_extended_headers_only_where_they_are_needed(path: str, blocks: int) -> None:
    assert len(layers.header(Entry(path, 0o644, InMemory(b"")))) == blocks * 512


@pytest.mark.service
@pytest.mark.parametrize("path", ["short", "d" * 100 + "/" + "n" * 99, "long" * 60, "ü" * 60])
def test_gnu_tar_reads_them(path: str) -> None:
    header = layers.header(Entry(path, 0o640, InMemory(b"text"), uid=10001, gid=10001))
    listed = subprocess.run(
        ["tar", "--list", "--verbose", "--numeric-owner", "--quoting-style=literal", "--utc"],
        input=header + b"text" + layers.padding(4) + layers.END,
        capture_output=True,
        check=True,
    )
    assert listed.stderr == b""
    assert listed.stdout.decode().split() == ["-rw-r-----", "10001/10001", "4", "1970-01-01", "00:00", path]
