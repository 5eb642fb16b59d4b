"""Read a wheel strictly: its hash in the lock, its directory and RECORD have to agree with what is read."""

from __future__ import annotations

import base64
import bz2
import csv
import hashlib
import io
import lzma
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import NamedTuple, Protocol, cast

from isal import igzip_lib
from isal.isal_zlib import crc32 as crc32_of

from .._vendor.packaging.utils import canonicalize_name
from ..compat.inspect import wheel_name
from ..errors import InputError, MissingError, ValidatorError
from ..model.lock import Wheel
from ..versions import Version
from .layers import directories_of, path_problem
from .zip_directory import BZIP2, DEFLATED, LZMA, Item, ZipError, read_directory

# RECORD: the list of a wheel's files with their hashes.
# Source: https://packaging.python.org/en/latest/specifications/recording-installed-packages/

#: The algorithms that RECORD may use, with the bytes of a digest. A file with an older one counts as a file
#: without a hash.
_ALGORITHMS = {"sha256": 32, "sha384": 48, "sha512": 64}
#: Digits of a size in bytes.
_LONGEST_NUMBER = 20


class RecordError(Exception):
    """RECORD is broken. The text says how."""


class RecordRow(NamedTuple):
    """The entry of one file in RECORD. digest: in hexadecimal. size: in bytes."""

    algorithm: str | None = None
    digest: str | None = None
    size: int | None = None


def parse_record(content: bytes) -> dict[str, RecordRow]:
    """Return the rows by path. Raises RecordError."""
    rows: dict[str, RecordRow] = {}
    try:
        table = list(csv.reader(io.StringIO(content.decode("utf-8"), newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise RecordError(f"RECORD can't be read: {error}") from None
    for fields in table:
        if not fields:
            continue
        if len(fields) != 3:
            raise RecordError(
                f"a row of RECORD has {len(fields)} columns instead of 3: {','.join(fields)[:200]}"
            )
        path, described, size = fields
        if path in rows:
            raise RecordError(f"RECORD lists {path} twice")
        if size and not (size.isascii() and size.isdigit() and len(size) <= _LONGEST_NUMBER):
            raise RecordError(f"RECORD has no number as the size of {path}: {size[:40]!r}")
        algorithm, _, encoded = described.partition("=")
        if algorithm not in _ALGORITHMS:
            rows[path] = RecordRow(size=int(size) if size else None)
            continue
        try:
            digest = base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True)
        except ValueError:
            digest = b""
        if len(digest) != _ALGORITHMS[algorithm]:
            raise RecordError(f"RECORD has a broken hash of {path}: {described[:100]!r}")
        rows[path] = RecordRow(algorithm, digest.hex(), int(size) if size else None)
    return rows


def render_record(rows: Mapping[str, RecordRow]) -> bytes:
    """Return RECORD with these rows, sorted by path."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    for path in sorted(rows):
        row = rows[path]
        encoded = ""
        if row.digest is not None:
            digest = base64.urlsafe_b64encode(bytes.fromhex(row.digest)).rstrip(b"=")
            encoded = f"{row.algorithm}={digest.decode()}"
        writer.writerow((path, encoded, "" if row.size is None else row.size))
    return out.getvalue().encode()


#: Bytes that are hashed or inflated at once. Each such call releases the interpreter's lock, and may have to
#: wait for it afterwards, so larger parts cost less.
CHUNK = 512 << 10
#: Compressed bytes given to a decompressor at once.
_FEED = 1 << 20
#: Bytes of a wheel that are hashed at once. Meanwhile, another thread reads the wheel's directory and rarely
#: releases the interpreter's lock, so larger parts wait for it less often.
_HASHED = 16 << 20
#: METADATA, WHEEL, RECORD and scripts are read into memory, up to this size.
_LARGEST_TEXT = 32 << 20
_SIGNATURES = ("RECORD.jws", "RECORD.p7s")

#: Device, inode, size, time of modification in nanoseconds.
_Identity = tuple[int, int, int, int]


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class WheelError(ValidatorError):
    """A file is not the wheel that the lock names, or is damaged."""


class Member:
    """A regular file of a wheel, as the `Content` of an entry.

    path: inside the wheel. sha256: from RECORD, or None if RECORD has no SHA-256 of it. is_executable:
    according to its permissions in the archive.
    """

    __slots__ = "is_executable", "item", "path", "row", "sha256", "size", "stored_size", "wheel"

    def __init__(self, wheel: InstallableWheel, item: Item, row: RecordRow) -> None:
        self.wheel, self.item, self.row = wheel, item, row
        self.path, self.size, self.stored_size = item.name, item.size, item.compressed_size
        self.is_executable = bool(item.mode & 0o111)
        self.sha256 = row.digest if row.algorithm == "sha256" else None

    def chunks(self) -> Iterator[bytes]:
        """Return the content. Raises WheelError, at the end at the latest, if it is not what was promised."""
        hashing = hashlib.new(self.row.algorithm) if self.row.algorithm else None
        crc32 = size = 0
        for chunk in self._decompressed():
            crc32 = crc32_of(chunk, crc32)
            size += len(chunk)
            if size > self.size:
                raise self.wheel.damaged(f"{self.path} is larger than the archive's directory says")
            if hashing is not None:
                hashing.update(chunk)
            yield chunk
        self.wheel.check_unchanged()
        if (size, crc32) != (self.size, self.item.crc32):
            raise self.wheel.damaged(
                f"{self.path} does not have the size and the CRC of the archive's directory"
            )
        if hashing is not None and hashing.hexdigest() != self.row.digest:
            raise self.wheel.damaged(f"{self.path} does not have the hash that RECORD gives")

    def head(self, size: int) -> bytes:
        """Return the first bytes, at most `size`, without the checks of `chunks`."""
        found = b""
        for chunk in self._decompressed():
            found += chunk
            if len(found) >= size:
                break
        return found[:size]

    def content(self) -> bytes:
        """Return the whole content at once. Raises InputError if it is too large for that."""
        if self.size > _LARGEST_TEXT:
            raise self.wheel.refused(f"{self.path} has {self.size} bytes, more than {_LARGEST_TEXT}")
        return b"".join(self.chunks())

    def _raw(self, most: int) -> Iterator[bytes]:
        position, end = self.item.start, self.item.start + self.item.compressed_size
        while position < end:
            chunk = self.wheel.read_at(position, min(most, end - position))
            position += len(chunk)
            yield chunk

    def _decompressed(self) -> Iterator[bytes]:
        if self.item.method not in _DECOMPRESSORS:
            yield from self._raw(CHUNK)
            return
        decompressor = _DECOMPRESSORS[self.item.method]()
        feed: Iterator[bytes] = self._raw(_FEED)
        if self.item.method == LZMA:
            # APPNOTE 5.8.8: a version, the length of the properties (5), and these. The format "alone" has
            # the properties, then the size, of which all ones mean that there is an end mark.
            head = next(feed, b"")
            size = (1 << 64) - 1 if self.item.has_end_mark else self.size
            feed = chain([head[4:9] + size.to_bytes(8, "little") + head[9:]], feed)
        try:
            for data in feed:
                while True:
                    if chunk := decompressor.decompress(data, CHUNK):
                        yield chunk
                    data = b""
                    if decompressor.eof or decompressor.needs_input:
                        break
                if decompressor.eof:
                    break
        except (*_BROKEN, OSError, EOFError) as error:
            raise self.wheel.damaged(f"{self.path} can't be decompressed: {error}") from None
        if not decompressor.eof or decompressor.unused_data or next(feed, b""):
            raise self.wheel.damaged(
                f"the compressed data of {self.path} does not end where the directory says"
            )


#: isal declares its error as an instance instead of a type.
_BROKEN = (cast(type[Exception], igzip_lib.error), lzma.LZMAError)
_DECOMPRESSORS: dict[int, Callable[[], _Decompressor]] = {
    # Several times as fast as zlib.
    DEFLATED: lambda: igzip_lib.IgzipDecompressor(igzip_lib.DECOMP_DEFLATE),
    BZIP2: bz2.BZ2Decompressor,
    LZMA: lambda: lzma.LZMADecompressor(lzma.FORMAT_ALONE, memlimit=64 << 20),
}


class InstallableWheel:
    """An open wheel whose hash is that of the lock. Several threads may read it at once.

    members: its files by path, in the order of the archive. info: the name of the `.dist-info` directory.
    """

    def __init__(self, path: Path, wheel: Wheel) -> None:
        """Open and verify it. Raises what `open_wheel` raises."""
        self.path = path
        self.wheel = wheel
        try:
            self._handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise MissingError(f"the wheel {path} can't be read: {error.strerror}") from None
        try:
            self._identity = _identity(self._handle)
            with ThreadPoolExecutor(1) as pool:
                hashed = pool.submit(self._check_hash)
                try:
                    self.members, self.info = self._open()
                except Exception:
                    # If this is not the file that the lock names, say so instead.
                    hashed.result()
                    raise
                hashed.result()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> InstallableWheel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def refused(self, why: str, hint: str | None = None) -> InputError:
        """Return the error for a wheel that no image may contain, whoever made it."""
        return refusal(self.wheel.filename, why, hint)

    def damaged(self, why: str) -> WheelError:
        """Return the error for a wheel whose content contradicts itself. Raises it for one that changed."""
        self.check_unchanged()
        return WheelError(
            f"{self.wheel.filename} is damaged: {why}",
            hint="the lock names this very file: lock another release of this package, and tell its maker",
        )

    def check_unchanged(self) -> None:
        """Raise WheelError if somebody wrote to the file since it was opened."""
        if _identity(self._handle) != self._identity:
            raise WheelError(
                f"{self.path} was changed while it was read",
                hint="repeat the command when nobody else writes to this file",
            )

    def read_at(self, position: int, size: int) -> bytes:
        """Return exactly `size` bytes. Raises WheelError if the file is shorter now."""
        parts = []
        while size:
            try:
                part = os.pread(self._handle, size, position)
            except OSError as error:
                raise self._unreadable(error) from None
            if not part:
                raise self.damaged("it ends too early")
            parts.append(part)
            position += len(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _unreadable(self, error: OSError) -> MissingError:
        return MissingError(f"the wheel {self.path} can't be read: {error.strerror}")

    def _check_hash(self) -> None:
        if is_verified(self._handle, self.wheel.sha256):
            return
        size, position = self._identity[2], 0
        hashing = hashlib.sha256()
        block = memoryview(bytearray(min(size, _HASHED)))
        while position < size:
            try:
                count = os.preadv(self._handle, [block], position)
            except OSError as error:
                raise self._unreadable(error) from None
            if not count:
                raise self.damaged("it ends too early")
            hashing.update(block[:count])
            position += count
        self.check_unchanged()
        if hashing.hexdigest() != self.wheel.sha256:
            raise WheelError(
                f"{self.path} is not {self.wheel.filename} of the lock: its SHA-256 is {hashing.hexdigest()}"
                f" instead of {self.wheel.sha256}",
                hint="delete this file and repeat the command, which downloads it again",
            )
        note_verified(self._handle, self.wheel.sha256)

    def _open(self) -> tuple[dict[str, Member], str]:
        try:
            items = read_directory(self.read_at, self._identity[2])
        except ZipError as error:
            raise self.refused(str(error)) from None
        self._check_paths(items)
        files = {item.name: item for item in items if not item.is_directory}
        info = self._info_directory(files)
        name = f"{info}/RECORD"
        if name not in files:
            raise self.refused("it has no RECORD")
        try:
            rows = parse_record(Member(self, files[name], RecordRow()).content())
        except RecordError as error:
            raise self.refused(str(error)) from None
        no_hash = RecordRow()
        unsigned = {name, *(f"{info}/{signature}" for signature in _SIGNATURES)}
        for path, row in rows.items():
            if path.endswith("/") or path in unsigned:
                continue
            if path not in files:
                raise self.refused(f"RECORD lists {path}, which is not in it")
            if row.size is not None and row.size != files[path].size:
                raise self.refused(f"{path} has {files[path].size} bytes, but {row.size} in RECORD")
        members = {
            path: Member(self, item, no_hash if path in unsigned else rows.get(path, no_hash))
            for path, item in files.items()
        }
        return members, info

    def _check_paths(self, items: tuple[Item, ...]) -> None:
        seen: set[str] = set()
        for item in items:
            path = item.name.removesuffix("/")
            if problem := path_problem(path):
                raise self.refused(f"the path {item.name!r} {problem}")
            if path in seen:
                raise self.refused(f"it contains {path} twice")
            seen.add(path)
        files = {item.name for item in items if not item.is_directory}
        if both := directories_of(seen) & files:
            raise self.refused(f"{min(both)} is a file and a directory in it")

    def _info_directory(self, files: dict[str, Item]) -> str:
        found = {path.split("/", 1)[0] for path in files if path.split("/", 1)[0].endswith(".dist-info")}
        if len(found) != 1:
            raise self.refused(f"it has {len(found)} directories that end in .dist-info instead of one")
        info = found.pop()
        name, _, version = info.removesuffix(".dist-info").partition("-")
        try:
            is_right = Version(version) == Version(self.wheel.version)
        except ValueError:
            is_right = False
        if canonicalize_name(name) != self.wheel.name or not is_right:
            raise self.refused(f"its content is {info.removesuffix('.dist-info')}, not {self.wheel}")
        return info


#: Files whose hash was verified by this process. Whoever changes a file changes its identity.
_VERIFIED: set[tuple[_Identity, str]] = set()
_LOCK = threading.Lock()
#: Seconds within which two changes of a file may have the same time.
_SAME_TIME_S = 2.0


def is_verified(handle: int, sha256: str) -> bool:
    """Return True if this process has found the open file to have this hash, and nobody changed it since."""
    with _LOCK:
        return (_identity(handle), sha256) in _VERIFIED


def note_verified(handle: int, sha256: str) -> None:
    """Note that the open file has this hash, unless another change of it could go unnoticed."""
    identity = _identity(handle)
    if abs(time.time_ns() - identity[-1]) > _SAME_TIME_S * 1e9:
        with _LOCK:
            _VERIFIED.add((identity, sha256))


def open_wheel(path: Path, wheel: Wheel) -> InstallableWheel:
    """Return the wheel at `path`, after comparing its hash with the lock, and its directory with RECORD.

    Raises WheelError if it is another file or damaged, InputError if it may not be in an image or its name is
    not that of the wheel, and MissingError if it can't be read.
    """
    if not wheel.filename.endswith(".whl"):
        raise refusal(
            wheel.filename,
            "it is not a wheel",
            "build a wheel of it first (`uv build --wheel`), and name that file in the matrix",
        )
    try:
        name, version, _ = wheel_name(wheel.filename)
        locked = Version(wheel.version)
    except ValueError as error:
        raise refusal(wheel.filename, f"its name is not that of a wheel: {error}") from None
    if name != wheel.name or str(version) != str(locked):
        raise refusal(wheel.filename, f"the lock says that it is {wheel}")
    return InstallableWheel(path, wheel)


def refusal(filename: str, why: str, hint: str | None = None) -> InputError:
    """Return the error for a file that no image may contain."""
    return InputError(
        f"{filename} can't be put into an image: {why}",
        hint=hint or "lock another release of this package, or tell its maker",
    )


def _identity(handle: int) -> _Identity:
    status = os.fstat(handle)
    # Not the time of the last change: the cache of wheels notes when it used one.
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
