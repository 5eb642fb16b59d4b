"""Small wheels, made byte by byte, also such as no archiver makes."""

from __future__ import annotations

import base64
import hashlib
import struct
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from validator.assemble.install import Environment
from validator.assemble.wheel import InstallableWheel, open_wheel
from validator.model.spec import Wheel

ENVIRONMENT = Environment("3.11", (2, 36))
INFO = "example-1.0.dist-info"
FILENAME = "example-1.0-py3-none-any.whl"
SITE = "opt/venv/lib/python3/site-packages"
METADATA = {
    f"{INFO}/METADATA": b"Metadata-Version: 2.1\nName: example\nVersion: 1.0\n",
    f"{INFO}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
}


@dataclass
class File:
    """A file of a wheel, as its directory and its local header describe it. None: as it is."""

    name: str
    content: bytes = b""
    method: int = 8
    mode: int = 0o100644
    flags: int = 0
    local_flags: int | None = None
    stream: bytes | None = None
    local_name: str | None = None
    local_method: int | None = None
    crc32: int | None = None
    local_crc32: int | None = None
    size: int | None = None
    compressed_size: int | None = None
    offset: int | None = None
    extra: bytes = b""
    local_extra: bytes = b""
    descriptor: bytes = b""

    @property
    def compressed(self) -> bytes:
        if self.stream is not None:
            return self.stream
        if self.method == zipfile.ZIP_STORED:
            return self.content
        compressing = zlib.compressobj(6, zlib.DEFLATED, -15)
        return compressing.compress(self.content) + compressing.flush()


def record_of(files: Mapping[str, bytes], info: str = INFO) -> bytes:
    rows = []
    for path, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        rows.append(f"{path},sha256={digest},{len(content)}\n")
    return "".join([*rows, f"{info}/RECORD,,\n"]).encode()


def with_metadata(files: Mapping[str, bytes]) -> list[File]:
    """Return the files of a wheel with the given content, METADATA, WHEEL and a right RECORD."""
    everything = {**files, **METADATA}
    return [
        *(File(name, content) for name, content in everything.items()),
        File(f"{INFO}/RECORD", record_of(everything)),
    ]


@dataclass
class Archive:
    """A ZIP archive. before, between and after: bytes where there should be none."""

    files: list[File]
    before: bytes = b""
    after_directory: bytes = b""
    comment: bytes = b""
    end: dict[str, int] = field(default_factory=dict)
    zip64: bool = False

    def render(self) -> bytes:
        body = bytearray(self.before)
        directory = bytearray()
        for file in self.files:
            stream = file.compressed
            size = len(file.content) if file.size is None else file.size
            packed = len(stream) if file.compressed_size is None else file.compressed_size
            crc32 = zlib.crc32(file.content) if file.crc32 is None else file.crc32
            offset = len(body) if file.offset is None else file.offset
            name = file.name.encode()
            utf8 = 0 if name.isascii() else 1 << 11
            flags = file.flags | utf8
            local_flags = flags if file.local_flags is None else file.local_flags | utf8
            local_name = name if file.local_name is None else file.local_name.encode()
            local = (crc32 if file.local_crc32 is None else file.local_crc32, packed, size)
            if flags & 8:
                local = (0, 0, 0)
            body += struct.pack(
                "<4s5H3L2H", b"PK\3\4", 20, local_flags,
                file.method if file.local_method is None else file.local_method,
                0, 0, *local, len(local_name), len(file.local_extra),
            )  # fmt: skip
            body += local_name + file.local_extra + stream + file.descriptor
            directory += struct.pack(
                "<4s6H3L5H2L", b"PK\1\2", 3 << 8 | 20, 20, flags, file.method, 0, 0, crc32, packed, size,
                len(name), len(file.extra), 0, 0, 0, file.mode << 16, offset,
            )  # fmt: skip
            directory += name + file.extra
        numbers = {
            "here": len(self.files),
            "count": len(self.files),
            "size": len(directory),
            "start": len(body),
        }
        numbers.update(self.end)
        body += directory
        if self.zip64:
            position = len(body)
            body += struct.pack(
                "<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, numbers["here"], numbers["count"], numbers["size"],
                numbers["start"],
            )  # fmt: skip
            body += struct.pack("<4sLQL", b"PK\6\7", 0, position, 1)
            numbers = {"here": 0xFFFF, "count": 0xFFFF, "size": 0xFFFFFFFF, "start": 0xFFFFFFFF}
        body += self.after_directory
        body += struct.pack(
            "<4s4H2LH", b"PK\5\6", 0, 0, numbers["here"], numbers["count"], numbers["size"], numbers["start"],
            len(self.comment),
        )  # fmt: skip
        return bytes(body + self.comment)


def described(content: bytes, filename: str = FILENAME) -> Wheel:
    """Return what a lock says of a wheel."""
    name, version = filename.split("-")[:2]
    return Wheel(name.replace("_", "-"), version, hashlib.sha256(content).hexdigest(), filename, len(content))


def opened(directory: Path, files: list[File] | Archive, filename: str = FILENAME) -> InstallableWheel:
    """Write a wheel and open it. The caller closes it."""
    content = (files if isinstance(files, Archive) else Archive(files)).render()
    path = directory / filename
    path.write_bytes(content)
    return open_wheel(path, described(content, filename))


def renamed(files: Mapping[str, bytes], name: str, version: str = "1.0") -> list[File]:
    """Return the files of a wheel of another package, with a right RECORD."""
    info = f"{name}-{version}.dist-info"
    everything = {**files, **{path.replace(INFO, info): content for path, content in METADATA.items()}}
    return [
        *(File(path, content) for path, content in everything.items()),
        File(f"{info}/RECORD", record_of(everything, info)),
    ]
