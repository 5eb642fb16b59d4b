"""The loader's search, read from files: RUNPATH, ld.so.cache, and which copy comes first."""

from __future__ import annotations

import os
import struct
import subprocess
from pathlib import Path

import pytest

from validator.probe import installed


def shared_object(path: Path, tag: int, text: str, base: int = 0x4000) -> Path:
    """Return an ELF file with nothing but a dynamic section, loaded at another address than its offset."""
    strings = b"\0" + text.encode() + b"\0"
    dynamic = struct.pack("<qQqQqQ", tag, 1, 5, base + 64 + 2 * 56, 0, 0)
    start = 64 + 2 * 56
    body = strings + dynamic
    header = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack(
        "<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 64, 0, 0
    )
    loaded = struct.pack("<IIQQQQQQ", 1, 5, 0, base, base, start + len(body), start + len(body), 4096)
    at = start + len(strings)
    dynamic_header = struct.pack("<IIQQQQQQ", 2, 6, at, base + at, base + at, len(dynamic), len(dynamic), 8)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(header + loaded + dynamic_header + body)
    return path


@pytest.mark.parametrize("tag", [15, 29], ids=["RPATH", "RUNPATH"])
def test_the_search_path_of_a_library(tag: int, tmp_path: Path) -> None:
    text = "$ORIGIN/../nvidia/cudnn/lib:${ORIGIN}:/opt/cuda/lib64::$ORIGIN"
    library = shared_object(tmp_path / "tensorflow" / "lib.so", tag, text)
    directory = tmp_path / "tensorflow"
    assert installed.runpath(str(library)) == [
        f"{directory}/../nvidia/cudnn/lib",
        str(directory),
        "/opt/cuda/lib64",
    ]


def test_other_files_have_no_search_path(tmp_path: Path) -> None:
    file = tmp_path / "lib.so"
    for content in (b"", b"\x7fELF\x02\x01", b"GROUP ( libc.so.6 )", b"\x7fELF\x02\x01" + b"\xff" * 200):
        file.write_bytes(content)
        assert installed.runpath(str(file)) == []
    assert installed.runpath(str(tmp_path / "missing")) == []


def cache(path: Path, entries: list[tuple[str, str, int]], before: bytes = b"") -> str:
    strings, table = bytearray(), b""
    first = 48 + 24 * len(entries)
    for name, file, flags in entries:
        at = [first + len(strings)]
        strings += name.encode() + b"\0"
        at.append(first + len(strings))
        strings += file.encode() + b"\0"
        table += struct.pack("<iIIIQ", flags, *at, 0, 0)
    header = b"glibc-ld.so.cache1.1" + struct.pack("<II", len(entries), len(strings)) + b"\2".ljust(20, b"\0")
    path.write_bytes(before + header + table + bytes(strings))
    return str(path)


def test_the_cache_of_the_loader(tmp_path: Path) -> None:
    entries = [
        ("libcudnn.so.9", "/a/libcudnn.so.9", 0x303),
        ("libcudnn.so.9", "/b/libcudnn.so.9", 0x303),
        ("libcudnn.so.9", "/32/libcudnn.so.9", 0x3),
        ("libz.so.1", "/lib/libz.so.1", 0x303),
    ]
    expected = {"libcudnn.so.9": ["/a/libcudnn.so.9", "/b/libcudnn.so.9"], "libz.so.1": ["/lib/libz.so.1"]}
    assert installed.cached(cache(tmp_path / "new", entries)) == expected
    assert (
        installed.cached(cache(tmp_path / "both", entries, before=b"ld.so-1.7.0".ljust(64, b"\0")))
        == expected
    )
    assert installed.cached(str(tmp_path / "missing")) == {}
    (tmp_path / "other").write_bytes(b"something else")
    assert installed.cached(str(tmp_path / "other")) == {}


@pytest.mark.service
@pytest.mark.skipif(not os.path.exists("/sbin/ldconfig"), reason="no ldconfig to compare with")
def test_this_machines_cache_is_read_as_ldconfig_reads_it() -> None:
    printed = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    known = {line.split()[-1] for line in printed.splitlines() if "=>" in line and "x86-64" in line}
    assert {path for paths in installed.cached().values() for path in paths} == known


def test_copies_come_in_the_order_of_the_search(tmp_path: Path) -> None:
    def make(directory: str) -> str:
        path = tmp_path / directory / "libx.so.1"
        path.parent.mkdir()
        path.touch()
        return str(path)

    first, second, third = make("preferred"), make("runpath"), make("cached")
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / "libx.so.1").symlink_to(second)
    found = installed.copies(
        "libx.so.1",
        [str(tmp_path / "empty"), str(tmp_path / "preferred")],
        [str(tmp_path / "runpath"), str(tmp_path / "link")],
        {"libx.so.1": [third, first, str(tmp_path / "gone" / "libx.so.1")]},
    )
    assert [(copy.path, copy.found_by) for copy in found] == [
        (first, "LD_LIBRARY_PATH"),
        (second, "RUNPATH"),
        (third, "ld.so.cache"),
    ]


def test_the_version_of_a_file_that_is_not_opened(tmp_path: Path) -> None:
    assert installed.version_of("/usr/lib/libcublas.so.12.5.3.2", "libcublas.so.12") == "12.5.3.2"
    assert installed.version_of("/usr/lib/libcufft.so.11", "libcufft.so.11") is None
    # The soname itself has two numbers, which are not the version of the file.
    assert installed.version_of("/usr/lib/libcudart.so.11.0", "libcudart.so.11.0") is None
    library = tmp_path / "nvidia" / "cudnn" / "lib" / "libcudnn.so.9"
    assert installed.version_of(str(library), "libcudnn.so.9") is None
    (tmp_path / "nvidia_cudnn_cu12-9.3.0.75.dist-info").mkdir()
    assert installed.version_of(str(library), "libcudnn.so.9") == "9.3.0.75"
    (tmp_path / "nvidia_cudnn_cu12-9.1.0.70.dist-info").mkdir()
    assert installed.version_of(str(library), "libcudnn.so.9") is None
