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
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, cast

from isal import igzip_lib
from isal.isal_zlib import crc32 as crc32_of

from .._vendor.packaging.utils import canonicalize_name
from ..errors import InputError, MissingError, ValidatorError
from ..model.spec import Wheel
from ..versions import Version, wheel_name
from .layers import directories_of, path_problem

# Read the directory of a ZIP archive strictly: an archive that two readers could understand differently is an
# error. Source: PKWARE's APPNOTE.TXT, 4.3 (structure), 4.4 (fields) and 4.5.3 (ZIP64).

STORED, DEFLATED, BZIP2, LZMA = 0, 8, 12, 14

_END = struct.Struct("<4s4H2LH")
_END64_LOCATOR = struct.Struct("<4sLQL")
_END64 = struct.Struct("<4sQ2H2L4Q")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_SATURATED_16, _SATURATED_32 = 0xFFFF, 0xFFFFFFFF
_ZIP64_EXTRA = 0x0001
#: Encryption, compression options, a data descriptor after the data, a name in UTF-8, an end mark of LZMA.
_ENCRYPTED, _OPTIONS, _DESCRIPTOR, _UTF8, _END_MARK = 1 << 0, 0b110, 1 << 3, 1 << 11, 0b10
_LARGEST_DIRECTORY = 64 << 20
#: Bytes that are read at once to find local headers.
_AHEAD = 32 << 10

#: Returns the bytes of the archive from an offset on, all that were asked for.
ReadAt = Callable[[int, int], bytes]


class ZipError(Exception):
    """The archive is broken, ambiguous or uses something that no wheel needs. The text says what."""


class Item(NamedTuple):
    """One file or directory of the archive, as its directory describes it.

    name: with `/`; a directory's ends with one. mode: permissions and type as on Unix, 0 if unknown.
    offset: of the local header. start: the offset of the compressed data; 0 until `_located` has compared the
    local header.
    """

    name: str
    raw_name: bytes
    method: int
    flags: int
    crc32: int
    compressed_size: int
    size: int
    mode: int
    offset: int
    start: int = 0

    @property
    def is_directory(self) -> bool:
        return self.name.endswith("/")

    @property
    def has_end_mark(self) -> bool:
        """True if an LZMA stream says where it ends."""
        return bool(self.flags & _END_MARK)


def read_directory(read_at: ReadAt, size: int) -> tuple[Item, ...]:
    """Return the files and directories of an archive of `size` bytes, in the order of its directory.

    Local headers agree with it, nothing overlaps and nothing comes before the first one.
    Raises ZipError.
    """
    start, end, count = _find(read_at, size)
    headers = _parse(read_at(start, end - start), count)
    read_local = _read_ahead(read_at, start)
    items: dict[int, Item] = {}
    taken = 0
    for number in sorted(range(len(headers)), key=lambda number: headers[number].offset):
        header = headers[number]
        if header.offset < taken:
            raise ZipError(f"{header.name} overlaps another file of the archive")
        if taken == 0 and header.offset:
            raise ZipError("there are bytes before the first file of the archive")
        items[number] = item = _located(read_local, header, start)
        taken = item.start + item.compressed_size
    return tuple(items[number] for number in range(len(headers)))


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


def _find(read_at: ReadAt, size: int) -> tuple[int, int, int]:
    """Return where the central directory starts and ends, and how many entries it has."""
    if size < _END.size:
        raise ZipError("it is not a ZIP archive")
    position = size - _END.size
    signature, disk, first_disk, here, count, length, start, comment = _END.unpack(
        read_at(position, _END.size)
    )
    if signature != b"PK\5\6" or comment:
        raise ZipError("it is not a ZIP archive, or there are bytes after its directory")
    end = position
    locator = b""
    if position >= _END64_LOCATOR.size:
        locator = read_at(position - _END64_LOCATOR.size, _END64_LOCATOR.size)
    if locator.startswith(b"PK\6\7"):
        _, _, end, disks = _END64_LOCATOR.unpack(locator)
        if disks != 1 or end + _END64.size != position - _END64_LOCATOR.size:
            raise ZipError("its ZIP64 record is not where it must be")
        record = _END64.unpack(read_at(end, _END64.size))
        signature, rest, _, _, disk64, first64, *large = record
        if signature != b"PK\6\6" or rest != _END64.size - 12 or disk64 or first64:
            raise ZipError("its ZIP64 record is broken")
        small = (here, count, length, start)
        limits = (_SATURATED_16, _SATURATED_16, _SATURATED_32, _SATURATED_32)
        if any(few not in (limit, many) for few, limit, many in zip(small, limits, large, strict=True)):
            raise ZipError("its two end records disagree")
        here, count, length, start = large
    if disk or first_disk or here != count:
        raise ZipError("it has several parts")
    if start + length != end:
        raise ZipError("its directory is not where its end record says")
    if length > _LARGEST_DIRECTORY:
        raise ZipError(f"its directory has {length} bytes, more than {_LARGEST_DIRECTORY}")
    return start, end, count


def _parse(directory: bytes, count: int) -> list[Item]:
    headers = []
    position = 0
    for _ in range(count):
        if position + _CENTRAL.size > len(directory):
            raise ZipError("its directory is too short")
        fields = _CENTRAL.unpack_from(directory, position)
        signature, _, _, flags, method, _, _, crc32, compressed, size = fields[:10]
        name_length, extra_length, comment_length, disk, _, attributes, offset = fields[10:]
        if signature != b"PK\1\2":
            raise ZipError("its directory is broken")
        position += _CENTRAL.size
        raw_name = directory[position : position + name_length]
        extra = directory[position + name_length : position + name_length + extra_length]
        position += name_length + extra_length + comment_length
        if position > len(directory) or disk:
            raise ZipError("its directory is broken")
        name = _name(raw_name, flags)
        if _SATURATED_32 in (size, compressed, offset):
            wide = [value == _SATURATED_32 for value in (size, compressed, offset)]
            values = iter(_zip64(extra, sum(wide), name))
            size, compressed, offset = (
                next(values) if is_wide else value
                for is_wide, value in zip(wide, (size, compressed, offset), strict=True)
            )
        if flags & _ENCRYPTED:
            raise ZipError(f"{name} is encrypted")
        if flags & ~(_OPTIONS | _DESCRIPTOR | _UTF8):
            raise ZipError(f"{name} uses features of ZIP that wheels don't have (flags {flags:#x})")
        if method not in (STORED, DEFLATED, BZIP2, LZMA):
            raise ZipError(f"{name} is compressed by method {method}, which wheels don't use")
        if method == STORED and size != compressed:
            raise ZipError(f"{name} is not compressed, but has two different sizes")
        mode = attributes >> 16
        kind, is_directory = stat.S_IFMT(mode), name.endswith("/")
        if kind == stat.S_IFLNK:
            raise ZipError(f"{name} is a symbolic link")
        if kind not in (0, stat.S_IFDIR if is_directory else stat.S_IFREG):
            raise ZipError(f"{name} is neither a regular file nor a directory, or its name does not match")
        if is_directory and size:
            raise ZipError(f"the directory {name} has content")
        headers.append(Item(name, raw_name, method, flags, crc32, compressed, size, mode, offset))
    if position != len(directory):
        raise ZipError("its directory has bytes that belong to no file")
    return headers


def _name(raw: bytes, flags: int) -> str:
    try:
        return raw.decode("utf-8" if flags & _UTF8 else "ascii")
    except UnicodeDecodeError:
        encoding = "UTF-8" if flags & _UTF8 else "ASCII, and isn't marked as UTF-8"
        raise ZipError(f"the name {raw!r} is not {encoding}") from None


def _zip64(extra: bytes, count: int, name: str) -> tuple[int, ...]:
    """Return the first `count` numbers of the ZIP64 field."""
    position = 0
    while position + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, position)
        position += 4
        if kind == _ZIP64_EXTRA and 8 * count <= length <= len(extra) - position:
            return struct.unpack_from(f"<{count}Q", extra, position)
        position += length
    raise ZipError(f"the sizes of {name} are missing")


def _located(read_at: ReadAt, header: Item, limit: int) -> Item:
    """Return the item with the offset of its data, after comparing the local header."""
    length = _LOCAL.size + len(header.raw_name)
    if header.offset + length > limit:
        raise ZipError(f"{header.name} lies outside the archive")
    local = read_at(header.offset, length)
    signature, _, flags, method, _, _, crc32, compressed, size, name_length, extra_length = (
        _LOCAL.unpack_from(local)
    )
    if signature != b"PK\3\4":
        raise ZipError(f"{header.name} is not where the directory says")
    if name_length != len(header.raw_name) or local[_LOCAL.size :] != header.raw_name:
        raise ZipError(f"{header.name} has another name in its local header")
    if method != header.method or (flags ^ header.flags) & (_ENCRYPTED | _DESCRIPTOR):
        raise ZipError(f"{header.name} is stored in another way than the directory says")
    if _SATURATED_32 in (compressed, size):
        extra = read_at(header.offset + length, extra_length)
        size, compressed = _zip64(extra, 2, header.name)
    found, promised = (crc32, compressed, size), (header.crc32, header.compressed_size, header.size)
    # With a data descriptor, the writer did not know them yet.
    if found != promised and not (flags & _DESCRIPTOR and not any(found)):
        raise ZipError(f"{header.name} has other sizes or another CRC in its local header")
    start = header.offset + length + extra_length
    if start + header.compressed_size > limit:
        raise ZipError(f"{header.name} does not end before the directory")
    return header._replace(start=start)


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
_DECOMPRESSORS: dict[int, Callable[[], Any]] = {
    # Several times as fast as zlib.
    DEFLATED: lambda: igzip_lib.IgzipDecompressor(igzip_lib.DECOMP_DEFLATE),
    BZIP2: bz2.BZ2Decompressor,
    LZMA: lambda: lzma.LZMADecompressor(lzma.FORMAT_ALONE, memlimit=64 << 20),
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
