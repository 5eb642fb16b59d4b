"""Bases: the facts that are read out of them, and the files that they must have."""

from __future__ import annotations

import gzip
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from validator.assemble import base as reading
from validator.assemble.base import BaseFiles, base_files, decompressed, read_file_system
from validator.assemble.layer_table import LayerTable
from validator.errors import InputError

from .bases import ELF, FILES, base_of, layer


def read(
    *layers: Mapping[str, bytes | str | None], python: str = "3.11", search: str | None = None
) -> BaseFiles:
    system = read_file_system([layer(files).archive for files in layers])
    return base_files(system, "example:1", python, search)


def test_what_an_image_needs_is_read(tmp_path: Path) -> None:
    table = LayerTable(tmp_path)
    base = base_of(table, layer(FILES | {"etc": None, "usr/local/cuda": None}))
    files = base.files
    assert (files.interpreter.path, files.interpreter.version) == ("/usr/bin/python3.11", "3.11.2")
    assert files.interpreter.feature == "3.11"
    assert (files.glibc, files.glibc_version) == ("2.36", (2, 36))
    assert files.files["etc/passwd"].content == FILES["etc/passwd"]
    assert files.files["etc/passwd"].mode == 0o640
    assert set(files.files) == {path for path in FILES if path.startswith("etc/")}
    assert files.paths == {"usr/local/cuda"}
    assert files.directories["etc"].mode == 0o750


def test_a_base_is_read_once(tmp_path: Path) -> None:
    first = base_of(LayerTable(tmp_path), layer(FILES))
    unreadable = layer(FILES)
    object.__setattr__(unreadable, "read", lambda: pytest.fail("the layer was read again"))
    assert base_of(LayerTable(tmp_path), unreadable).files == first.files


@pytest.mark.parametrize("whiteout", ["opt/.wh.venv", "opt/.wh..wh..opq", ".wh.opt"])
def test_an_upper_layer_hides_files_of_a_lower_one(whiteout: str) -> None:
    with pytest.raises(InputError, match="/opt/venv"):
        read(FILES, {"opt/venv": None})
    assert read({"opt/venv": None, "opt/venv/bin": None}, {**FILES, whiteout: b""})
    # A whiteout hides nothing of its own layer.
    with pytest.raises(InputError, match="/opt/venv"):
        read(FILES, {"opt/venv": None, "opt/.wh..wh..opq": b""})


def without(*paths: str, **more: bytes | str) -> dict[str, bytes | str | None]:
    return {path: content for path, content in FILES.items() if path not in paths} | more


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (without("etc/passwd"), "has no /etc/passwd"),
        (without("lib64"), "has no /lib64/ld-linux-x86-64.so.2"),
        (without("usr/lib/x86_64-linux-gnu/libc.so.6"), "has no glibc for x86-64"),
        (
            without("usr/bin/python3.11", "usr/bin/python3"),
            "has no Python on its PATH; Python 3.11 is needed",
        ),
        ({**FILES, "usr/bin/python3.11": ELF}, "the exact version of Python can't be read"),
        (
            {**FILES, "usr/bin/python3.11": ELF.replace(b"\x3e", b"\xb7") + b"\x003.11.2\x00"},
            "is not a program for x86-64",
        ),
    ],
)
def test_a_base_that_lacks_something_is_rejected(
    files: Mapping[str, bytes | str | None], message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read(files)
    assert "example:1" in str(caught.value) and "images.md" in str(caught.value.hint)


def test_another_python_is_named() -> None:
    with pytest.raises(InputError, match=r"has Python 3\.11 on its PATH; Python 3\.12 is needed"):
        read(FILES, python="3.12")


def test_the_search_path_of_the_base_counts() -> None:
    files = without("usr/bin/python3.11", "usr/bin/python3")
    files |= {"srv/python/bin/python3.11": b"x", "srv/python/lib/libpython3.11.so.1.0": ELF + b"3.11.9\x00"}
    with pytest.raises(InputError, match="no Python"):
        read(files)
    found = read(files, search="/usr/bin:/srv/python/bin")
    assert found.interpreter.path == "/srv/python/bin/python3.11"
    assert found.interpreter.version == "3.11.9"


def test_links_that_go_round_are_no_endless_loop() -> None:
    with pytest.raises(InputError, match="has no /lib64"):
        read(without("lib64") | {"lib64": "a", "a": "lib64"})


def test_a_layer_that_is_no_archive_is_rejected() -> None:
    with pytest.raises(InputError, match="can't be read"):
        read_file_system([lambda: iter([b"x" * 2000])])


def test_a_part_of_a_layer_that_stands_for_a_thousand_times_as_much_is_unpacked_in_pieces() -> None:
    size = 20 << 20
    packed = gzip.compress(bytes(size)) + gzip.compress(b"end")
    pieces = [len(piece) for piece in decompressed(iter([packed]), "tar+gzip")]
    assert len(packed) < 1 << 20 and sum(pieces) == size + len("end")
    assert max(pieces) <= 1 << 20


def extension(size: int) -> bytes:
    """Return the beginning of an entry for extended attributes of so many bytes."""
    entry = tarfile.TarInfo("x")
    entry.type, entry.size = tarfile.XHDTYPE, size
    return entry.tobuf(tarfile.USTAR_FORMAT)


def test_an_entry_with_endless_attributes_is_refused_before_they_are_read() -> None:
    def endless() -> Iterator[bytes]:
        yield extension(1 << 30)
        for _ in range(10):
            yield bytes(1 << 20)
        raise AssertionError("the attributes are read")

    with pytest.raises(InputError, match="has 1073741824 bytes"):
        read_file_system([endless])


def test_a_base_of_endless_files_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_MOST_ENTRIES", 10)
    with pytest.raises(InputError, match="more than 10 files"):
        read(FILES)
