"""Read the metadata and the shared libraries of a wheel, without installing or running anything."""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import re
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path

from ...errors import MissingError
from .elf import ElfFile, InspectionError, is_elf

_SHARED_LIBRARY = re.compile(r"\.so(\.[0-9]+)*$")


class WheelFile:
    """An open wheel. Raises InspectionError if the file is not a complete wheel."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._archive = zipfile.ZipFile(path)
        except FileNotFoundError:
            raise MissingError(f"{path}: no such file") from None
        except zipfile.BadZipFile:
            raise InspectionError(f"{path}: not a wheel, or cut short: it has no zip directory") from None

    def __enter__(self) -> WheelFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._archive.close()

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self.path.stat().st_size

    def sha256(self) -> str:
        """Return the hex digest of the file, as in the index and in lock files."""
        digest = hashlib.sha256()
        with self.path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
        return digest.hexdigest()

    def metadata(self) -> Message:
        """Return the core metadata (PEP 566) as headers."""
        names = [
            name for name in self._archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name)
        ]
        if len(names) != 1:
            raise InspectionError(
                f"{self.path}: not a wheel: {len(names)} METADATA files where 1 is expected"
            )
        return HeaderParser().parsestr(self.read(names[0]).decode("utf-8"))

    def read(self, member: str) -> bytes:
        """Return the content of one member. Raises InspectionError if it is absent or damaged."""
        try:
            return self._archive.read(member)
        except KeyError:
            raise InspectionError(f"{self.path}: has no {member}") from None
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise InspectionError(f"{self.path}: {member} is damaged: {error}") from None

    def libraries(self, scratch: Path | None = None) -> Iterator[tuple[str, ElfFile]]:
        """Each shared library, as (member name, parsed file), valid until the next one is requested.

        scratch: a folder with room for the largest library unpacked (TensorFlow: 1.5 GB); the system's
            temporary folder if None.
        """
        for member in sorted(self._archive.namelist()):
            if not _SHARED_LIBRARY.search(member):
                continue
            with self._mapped(member, scratch) as content:
                if is_elf(content):
                    yield member, ElfFile(content, member)

    @contextlib.contextmanager
    def _mapped(self, member: str, scratch: Path | None) -> Iterator[mmap.mmap | bytes]:
        """Unpack a member into a file without a name and map it, so that a gigabyte takes no memory."""
        with tempfile.TemporaryFile(dir=scratch) as file:
            try:
                with self._archive.open(member) as packed:
                    shutil.copyfileobj(packed, file, 1 << 20)
            except (zipfile.BadZipFile, zlib.error, EOFError) as error:
                raise InspectionError(f"{self.path}: {member} is damaged: {error}") from None
            file.flush()
            if file.tell() == 0:
                yield b""
                return
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                yield content
