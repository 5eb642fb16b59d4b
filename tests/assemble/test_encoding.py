"""What is written as a layer is read back by other programs' rules, and is always the same."""

from __future__ import annotations

import hashlib
import io
import json
import random
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import zstandard

from validator.assemble import layers
from validator.assemble.install import entries, merged
from validator.assemble.layers import FRAME, Encoded, Entry, InMemory

from . import wheels

BIG = bytes(range(256)) * (3 << 12)
#: Three frames.
LARGER = random.Random(2).randbytes(9_000_001)
FILES = {
    "example/__init__.py": b"print('hello')\n" * 100,
    "example/empty.py": b"",
    "example/big.bin": BIG,
    "example-1.0.data/scripts/run": b"#!python\nprint()\n",
}


def layer_of(directory: Path) -> list[Entry]:
    files = wheels.with_metadata(FILES)
    files[2].method = 0
    wheel = wheels.opened(directory, files)
    link = Entry("usr/bin/tool", 0o777, link="../../opt/venv/bin/run", uid=3, gid=70000)
    large = Entry("usr/large", 0o600, InMemory(BIG[:1_500_000]))
    larger = Entry("usr/larger", 0o600, InMemory(LARGER))
    return merged([("wheel", entries(wheel, wheels.ENVIRONMENT)), ("host", [link, large, larger])])


def encoded(some: Iterable[Entry]) -> tuple[Encoded, bytes]:
    blob = io.BytesIO()
    return layers.encode(some, blob.write), blob.getvalue()


def decompressed(blob: bytes) -> bytes:
    return zstandard.ZstdDecompressor().stream_reader(blob, read_across_frames=True).read()


def unpacked(archive: bytes) -> dict[str, tuple[Any, ...]]:
    found: dict[str, tuple[Any, ...]] = {}
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as tar:
        for member in tar:
            stream = tar.extractfile(member) if member.isreg() else None
            content = None if stream is None else stream.read()
            assert member.name not in found
            assert member.mtime == 0
            found[member.name] = (
                member.type, member.mode, member.uid, member.gid, member.linkname, member.size, content,
            )  # fmt: skip
    return found


def test_a_layer_holds_exactly_the_entries(tmp_path: Path) -> None:
    some = layer_of(tmp_path)
    described, blob = encoded(some)
    archive = decompressed(blob)

    assert described.size == len(blob)
    assert described.digest == "sha256:" + hashlib.sha256(blob).hexdigest()
    assert described.diff_id == "sha256:" + hashlib.sha256(archive).hexdigest()
    found = unpacked(archive)
    expected = {}
    for entry in some:
        content = None if entry.content is None else b"".join(entry.content.chunks())
        kind = tarfile.REGTYPE if content is not None else tarfile.SYMTYPE if entry.link else tarfile.DIRTYPE
        size = len(content or b"")
        expected[entry.path] = (kind, entry.mode, entry.uid, entry.gid, entry.link or "", size, content)
    assert found == expected
    assert list(found) == sorted(found)


def test_the_same_entries_give_the_same_bytes(tmp_path: Path) -> None:
    some = layer_of(tmp_path)
    assert encoded(some) == encoded(some)


def test_an_archive_whose_blob_is_known_is_not_hashed(tmp_path: Path) -> None:
    some, blob = layer_of(tmp_path), io.BytesIO()
    first, made = encoded(some)
    again = layers.encode(some, blob.write, "sha256:believed")
    assert blob.getvalue() == made
    assert again == replace(first, diff_id="sha256:believed")


@dataclass(frozen=True)
class InParts(InMemory):
    """The same content, read in parts of another size."""

    part: int = 1 << 20

    def chunks(self) -> Iterator[bytes]:
        yield from (self.data[at : at + self.part] for at in range(0, len(self.data), self.part))


def test_the_bytes_do_not_depend_on_the_reader() -> None:
    digests = {
        encoded([Entry("larger", 0o644, InParts(LARGER, part))])[0].digest
        for part in (1 << 20, 5_000_000, 333_333, FRAME, len(LARGER))
    }
    assert len(digests) == 1


def test_each_file_of_a_zstd_chunked_table_has_its_frames(tmp_path: Path) -> None:
    some = layer_of(tmp_path)
    described, blob = encoded(some)
    footer = blob[-48:]
    assert footer[:8] == bytes.fromhex("502a4d18") + (40).to_bytes(4, "little")
    at, packed, size, kind = (int.from_bytes(footer[8 + 8 * n : 16 + 8 * n], "little") for n in range(4))
    assert footer[40:] == b"GnUlInUx"
    assert blob[at - 8 : at] == bytes.fromhex("502a4d18") + packed.to_bytes(4, "little")
    compressed = blob[at : at + packed]
    table = zstandard.ZstdDecompressor().decompress(compressed)
    assert len(table) == size
    values = {
        "checksum": "sha256:" + hashlib.sha256(compressed).hexdigest(),
        "position": f"{at}:{packed}:{size}:{kind}",
    }
    # The second name is the one of Podman 4.3.
    names = ("io.github.containers.zstd-chunked.manifest-", "io.containers.zstd-chunked.manifest-")
    assert described.annotations == {name + key: value for name in names for key, value in values.items()}
    assert kind == 1

    def read(row: dict[str, Any]) -> bytes:
        assert row["chunkSize"] == row["size"]
        return decompressed(blob[row["offset"] : row["endOffset"]])

    check_table(json.loads(table)["entries"], some, read)


def check_table(rows: list[dict[str, Any]], some: list[Entry], read: Any) -> None:
    """Compare a table of contents with the entries, and each file with what is where the table says."""
    for entry, row in zip(some, rows, strict=True):
        assert (row["mode"], row["modtime"]) == (entry.mode, "1970-01-01T00:00:00Z")
        assert (row.get("uid", 0), row.get("gid", 0)) == (entry.uid, entry.gid)
        if entry.link is not None:
            assert (row["type"], row["name"], row["linkName"]) == ("symlink", entry.path, entry.link)
        elif entry.content is None:
            assert (row["type"], row["name"]) == ("dir", entry.path + "/")
        else:
            assert (row["type"], row["name"]) == ("reg", entry.path)
            content = b"".join(entry.content.chunks())
            assert row.get("size", 0) == len(content)
            if content:
                assert row["digest"] == row["chunkDigest"] == "sha256:" + hashlib.sha256(content).hexdigest()
                assert read(row) == content
            else:
                assert "offset" not in row


@pytest.mark.parametrize("wrong", [["b", "a"], ["a", "a"], ["a/b"]])
def test_entries_out_of_order_are_an_error(wrong: list[str]) -> None:
    with pytest.raises(ValueError, match="comes"):
        encoded([Entry(path, 0o644, InMemory(b"")) for path in wrong])
