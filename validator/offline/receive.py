"""Receive a bundle: verify its volumes as they arrive, and unpack them into a directory.

`bundle.json` names every file with its size and SHA-256, and says which parts of files each volume has.
Nothing in it is used before it was checked here. What is unpacked stands next to the directory until all of
it is there and verified, so half a bundle never looks like a whole one.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

MANIFEST, FORMAT = "bundle.json", 1
#: Where the blobs of images are. The name of each is its SHA-256.
BLOBS = "images/blobs/sha256/"
#: The only file that can be run, and with it what a bundle has.
_PROGRAM = "measure"
_TOPS = (_PROGRAM, "images", "tool", "probe", "locks", "trust", "certificates")
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+!-]{0,254}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_VOLUME = re.compile(r"volume-[0-9]{4,9}")
_LONGEST_PATH, _LARGEST_MANIFEST, _LARGEST, _LONGEST_S = 1000, 64 << 20, 1 << 50, 1e6
_KINDS = {"image": (str,), "source": (str,), "arguments": (list,), "timeout_s": (int, float),
          "challenges": (dict,), "lock": (str, type(None)), "question": (dict, type(None))}  # fmt: skip
#: The names of the volumes that were received, one a line.
_NOTES = ".received"
_BLOCK = 1 << 20
_POLL_S = 0.2
_AGAIN = "copy it again, and run the same command again: what was received stays"
_DISTRUST = "the bundle is damaged or was changed: don't use it, and write it again with `validator bundle`"


class Refused(Exception):
    """A bundle can't be received. hint: what to do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


# `bundle.json`, which is a `Bundle`.


@dataclass(frozen=True)
class Image:
    """An image in a bundle.

    image: its image spec, "" for the image of somebody else, which has neither lock nor question. source: its
    name, for people. lock, probe: paths in the bundle. arguments, timeout_s: see `ProbeRequest`. challenges:
    by the cell, or the image spec, that each was made for. question: a `pipeline.measuring.Question`.
    """

    tag: str
    digest: str
    image: str
    source: str
    lock: str | None
    probe: str
    arguments: tuple[str, ...]
    timeout_s: float
    challenges: dict[str, str]
    question: Any


@dataclass(frozen=True)
class File:
    size: int
    sha256: str


@dataclass(frozen=True)
class Volume:
    """holds: the parts of files in it, in order: path, place in the file, size."""

    name: str
    size: int
    sha256: str
    holds: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True)
class Bundle:
    """files: all but blobs, by path. hosts: the matrix's host classes, each a `pipeline.fleet.StoredHost`."""

    images: tuple[Image, ...]
    files: dict[str, File]
    volumes: tuple[Volume, ...]
    hosts: tuple[Any, ...] = ()
    format: int = FORMAT

    def every_file(self) -> dict[str, File]:
        """Return all files, blobs too. Raises ValueError if the parts of one overlap or leave gaps."""
        sizes = _sizes(self.volumes)
        blobs = (path for path in sizes if path.startswith(BLOBS))
        return {**self.files, **{path: File(sizes[path], _digest(path[len(BLOBS) :])) for path in blobs}}


def read_bundle(content: bytes) -> Bundle:
    """Parse and check `bundle.json`. Raises Refused for anything that no bundle of this tool has."""
    try:
        raw = json.loads(content)
        if raw["format"] != FORMAT:
            why = f"{MANIFEST} has format {raw['format']!r}, but this program reads format {FORMAT}"
            raise Refused(why, "use the program `measure` that is in the bundle")
        found = Bundle(
            tuple(_image(one) for one in raw["images"]),
            {path: File(_count(one["size"]), _digest(one["sha256"])) for path, one in raw["files"].items()},
            tuple(_volume(one) for one in raw["volumes"]),
            tuple(raw["hosts"]),
        )
        names = [*(volume.name for volume in found.volumes), *(image.tag for image in found.images)]
        if len(set(names)) != len(names):
            raise ValueError("two volumes or two images have the same name")
        sizes, listed = _sizes(found.volumes), found.every_file()
        for path, file in listed.items():
            parts = path.split("/")
            usual = len(path) <= _LONGEST_PATH and all(_PART.fullmatch(part) for part in parts)
            if parts[0] not in _TOPS or not usual:
                raise ValueError(f"{path[:100]!r} is not the path of a file in a bundle")
            if any("/".join(parts[:depth]) in listed for depth in range(1, len(parts))):
                raise ValueError(f"{path!r} is inside another file")
            if sizes.pop(path, None) != file.size:
                raise ValueError(f"{path!r} does not have the size of its parts")
        if sizes:
            raise ValueError(f"{min(sizes)!r} is in a volume, but not in the list of files")
        for image in found.images:
            lock = image.probe if image.lock is None and image.question is None else image.lock
            if not {lock, image.probe} <= listed.keys():
                raise ValueError(f"the lock or the probe of {image.tag} is not in the list of files")
        return found
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        why = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise Refused(f"{MANIFEST} is not valid: {why[:300]}", _DISTRUST) from None


def _image(one: dict[str, Any]) -> Image:
    kind, _, digest = one["digest"].partition(":")
    if not _PART.fullmatch(one["tag"]) or kind != "sha256":
        raise ValueError("an image has no tag or no digest")
    _digest(digest)
    for name, kinds in _KINDS.items():
        if type(one[name]) not in kinds:
            raise ValueError(f"{one['tag']}: {one[name]!r} can't be its {name}")
    texts = {type(text) for text in (*one["arguments"], *one["challenges"].values())}
    if not texts <= {str} or not 0 < one["timeout_s"] < _LONGEST_S:
        raise ValueError(f"{one['tag']} has an argument, a challenge or a limit that can't be one")
    return Image(**one)


def _volume(one: dict[str, Any]) -> Volume:
    name = one["name"]
    if not isinstance(name, str) or not _VOLUME.fullmatch(name):
        raise ValueError(f"{name!r} is not the name of a volume")
    pieces = tuple((str(path), _count(start), _count(size)) for path, start, size in one["holds"])
    if sum(size for _, _, size in pieces) != _count(one["size"]):
        raise ValueError(f"{name} does not have the size of its parts")
    return Volume(name, one["size"], _digest(one["sha256"]), pieces)


def _count(value: object) -> int:
    if type(value) is not int or not 0 <= value <= _LARGEST:
        raise ValueError(f"{value!r} is not a number of bytes")
    return value


def _digest(value: object) -> str:
    if not isinstance(value, str) or not _SHA256.fullmatch(value):
        raise ValueError(f"{value!r} is not a SHA-256")
    return value


def _sizes(volumes: tuple[Volume, ...]) -> dict[str, int]:
    """Return the size of each file. Raises ValueError if its parts overlap or leave gaps."""
    found: dict[str, int] = {}
    for path, start, size in sorted(piece for volume in volumes for piece in volume.holds):
        if start != found.get(path, 0):
            raise ValueError(f"the parts of {path!r} overlap or have gaps")
        found[path] = start + size
    return found


def receive(directory: Path, into: Path, wait: bool, say: Callable[[str], None]) -> Bundle:
    """Unpack the bundle in `directory` into the new directory `into`, and return what it has.

    wait: wait for volumes that are missing or still copied. say: gets a line for each step. What was unpacked
    before is not unpacked again, but verified: it may have come with the bundle. Raises Refused; what was
    received is kept.
    """
    content, bundle = _manifest(directory, wait, say)
    files = bundle.every_file()
    work = into.with_name(f"{into.name}.partial")
    try:
        if (into / MANIFEST).is_file() and _read(into / MANIFEST) == content:
            wrong = _foreign(into, files)
            for path, file in files.items():
                if wrong is None and _digest_of(into / path) != file.sha256:
                    wrong = path
            if wrong is not None:
                raise Refused(
                    f"{into} has this bundle's {MANIFEST}, but {wrong} does not match it",
                    "remove it, or name a new directory with --into, and receive the bundle again",
                )
            say(f"{into} has this bundle already")
            return bundle
        if into.is_symlink() or (into.exists() and (not into.is_dir() or any(into.iterdir()))):
            raise Refused(f"{into} is not an empty directory", "name a new directory with --into")
        work.mkdir(exist_ok=True)
        lock = os.open(work, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if os.fstat(lock).st_uid != os.geteuid():
                raise Refused(f"{work} belongs to another user", "name another directory with --into")
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            same = (work / MANIFEST).is_file() and _read(work / MANIFEST) == content
            if not same or _foreign(work, files) is not None:
                _clear(work)
                (work / MANIFEST).write_bytes(content)
            _Receiving(directory, work, bundle, say).run(wait)
            for path in files:
                (work / path).chmod(0o755 if path == _PROGRAM else 0o644)
            (work / _NOTES).unlink()
            os.rename(work, into)
        finally:
            os.close(lock)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _full(work) from None
        why = "another process uses it" if isinstance(error, BlockingIOError) else error.strerror
        raise Refused(f"{error.filename or work}: {why}", "name another directory with --into") from None
    say(f"received in {into}; the SHA-256 of its {MANIFEST} is {hashlib.sha256(content).hexdigest()}")
    return bundle


def _manifest(directory: Path, wait: bool, say: Callable[[str], None]) -> tuple[bytes, Bundle]:
    path, told = directory / MANIFEST, False
    while True:
        try:
            content = _read(path)
            # The beginning of an object is not JSON, so a copy is complete or can't be read.
            json.loads(content)
            return content, read_bundle(content)
        except (OSError, ValueError, RecursionError) as error:
            if not wait:
                why = error.strerror if isinstance(error, OSError) else "it is damaged or incomplete"
                raise Refused(f"{path} can't be read: {why}", _AGAIN) from None
        if not told:
            told = True
            say(f"waiting for {path}")
        time.sleep(_POLL_S)


class _Receiving:
    """The unpacking of one bundle into a directory that only this process writes to."""

    def __init__(self, directory: Path, work: Path, bundle: Bundle, say: Callable[[str], None]) -> None:
        self._directory, self._work, self._bundle, self._say = directory, work, bundle, say
        notes = work / _NOTES
        # The last line may have been cut off when the process was killed.
        noted = notes.read_text("utf-8").split("\n") if notes.exists() else []
        self._left = [volume for volume in bundle.volumes if volume.name not in noted]
        self._unverified = bundle.every_file()
        #: Size and time of the files of volumes that were damaged, by name.
        self._damaged: dict[str, tuple[int, int]] = {}

    def run(self, wait: bool) -> None:
        needed = sum(volume.size for volume in self._bundle.volumes)
        needed -= sum(path.stat().st_blocks * 512 for path in self._work.rglob("*") if path.is_file())
        free = shutil.disk_usage(self._work).free
        if needed > free:
            raise _full(self._work, f": {needed - free:,} bytes more are needed")
        self._verify_files()
        told = None
        while self._left:
            before = len(self._left)
            for volume in tuple(self._left):
                self._take(volume)
            if self._left and not wait:
                raise self._missing()
            if len(self._left) == before:
                if told != self._left[0]:
                    self._say(f"waiting for {self._left[0].name}")
                told = self._left[0]
                time.sleep(_POLL_S)

    def _take(self, volume: Volume) -> None:
        """Verify and unpack a volume, if it is there and as it should be."""
        try:
            stream = _open(self._directory / volume.name)
        except FileNotFoundError:
            return
        with stream:
            found = os.fstat(stream.fileno())
            state = (found.st_size, found.st_mtime_ns)
            if found.st_size != volume.size or self._damaged.get(volume.name) == state:
                return
            if not self._unpack(volume, stream):
                self._damaged[volume.name] = state
                self._say(f"{volume.name} is damaged, or still copied: its SHA-256 is wrong")
                return
        with (self._work / _NOTES).open("a", encoding="utf-8") as notes:
            notes.write(f"\n{volume.name}\n")
            notes.flush()
            os.fsync(notes.fileno())
        self._left.remove(volume)
        count = len(self._bundle.volumes)
        self._say(f"{volume.name} received, {count - len(self._left)} of {count}")
        self._verify_files()

    def _unpack(self, volume: Volume, stream: BinaryIO) -> bool:
        """Write the parts of a volume. Return False if its SHA-256 is wrong: then they don't count."""
        digest = hashlib.sha256()
        for name, start, size in volume.holds:
            path = self._work / name
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
            with open(handle, "wb") as target:
                target.seek(start)
                # The file may have been cut off since; then the digest differs.
                while size and (block := stream.read(min(_BLOCK, size))):
                    digest.update(block)
                    target.write(block)
                    size -= len(block)
                target.flush()
                os.fsync(handle)
        return digest.hexdigest() == volume.sha256

    def _verify_files(self) -> None:
        """Verify each file whose volumes are all there. Raises Refused if one has another digest."""
        waiting = {name for volume in self._left for name, _, _ in volume.holds}
        for path in self._unverified.keys() - waiting:
            if _digest_of(self._work / path) != self._unverified.pop(path).sha256:
                _clear(self._work)
                raise Refused(f"{path} does not have the SHA-256 that {MANIFEST} says", _DISTRUST)

    def _missing(self) -> Refused:
        found = []
        for volume in self._left:
            path = self._directory / volume.name
            size = path.stat().st_size if path.exists() else None
            damaged, short = "is damaged: its SHA-256 is wrong", f"has {size} of {volume.size} bytes"
            why = damaged if size == volume.size else short
            found.append(f"{volume.name} {'is missing' if size is None else why}")
        what = f"{len(found)} of {len(self._bundle.volumes)} volumes can't be received: {'; '.join(found)}"
        return Refused(what, _AGAIN if len(found) == 1 else _AGAIN.replace("copy it", "copy them"))


def _foreign(directory: Path, files: dict[str, File]) -> str | None:
    """Return the path of something that no bundle unpacks, such as a link, or None."""
    known = {MANIFEST, _NOTES, *files}
    for path in directory.rglob("*"):
        name = path.relative_to(directory).as_posix()
        expected = path.is_dir() or (path.is_file() and name in known)
        # `./measure` works in such directories.
        if not name.startswith("measuring-") and (path.is_symlink() or not expected):
            return name
    return None


def _digest_of(path: Path) -> str:
    digest = hashlib.sha256()
    with _open(path) as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _clear(directory: Path) -> None:
    for path in directory.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _open(path: Path) -> BinaryIO:
    """Open a regular file. A link or a pipe, which somebody may have put there, is an error."""
    stream = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return stream


def _read(path: Path) -> bytes:
    with _open(path) as stream:
        content = stream.read(_LARGEST_MANIFEST + 1)
    if len(content) > _LARGEST_MANIFEST:
        raise OSError(errno.EFBIG, "it is too large", str(path))
    return content


def _full(work: Path, amount: str = "") -> Refused:
    return Refused(
        f"no space left on the disk that holds {work}{amount}",
        "free some space, or name a directory on another disk with --into, and run the same command again:"
        " what was received stays",
    )
