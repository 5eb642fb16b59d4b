"""Both encodings: what they write is read back by other programs' rules, and is the same when unpacked."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import random
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import zstandard

from validator.assemble.encodings import encoding
from validator.assemble.entries import Entry, InMemory
from validator.assemble.install import entries
from validator.assemble.layers import Encoded, Layers
from validator.assemble.merge import merged
from validator.assemble.zstd_encoding import FRAME

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


def encoded(choice: Layers, some: Iterable[Entry]) -> tuple[Encoded, bytes]:
    blob = io.BytesIO()
    return encoding(choice).encode(some, blob.write), blob.getvalue()


def decompressed(choice: Layers, blob: bytes) -> bytes:
    if choice is Layers.GZIP:
        return gzip.decompress(blob)
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


@pytest.mark.parametrize("choice", Layers)
def test_a_layer_holds_exactly_the_entries(choice: Layers, tmp_path: Path) -> None:
    some = layer_of(tmp_path)
    described, blob = encoded(choice, some)
    archive = decompressed(choice, blob)

    assert described.size == len(blob)
    assert described.digest == "sha256:" + hashlib.sha256(blob).hexdigest()
    assert described.diff_id == "sha256:" + hashlib.sha256(archive).hexdigest()
    found = unpacked(archive)
    found.pop("stargz.index.json", None)
    expected = {}
    for entry in some:
        content = None if entry.content is None else b"".join(entry.content.chunks())
        kind = tarfile.REGTYPE if content is not None else tarfile.SYMTYPE if entry.link else tarfile.DIRTYPE
        size = len(content or b"")
        expected[entry.path] = (kind, entry.mode, entry.uid, entry.gid, entry.link or "", size, content)
    assert found == expected
    assert list(found) == sorted(found)


def test_both_encodings_are_equal_when_unpacked(tmp_path: Path) -> None:
    some = layer_of(tmp_path)
    one, other = (
        unpacked(decompressed(choice, encoded(choice, some)[1])) for choice in (Layers.GZIP, Layers.ZSTD)
    )
    assert one.pop("stargz.index.json")
    assert one == other


@pytest.mark.parametrize("choice", Layers)
def test_the_same_entries_give_the_same_bytes(choice: Layers, tmp_path: Path) -> None:
    some = layer_of(tmp_path)
    assert encoded(choice, some) == encoded(choice, some)


@dataclass(frozen=True)
class InParts(InMemory):
    """The same content, read in parts of another size."""

    part: int = 1 << 20

    def chunks(self) -> Iterator[bytes]:
        yield from (self.data[at : at + self.part] for at in range(0, len(self.data), self.part))


def test_the_bytes_of_zstd_do_not_depend_on_the_reader() -> None:
    digests = {
        encoded(Layers.ZSTD, [Entry("larger", 0o644, InParts(LARGER, part))])[0].digest
        for part in (1 << 20, 5_000_000, 333_333, FRAME, len(LARGER))
    }
    assert len(digests) == 1


def test_gzip_contains_the_streams_of_the_wheel(tmp_path: Path) -> None:
    _, blob = encoded(Layers.GZIP, layer_of(tmp_path))
    assert wheels.File("", FILES["example/__init__.py"]).compressed in blob


def test_the_bytes_of_gzip_do_not_depend_on_a_library(tmp_path: Path) -> None:
    """Without a wheel, nothing in the blob comes from zlib, so its digest is the same everywhere."""
    described, _ = encoded(Layers.GZIP, [Entry("a", 0o755), Entry("a/b", 0o644, InMemory(b"text"))])
    assert described.digest == "sha256:bc0a38d03be3570cdae13f73ffe78ec04cfad568830c4364d7bbb15e9d1e0d80"


def test_each_file_of_an_estargz_table_starts_a_member(tmp_path: Path) -> None:
    some = layer_of(tmp_path)
    described, blob = encoded(Layers.GZIP, some)
    # As its specification says: the footer is 51 bytes, and its extra field has the position of the table.
    footer = blob[-51:]
    assert gzip.decompress(footer) == b""
    assert footer[12:16] == b"SG" + (22).to_bytes(2, "little")
    assert footer[32:38] == b"STARGZ"
    at = int(footer[16:32], 16)
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(blob[at:-51])), mode="r:") as tar:
        [entry] = tar.getmembers()
        stream = tar.extractfile(entry)
        assert stream is not None
        table = stream.read()
    assert entry.name == "stargz.index.json"
    assert described.annotations == {
        "containerd.io/snapshot/stargz/toc.digest": "sha256:" + hashlib.sha256(table).hexdigest(),
        "io.containers.estargz.uncompressed-size": str(len(gzip.decompress(blob))),
    }
    document = json.loads(table)
    assert document["version"] == 1
    check_table(document["entries"], some, lambda row: gzip_read(blob[row["offset"] :], row["size"]))


def gzip_read(blob: bytes, size: int) -> bytes:
    return gzip.GzipFile(fileobj=io.BytesIO(blob)).read(size)


def test_each_file_of_a_zstd_chunked_table_has_its_frames(tmp_path: Path) -> None:
    some = layer_of(tmp_path)
    described, blob = encoded(Layers.ZSTD, some)
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
        return decompressed(Layers.ZSTD, blob[row["offset"] : row["endOffset"]])

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


@pytest.mark.parametrize("choice", Layers)
@pytest.mark.parametrize("wrong", [["b", "a"], ["a", "a"], ["a/b"]])
def test_entries_out_of_order_are_an_error(choice: Layers, wrong: list[str]) -> None:
    with pytest.raises(ValueError, match="comes"):
        encoded(choice, [Entry(path, 0o644, InMemory(b"")) for path in wrong])
