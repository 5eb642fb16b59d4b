"""Read a wheel strictly: its hash in the lock, its directory and RECORD have to agree with what is read."""

from __future__ import annotations

import base64
import bz2
import csv
import hashlib
import io
import lzma
import os
import stat
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, cast
from zipfile import ZIP_BZIP2, ZIP_DEFLATED, ZIP_LZMA, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from isal import igzip_lib
from isal.isal_zlib import crc32 as crc32_of

from .._vendor.packaging.utils import canonicalize_name
from ..errors import InputError, MissingError, ValidatorError
from ..model.spec import Wheel
from ..versions import Version, wheel_name
from .layers import directories_of, path_problem

# Read the directory of a ZIP archive strictly: an archive that two readers could understand differently is an
# error. `zipfile` reads the directory, and accepts more than is accepted here.
# Source: PKWARE's APPNOTE.TXT, 4.3 (structure), 4.4 (fields) and 4.5.3 (ZIP64).

_END = struct.Struct("<4s4H2LH")
_END64_LOCATOR = struct.Struct("<4sLQL")
_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCAL = struct.Struct("<4s5H3L2H")
_ZIP64_EXTRA = struct.Struct("<2H2Q")
_SATURATED_16, _SATURATED_32 = 0xFFFF, 0xFFFFFFFF
#: Encryption, compression options, a data descriptor after the data, a name in UTF-8, an end mark of LZMA.
_ENCRYPTED, _OPTIONS, _DESCRIPTOR, _UTF8, _END_MARK = 1 << 0, 0b110, 1 << 3, 1 << 11, 0b10
_LARGEST_DIRECTORY = 64 << 20
#: Bytes that are read at once to find local headers.
_AHEAD = 32 << 10

#: Returns the bytes of the archive from an offset on, all that were asked for.
ReadAt = Callable[[int, int], bytes]


class FormatError(Exception):
    """A wheel is broken, ambiguous or uses something that no wheel needs. The text says what."""


def read_directory(handle: int, read_at: ReadAt, size: int) -> list[tuple[ZipInfo, int]]:
    """Return the files and directories of an archive, each with the offset of its compressed data.

    They are in the order of the directory. Local headers agree with it, nothing overlaps and nothing comes
    before the first one. handle, read_at, size: of the archive. Raises FormatError.
    """
    start, count = _find(read_at, size)
    try:
        with open(handle, "rb", closefd=False) as stream, ZipFile(stream) as archive:
            items = archive.infolist()
    except (BadZipFile, NotImplementedError, ValueError, struct.error) as error:
        raise FormatError(f"its directory is broken: {error}") from None
    if len(items) != count:
        raise FormatError(f"its directory has {len(items)} files, but its end record says {count}")
    read_local = _read_ahead(read_at, start)
    starts: dict[int, int] = {}
    taken = 0
    for number in sorted(range(count), key=lambda number: items[number].header_offset):
        item = items[number]
        _check(item)
        if item.header_offset < taken:
            raise FormatError(f"{item.filename} overlaps another file of the archive")
        if taken == 0 and item.header_offset:
            raise FormatError("there are bytes before the first file of the archive")
        starts[number] = _located(read_local, item, start)
        taken = starts[number] + item.compress_size
    return [(item, starts[number]) for number, item in enumerate(items)]


def _read_ahead(read_at: ReadAt, limit: int) -> ReadAt:
    """Return a function that reads ahead up to `limit`: local headers often lie close together."""
    begin, block = 0, b""

    def read(position: int, size: int) -> bytes:
        nonlocal begin, block
        if not begin <= position <= position + size <= begin + len(block):
            begin = position
            block = read_at(position, max(size, min(_AHEAD, limit - position)))
        return block[position - begin : position - begin + size]

    return read


def _find(read_at: ReadAt, size: int) -> tuple[int, int]:
    """Return where the central directory starts, and how many entries it has."""
    if size < _END.size:
        raise FormatError("it is not a ZIP archive")
    position = end = size - _END.size
    signature, disk, first_disk, here, count, length, start, comment = _END.unpack(
        read_at(position, _END.size)
    )
    if signature != b"PK\5\6" or comment:
        raise FormatError("it is not a ZIP archive, or there are bytes after its directory")
    locator = b""
    if position >= _END64_LOCATOR.size:
        locator = read_at(position - _END64_LOCATOR.size, _END64_LOCATOR.size)
    if locator.startswith(b"PK\6\7"):
        _, _, end, disks = _END64_LOCATOR.unpack(locator)
        if disks != 1 or end + _END64.size != position - _END64_LOCATOR.size:
            raise FormatError("its ZIP64 record is not where it must be")
        signature, rest, _, _, disk64, first64, *large = _END64.unpack(read_at(end, _END64.size))
        if signature != b"PK\6\6" or rest != _END64.size - 12 or disk64 or first64:
            raise FormatError("its ZIP64 record is broken")
        small = (here, count, length, start)
        limits = (_SATURATED_16, _SATURATED_16, _SATURATED_32, _SATURATED_32)
        if any(few not in (limit, many) for few, limit, many in zip(small, limits, large, strict=True)):
            raise FormatError("its two end records disagree")
        here, count, length, start = large
    if disk or first_disk or here != count:
        raise FormatError("it has several parts")
    if start + length != end:
        raise FormatError("its directory is not where its end record says")
    if length > _LARGEST_DIRECTORY:
        raise FormatError(f"its directory has {length} bytes, more than {_LARGEST_DIRECTORY}")
    return start, count


def _check(item: ZipInfo) -> None:
    name, flags, method = item.filename, item.flag_bits, item.compress_type
    if not (flags & _UTF8 or name.isascii()):
        raise FormatError(f"the name {name!r} is not ASCII, and isn't marked as UTF-8")
    if not name or name != item.orig_filename or item.volume:
        raise FormatError(f"the entry of {name} in its directory is broken")
    if _SATURATED_32 in (item.file_size, item.compress_size, item.header_offset):
        raise FormatError(f"the sizes of {name} are missing")
    if flags & _ENCRYPTED:
        raise FormatError(f"{name} is encrypted")
    if flags & ~(_OPTIONS | _DESCRIPTOR | _UTF8):
        raise FormatError(f"{name} uses features of ZIP that wheels don't have (flags {flags:#x})")
    if method not in (ZIP_STORED, *_DECOMPRESSORS):
        raise FormatError(f"{name} is compressed by method {method}, which wheels don't use")
    if method == ZIP_STORED and item.file_size != item.compress_size:
        raise FormatError(f"{name} is not compressed, but has two different sizes")
    kind = stat.S_IFMT(item.external_attr >> 16)
    if kind == stat.S_IFLNK:
        raise FormatError(f"{name} is a symbolic link")
    if kind not in (0, stat.S_IFDIR if item.is_dir() else stat.S_IFREG):
        raise FormatError(f"{name} is neither a regular file nor a directory, or its name does not match")
    if item.is_dir() and item.file_size:
        raise FormatError(f"the directory {name} has content")


def _located(read_at: ReadAt, item: ZipInfo, limit: int) -> int:
    """Return the offset of an item's data, after comparing its local header with the directory."""
    name = item.filename.encode()
    length = _LOCAL.size + len(name)
    if item.header_offset + length > limit:
        raise FormatError(f"{item.filename} lies outside the archive")
    local = read_at(item.header_offset, length)
    signature, _, flags, method, _, _, crc32, compressed, size, name_length, extra_length = (
        _LOCAL.unpack_from(local)
    )
    if signature != b"PK\3\4":
        raise FormatError(f"{item.filename} is not where the directory says")
    if name_length != len(name) or local[_LOCAL.size :] != name:
        raise FormatError(f"{item.filename} has another name in its local header")
    if method != item.compress_type or (flags ^ item.flag_bits) & (_ENCRYPTED | _DESCRIPTOR):
        raise FormatError(f"{item.filename} is stored in another way than the directory says")
    if _SATURATED_32 in (compressed, size):
        extra = read_at(item.header_offset + length, extra_length)
        if _ZIP64_EXTRA.pack(1, 16, item.file_size, item.compress_size) in extra:
            size, compressed = item.file_size, item.compress_size
    found, promised = (crc32, compressed, size), (item.CRC, item.compress_size, item.file_size)
    # With a data descriptor, the writer did not know them yet.
    if found != promised and not (flags & _DESCRIPTOR and not any(found)):
        raise FormatError(f"{item.filename} has other sizes or another CRC in its local header")
    start: int = item.header_offset + length + extra_length
    if start + item.compress_size > limit:
        raise FormatError(f"{item.filename} does not end before the directory")
    return start


# RECORD: the list of a wheel's files with their hashes.
# Source: https://packaging.python.org/en/latest/specifications/recording-installed-packages/

#: The algorithms that RECORD may use, with the bytes of a digest. A file with an older one counts as a file
#: without a hash.
_ALGORITHMS = {"sha256": 32, "sha384": 48, "sha512": 64}
#: Digits of a size in bytes.
_LONGEST_NUMBER = 20


class RecordRow(NamedTuple):
    """The entry of one file in RECORD. digest: in hexadecimal. size: in bytes."""

    algorithm: str | None = None
    digest: str | None = None
    size: int | None = None


def parse_record(content: bytes) -> dict[str, RecordRow]:
    """Return the rows by path. Raises FormatError."""
    rows: dict[str, RecordRow] = {}
    try:
        table = list(csv.reader(io.StringIO(content.decode("utf-8"), newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise FormatError(f"RECORD can't be read: {error}") from None
    for fields in table:
        if not fields:
            continue
        if len(fields) != 3:
            raise FormatError(
                f"a row of RECORD has {len(fields)} columns instead of 3: {','.join(fields)[:200]}"
            )
        path, described, size = fields
        if path in rows:
            raise FormatError(f"RECORD lists {path} twice")
        if size and not (size.isascii() and size.isdigit() and len(size) <= _LONGEST_NUMBER):
            raise FormatError(f"RECORD has no number as the size of {path}: {size[:40]!r}")
        algorithm, _, encoded = described.partition("=")
        if algorithm not in _ALGORITHMS:
            rows[path] = RecordRow(size=int(size) if size else None)
            continue
        try:
            digest = base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True)
        except ValueError:
            digest = b""
        if len(digest) != _ALGORITHMS[algorithm]:
            raise FormatError(f"RECORD has a broken hash of {path}: {described[:100]!r}")
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


class WheelError(ValidatorError):
    """A file is not the wheel that the lock names, or is damaged."""


class Member:
    """A regular file of a wheel, as the `Content` of an entry.

    path: inside the wheel. sha256: from RECORD, or None if RECORD has no SHA-256 of it. is_executable:
    according to its permissions in the archive.
    """

    __slots__ = "is_executable", "item", "path", "row", "sha256", "size", "start", "stored_size", "wheel"

    def __init__(self, wheel: InstallableWheel, item: ZipInfo, start: int, row: RecordRow) -> None:
        self.wheel, self.item, self.start, self.row = wheel, item, start, row
        self.path, self.size, self.stored_size = item.filename, item.file_size, item.compress_size
        self.is_executable = bool(item.external_attr >> 16 & 0o111)
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
        if (size, crc32) != (self.size, self.item.CRC):
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
        position, end = self.start, self.start + self.stored_size
        while position < end:
            chunk = self.wheel.read_at(position, min(most, end - position))
            position += len(chunk)
            yield chunk

    def _decompressed(self) -> Iterator[bytes]:
        method = self.item.compress_type
        if method not in _DECOMPRESSORS:
            yield from self._raw(CHUNK)
            return
        decompressor = _DECOMPRESSORS[method]()
        feed: Iterator[bytes] = self._raw(_FEED)
        if method == ZIP_LZMA:
            # APPNOTE 5.8.8: a version, the length of the properties (5), and these. The format "alone" has
            # the properties, then the size, of which all ones mean that there is an end mark.
            head = next(feed, b"")
            size = (1 << 64) - 1 if self.item.flag_bits & _END_MARK else self.size
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
_DECOMPRESSORS: dict[int, Callable[[], Any]] = {
    # Several times as fast as zlib.
    ZIP_DEFLATED: lambda: igzip_lib.IgzipDecompressor(igzip_lib.DECOMP_DEFLATE),
    ZIP_BZIP2: bz2.BZ2Decompressor,
    ZIP_LZMA: lambda: lzma.LZMADecompressor(lzma.FORMAT_ALONE, memlimit=64 << 20),
}


class InstallableWheel:
    """An open wheel whose hash is that of the lock. Several threads may read it at once.

    members: its files by path, in the order of the archive. info: the name of the `.dist-info` directory.
    Use it as a context manager, or call `close`.
    """

    def __init__(self, path: Path, wheel: Wheel) -> None:
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
                except FormatError as error:
                    hashed.result()
                    raise self.refused(str(error)) from None
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
            items = read_directory(self._handle, self.read_at, self._identity[2])
        except OSError as error:
            raise self._unreadable(error) from None
        self._check_paths([item for item, _ in items])
        files = {item.filename: (item, start) for item, start in items if not item.is_dir()}
        info = self._info_directory(files)
        name = f"{info}/RECORD"
        if name not in files:
            raise FormatError("it has no RECORD")
        no_hash = RecordRow()
        rows = parse_record(Member(self, *files[name], no_hash).content())
        unsigned = {name, *(f"{info}/{signature}" for signature in _SIGNATURES)}
        for path, row in rows.items():
            if path.endswith("/") or path in unsigned:
                continue
            if path not in files:
                raise FormatError(f"RECORD lists {path}, which is not in the wheel")
            size = files[path][0].file_size
            if row.size is not None and row.size != size:
                raise FormatError(f"{path} has {size} bytes, but {row.size} in RECORD")
        members = {
            path: Member(self, item, start, no_hash if path in unsigned else rows.get(path, no_hash))
            for path, (item, start) in files.items()
        }
        return members, info

    def _check_paths(self, items: Iterable[ZipInfo]) -> None:
        seen: set[str] = set()
        files: set[str] = set()
        for item in items:
            path = item.filename.removesuffix("/")
            if problem := path_problem(path):
                raise FormatError(f"the path {item.filename!r} {problem}")
            if path in seen:
                raise FormatError(f"it contains {path} twice")
            seen.add(path)
            if not item.is_dir():
                files.add(path)
        if both := directories_of(seen) & files:
            raise FormatError(f"{min(both)} is a file and a directory in it")

    def _info_directory(self, files: Iterable[str]) -> str:
        found = {top for path in files if (top := path.split("/", 1)[0]).endswith(".dist-info")}
        if len(found) != 1:
            raise FormatError(f"it has {len(found)} directories that end in .dist-info instead of one")
        info = found.pop()
        name, _, version = info.removesuffix(".dist-info").partition("-")
        try:
            is_right = Version(version) == Version(self.wheel.version)
        except ValueError:
            is_right = False
        if canonicalize_name(name) != self.wheel.name or not is_right:
            raise FormatError(f"its content is {info.removesuffix('.dist-info')}, not {self.wheel}")
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
