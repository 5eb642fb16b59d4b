"""The reader of wheels: it reads what Python's own reader reads, and refuses what is ambiguous."""

from __future__ import annotations

import base64
import bz2
import hashlib
import io
import os
import re
import struct
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from validator.assemble.wheel import InstallableWheel, WheelError, open_wheel
from validator.errors import InputError, MissingError, ValidatorError
from validator.model.spec import Wheel

from . import wheels
from .wheels import FILENAME, INFO, Archive, File

BODY = {"example/__init__.py": b"print('hello')\n" * 50, "example/data.bin": os.urandom(3000)}
INIT = "example/__init__.py"


def read_all(wheel: InstallableWheel) -> dict[str, bytes]:
    return {path: b"".join(member.chunks()) for path, member in wheel.members.items()}


def changed(path: str, **changes: object) -> list[File]:
    """Return a valid wheel's files, of which one is described differently."""
    return [
        replace(file, **changes) if file.name == path else file  # type: ignore[arg-type]
        for file in wheels.with_metadata(BODY)
    ]


class Unseekable(io.BytesIO):
    """A file that is written as a pipe is, so that a ZIP archive has sizes after the data."""

    def seek(self, offset: int, whence: int = 0, /) -> int:
        raise io.UnsupportedOperation("seek")


def zip64_field(content: bytes) -> bytes:
    return struct.pack("<2H", 1, len(content)) + content


#: The right sizes of INIT as a ZIP64 field.
ZIP64 = zip64_field(struct.pack("<2Q", len(BODY[INIT]), len(File("", BODY[INIT]).compressed)))


def wide(local_extra: bytes) -> list[File]:
    """Return a wheel's files, of which one has its sizes in ZIP64 fields."""
    sizes = {"size": 0xFFFFFFFF, "compressed_size": 0xFFFFFFFF}
    return changed(INIT, **sizes, extra=ZIP64, local_extra=local_extra)


def added(*files: File) -> list[File]:
    return [*files, *wheels.with_metadata(BODY)]


def with_record(record: bytes) -> list[File]:
    return [file for file in wheels.with_metadata(BODY) if not file.name.endswith("/RECORD")] + [
        File(f"{INFO}/RECORD", record)
    ]


def row_of(path: str, content: bytes, **changes: str) -> bytes:
    files = {name: body for name, body in {**BODY, **wheels.METADATA}.items() if name != path}
    fields = {"digest": wheels.record_of({path: content}).decode().split(",")[1], "size": str(len(content))}
    fields.update(changes)
    return wheels.record_of(files) + f"{path},{fields['digest']},{fields['size']}\n".encode()


def test_a_wheel_is_read_as_python_reads_it(tmp_path: Path) -> None:
    files = wheels.with_metadata({**BODY, "example/ä.txt": b"utf-8", "example/empty": b""})
    files[0].mode = 0o100755
    files[1].method = 0
    files.append(File("example/directory/", method=0, mode=0o40755))
    with wheels.opened(tmp_path, files) as wheel, zipfile.ZipFile(wheel.path) as expected:
        names = [name for name in expected.namelist() if not name.endswith("/")]
        assert read_all(wheel) == {name: expected.read(name) for name in names}
        assert list(wheel.members) == names
        assert {path for path, member in wheel.members.items() if member.is_executable} == {INIT}
        for name in names:
            assert wheel.members[name].stored_size == expected.getinfo(name).compress_size
        assert wheel.members[INIT].sha256 == hashlib.sha256(BODY[INIT]).hexdigest()
        assert wheel.members[f"{INFO}/RECORD"].sha256 is None
        assert wheel.info == INFO


@pytest.mark.slow
@given(
    st.dictionaries(
        st.text(
            st.characters(min_codepoint=48, max_codepoint=0x2FF, categories=["L", "N"]),
            min_size=1,
            max_size=20,
        ),
        st.one_of(st.binary(max_size=300), st.integers(0, 2_500_000).map(bytes)),
        max_size=5,
    ),
    st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]),
    st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_what_python_writes_is_read(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes], method: int, streamed: bool
) -> None:
    """streamed: the writer can't go back, so sizes come after the data."""
    everything = {**{f"example/{name}": content for name, content in files.items()}, **wheels.METADATA}
    everything[f"{INFO}/RECORD"] = wheels.record_of(everything)
    buffer = Unseekable() if streamed else io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in everything.items():
            archive.writestr(name, content)
    path = tmp_path_factory.mktemp("wheel") / FILENAME
    path.write_bytes(buffer.getvalue())
    with open_wheel(path, wheels.described(buffer.getvalue())) as wheel:
        assert read_all(wheel) == everything


@pytest.mark.parametrize("last", [b"", bytes(8)], ids=["16 bytes", "24 bytes"])
def test_zip64_is_read(last: bytes, tmp_path: Path) -> None:
    files = wide(zip64_field(ZIP64[4:] + last))
    with wheels.opened(tmp_path, Archive(files, zip64=True)) as wheel:
        assert read_all(wheel)[INIT] == BODY[INIT]


def test_a_streamed_wheel_with_zip64_is_read(tmp_path: Path) -> None:
    everything = {**BODY, **wheels.METADATA}
    everything[f"{INFO}/RECORD"] = wheels.record_of(everything)
    buffer = Unseekable()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in everything.items():
            with archive.open(name, "w", force_zip64=True) as member:
                member.write(content)
    path = tmp_path / FILENAME
    path.write_bytes(buffer.getvalue())
    with open_wheel(path, wheels.described(buffer.getvalue())) as wheel:
        assert read_all(wheel) == everything


@pytest.mark.parametrize("at", [28, 30, 32], ids=["name", "extra", "comment"])
def test_a_length_that_runs_past_the_directory(at: int, tmp_path: Path) -> None:
    content = bytearray(Archive(wheels.with_metadata(BODY)).render())
    content[content.rindex(b"PK\1\2") + at] += 1
    path = tmp_path / FILENAME
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"its directory is broken$"):
        open_wheel(path, wheels.described(bytes(content)))


REFUSED: dict[str, tuple[list[File] | Archive, str]] = {
    "absolute": (added(File("/etc/passwd")), "is absolute"),
    "parent": (added(File("example/../../x")), "'..'"),
    "dot": (added(File("example/./x")), "'.'"),
    "no name": (added(File("")), "is broken"),
    "name with a zero byte": (added(File("example/x\0y")), "is broken"),
    "empty part": (added(File("example//x")), "empty parts"),
    "backslash": (added(File("example\\x")), "backslash"),
    "control character": (added(File("example/a\nb")), "control character"),
    "whiteout": (added(File("example/.wh.x")), r"\.wh\."),
    "opaque whiteout": (added(File("example/.wh..wh..opq")), r"\.wh\."),
    "whiteout directory": (added(File("example/.wh.x/y")), r"\.wh\."),
    "long name": (added(File("a" * 256)), "too long"),
    "long path": (added(File("/".join(["a" * 200] * 11))), "too long"),
    "link": (added(File("example/link", b"/etc", mode=0o120777)), "symbolic link"),
    "device": (added(File("example/null", mode=0o020666)), "neither a regular file nor a directory"),
    "directory as a file": (added(File("example/x", mode=0o040755)), "neither a regular file"),
    "directory with content": (added(File("example/x/", b"content", mode=0o040755)), "has content"),
    "twice": (added(File(INIT, b"other")), f"{INIT} twice"),
    "file and directory": (added(File("example")), "example is a file and a directory"),
    "encrypted": (changed(INIT, flags=1), "encrypted"),
    "strongly encrypted": (changed(INIT, flags=1 << 6), "features of ZIP"),
    "masked": (changed(INIT, flags=1 << 13), "features of ZIP"),
    "unknown method": (changed(INIT, method=9, stream=b"x"), "method 9"),
    "another name locally": (changed(INIT, local_name="example/__INIT__.py"), "another name"),
    "a longer name locally": (changed(INIT, local_name=INIT + "c"), "another name"),
    "another method locally": (changed(INIT, local_method=0), "in another way"),
    "encrypted locally": (changed(INIT, local_flags=1), "in another way"),
    "another CRC locally": (changed(INIT, local_crc32=1), "local header"),
    "overlap": (changed("example/data.bin", offset=0), "overlaps"),
    "offset into nothing": (changed(f"{INFO}/RECORD", offset=1 << 30), "outside the archive"),
    "offset into data": (changed("example/data.bin", offset=80), "not where the directory says"),
    "bytes before the first file": (
        Archive(wheels.with_metadata(BODY), before=b"#!/bin/sh\n"),
        "before the first file",
    ),
    "compressed size beyond the end": (changed(f"{INFO}/RECORD", compressed_size=1 << 20), "directory"),
    "stored with two sizes": (changed(INIT, method=0, size=7), "two different sizes"),
    "comment": (Archive(wheels.with_metadata(BODY), comment=b"hello"), "after its directory"),
    "bytes after the directory": (
        Archive(wheels.with_metadata(BODY), after_directory=b"x"),
        "not where its end",
    ),
    "more files than listed": (Archive(wheels.with_metadata(BODY), end={"here": 2, "count": 2}), "no file"),
    "fewer files than listed": (
        Archive(wheels.with_metadata(BODY), end={"here": 9, "count": 9}),
        "too short",
    ),
    "several parts": (Archive(wheels.with_metadata(BODY), end={"here": 2}), "several parts"),
    "size without ZIP64": (changed(INIT, size=0xFFFFFFFF), "sizes of"),
    "no ZIP64 locally": (wide(b""), f"the sizes of {INIT} are missing"),
    "a short ZIP64 field locally": (wide(zip64_field(ZIP64[4:12])), f"the sizes of {INIT} are missing"),
    "other sizes in ZIP64 locally": (
        wide(zip64_field(bytes(16)) + struct.pack("<2H", 0x9999, len(ZIP64)) + ZIP64),
        "other sizes",
    ),
    "no RECORD": ([file for file in wheels.with_metadata(BODY) if "RECORD" not in file.name], "no RECORD"),
    "two packages": (added(File("other-1.0.dist-info/METADATA")), "2 directories"),
    "no package": ([File("x.py")], "0 directories"),
    "another package": (wheels.renamed(BODY, "other"), "not example==1.0"),
    "another version": (wheels.renamed(BODY, "example", "1.1"), "not example==1.0"),
    "RECORD lists a missing file": (
        with_record(row_of("example/gone.py", b"") + row_of(INIT, BODY[INIT])),
        "twice",
    ),
    "RECORD lists only a missing file": (with_record(row_of("example/gone.py", b"")), "not in the wheel"),
    "RECORD with a size of too many digits": (
        with_record(row_of(INIT, BODY[INIT], size="9" * 5000)),
        "no number as the size",
    ),
    "RECORD with another size": (with_record(row_of(INIT, BODY[INIT], size="1")), "but 1 in RECORD"),
    "RECORD with a broken size": (with_record(row_of(INIT, BODY[INIT], size="1e3")), "no number"),
    "RECORD with a broken hash": (with_record(row_of(INIT, BODY[INIT], digest="sha256=abc")), "broken hash"),
    "RECORD not UTF-8": (with_record(b"\xff,,\n"), "can't be read"),
    "RECORD with two columns": (with_record(b"a,b\n"), "2 columns"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_wheels_that_no_image_may_contain(name: str, tmp_path: Path) -> None:
    files, why = REFUSED[name]
    with pytest.raises(InputError, match=why) as caught:
        wheels.opened(tmp_path, files)
    assert str(caught.value).startswith(FILENAME)
    assert caught.value.hint


def test_names_that_are_not_marked_as_utf8(tmp_path: Path) -> None:
    content = Archive(added(File("example/abcd"))).render().replace(b"example/abcd", b"example/ab\xc3\xa4")
    (tmp_path / FILENAME).write_bytes(content)
    with pytest.raises(InputError, match="isn't marked as UTF-8"):
        open_wheel(tmp_path / FILENAME, wheels.described(content))


DAMAGED: dict[str, tuple[list[File], str]] = {
    "another CRC": (changed(INIT, crc32=1, local_crc32=1), "the size and the CRC"),
    "larger than promised": (changed(INIT, size=10), "larger"),
    "smaller than promised": (changed(INIT, size=1000), "the size and the CRC"),
    "stream goes on": (changed(INIT, stream=File("", BODY[INIT]).compressed + b"more"), "does not end"),
    "stream is cut": (changed(INIT, stream=File("", BODY[INIT]).compressed[:-1]), "does not end"),
    "stream is broken": (changed(INIT, stream=b"\xff" * 30), "can't be decompressed"),
    "bomb": (changed(INIT, stream=File("", bytes(50_000_000)).compressed, size=1000), "larger"),
    "bzip2 goes on": (changed(INIT, method=12, stream=bz2.compress(BODY[INIT]) * 2), "does not end"),
    "LZMA is broken": (changed(INIT, method=14, stream=b"\x09\x14\x05\x00" + b"\xff" * 40), "decompress"),
    "another content": (
        changed(INIT, content=BODY[INIT].replace(b"hello", b"jello")),
        "the hash that RECORD gives",
    ),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_files_that_are_not_what_the_wheel_says(name: str, tmp_path: Path) -> None:
    files, why = DAMAGED[name]
    # RECORD has the size too, and is checked before any content.
    record = row_of(INIT, BODY[INIT], size="")
    files = [replace(file, content=record) if file.name == f"{INFO}/RECORD" else file for file in files]
    with wheels.opened(tmp_path, files) as wheel:
        with pytest.raises(WheelError, match=why) as caught:
            list(wheel.members[INIT].chunks())
        assert FILENAME in str(caught.value)
        assert INIT in str(caught.value)
        assert list(wheel.members["example/data.bin"].chunks()) == [BODY["example/data.bin"]]


@pytest.mark.slow
def test_every_flipped_bit_is_found(tmp_path: Path) -> None:
    """A bit that was flipped before the wheel was locked is found too, unless it decides nothing."""
    good = Archive(wheels.with_metadata({INIT: b"x = 1\n"})).render()
    expected = {INIT: b"x = 1\n", **wheels.METADATA}
    expected[f"{INFO}/RECORD"] = wheels.record_of(expected)
    path = tmp_path / FILENAME
    unnoticed = 0
    for position in range(len(good)):
        broken = bytearray(good)
        broken[position] ^= 1 << position % 8
        path.write_bytes(broken)
        with pytest.raises(WheelError, match="its SHA-256 is"):
            open_wheel(path, wheels.described(good))
        try:
            with open_wheel(path, wheels.described(bytes(broken))) as wheel:
                found = read_all(wheel)
        except ValidatorError:
            continue
        # Times, versions and attributes decide nothing.
        assert found == expected
        unnoticed += 1
    assert unnoticed < len(good) / 4


@pytest.mark.parametrize("algorithm", ["sha384", "sha512"])
def test_other_hashes_in_record(algorithm: str, tmp_path: Path) -> None:
    digest = base64.urlsafe_b64encode(hashlib.new(algorithm, BODY[INIT]).digest()).decode().rstrip("=")
    files = with_record(row_of(INIT, b"", digest=f"{algorithm}={digest}", size=""))
    with wheels.opened(tmp_path, files) as wheel:
        assert b"".join(wheel.members[INIT].chunks()) == BODY[INIT]
        assert wheel.members[INIT].sha256 is None
    wrong = with_record(row_of(INIT, b"", digest=f"{algorithm}={digest[:-4]}AAAA", size=""))
    with wheels.opened(tmp_path, wrong) as wheel, pytest.raises(WheelError, match="hash that RECORD gives"):
        list(wheel.members[INIT].chunks())


@pytest.mark.parametrize("row", [b"", f"{INIT},,\n".encode(), f"{INIT},md5=abc,\n".encode()])
def test_a_file_without_a_hash_rests_on_the_wheels(row: bytes, tmp_path: Path) -> None:
    rest = {path: content for path, content in {**BODY, **wheels.METADATA}.items() if path != INIT}
    with wheels.opened(tmp_path, with_record(wheels.record_of(rest) + row)) as wheel:
        assert wheel.members[INIT].sha256 is None
        assert b"".join(wheel.members[INIT].chunks()) == BODY[INIT]


def test_another_file_than_the_lock_names(tmp_path: Path) -> None:
    content = Archive(wheels.with_metadata(BODY)).render()
    (tmp_path / FILENAME).write_bytes(content)
    described = replace(wheels.described(content), sha256="0" * 64)
    with pytest.raises(WheelError, match=f"is not {re.escape(FILENAME)} of the lock") as caught:
        open_wheel(tmp_path / FILENAME, described)
    assert "delete this file" in str(caught.value.hint)


def test_a_file_that_the_lock_does_not_name_is_reported_as_that_first(tmp_path: Path) -> None:
    good = Archive(wheels.with_metadata(BODY)).render()
    path = tmp_path / FILENAME
    for content in (b"", b"no archive", good[:-1], Archive(wheels.with_metadata({"../a": b""})).render()):
        path.write_bytes(content)
        with pytest.raises(WheelError, match="its SHA-256 is"):
            open_wheel(path, wheels.described(good))


def test_a_wheel_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="can't be read: No such file"):
        open_wheel(tmp_path / FILENAME, wheels.described(b""))


@pytest.mark.parametrize(
    ("filename", "why"),
    [
        ("example-1.0.tar.gz", "it is not a wheel"),
        ("example-1.0.zip", "it is not a wheel"),
        ("example-1.0.whl", "not that of a wheel"),
        ("other-1.0-py3-none-any.whl", "the lock says that it is example==1.0"),
        ("example-1.1-py3-none-any.whl", "the lock says that it is example==1.0"),
    ],
)
def test_files_that_are_not_the_wheel(filename: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=why) as caught:
        open_wheel(tmp_path / filename, Wheel("example", "1.0", "0" * 64, filename))
    assert caught.value.hint


def overwrite(path: Path) -> None:
    with open(path, "r+b") as file:
        file.seek(200)
        file.write(b"\0\0")


def truncate(path: Path) -> None:
    os.truncate(path, 100)


@pytest.mark.parametrize("change", [overwrite, truncate, os.utime])
def test_a_wheel_that_changes_under_the_reader(change: Callable[[Path], object], tmp_path: Path) -> None:
    with wheels.opened(tmp_path, wheels.with_metadata({INIT: BODY[INIT]})) as wheel:
        change(wheel.path)
        with pytest.raises(WheelError, match="was changed while it was read") as caught:
            for member in wheel.members.values():
                list(member.chunks())
        assert str(wheel.path) in str(caught.value)


def test_a_replaced_wheel_is_verified_again(tmp_path: Path) -> None:
    with wheels.opened(tmp_path, wheels.with_metadata(BODY)) as wheel:
        pass
    with open_wheel(wheel.path, wheel.wheel):
        pass
    overwrite(wheel.path)
    with pytest.raises(WheelError, match="its SHA-256 is"):
        open_wheel(wheel.path, wheel.wheel)
