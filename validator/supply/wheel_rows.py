"""Download the wheel of a release, inspect it, and keep the row; one wheel at a time.

A wheel stays in the cache only until it is inspected, and its row until the facts have it. So a run that was
killed goes on where it stopped.
"""

from __future__ import annotations

import datetime
import hashlib
import shutil
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import yaml

from ..compat import inspect
from ..compat.inspect import rows
from ..compat.inspect.build import inspect_tensorflow
from ..errors import MissingError
from ..locks.index import IndexFile, PackageIndex, sha256_of
from ..system.files import full_disk_named, write_atomically
from .news import NewRelease

#: The disk space for a wheel and its largest library unpacked, as a multiple of the wheel's size. For
#: TensorFlow 2.21.0 it is 2.6, of which the library takes 1.6.
_ROOM = 3.0
#: The size of a wheel if neither the index nor the server says it: none of TensorFlow's is larger so far.
_USUAL_SIZE = 700_000_000


def bytes_needed(index: PackageIndex, wheel: IndexFile) -> int:
    """Return the bytes of disk space to inspect a wheel."""
    return int((index.size(wheel) or _USUAL_SIZE) * _ROOM)


def refuse_small_disk(index: PackageIndex, wheels: Iterable[IndexFile], directory: Path) -> int:
    """Return the bytes that the largest of these wheels needs in a directory, 0 without wheels.

    Raises MissingError if they are not free.
    """
    wanted = max((bytes_needed(index, wheel) for wheel in wheels), default=0)
    with full_disk_named(directory):
        directory.mkdir(parents=True, exist_ok=True)
    _refuse_small_disk(directory, wanted, f"{wanted / 1e9:.1f} GB are needed to download and inspect a wheel")
    return wanted


def inspected_row(
    index: PackageIndex,
    release: NewRelease,
    directory: Path,
    today: datetime.date,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Return the row of builds.yaml for a release.

    directory: where the wheel and the row are kept. Raises MissingError if the wheel can't be downloaded, and
    InspectionError if it is not a TensorFlow wheel.
    """
    wheel = release.wheel
    kept = directory / f"{wheel.filename}-{_version_of_inspection()}.yaml"
    if kept.is_file():
        say(f"{wheel.filename}: inspected by an earlier run")
        return _read(kept)
    path = directory / wheel.filename
    if not (path.is_file() and sha256_of(path) == wheel.sha256):
        size = index.size(wheel)
        say(f"{wheel.filename}: downloading" + (f" {size / 1e6:,.0f} MB" if size else ""))
        index.download(wheel, path)
    try:
        _refuse_large_library(path, directory)
        say(f"{wheel.filename}: inspecting")
        with full_disk_named(directory):
            row = rows.row(inspect_tensorflow(path, scratch=directory), today)
        write_atomically(kept, rows.render(row).encode())
    finally:
        path.unlink()
    return _read(kept)


def remove_unwanted(directory: Path, wanted: Iterable[IndexFile]) -> None:
    """Remove what earlier runs left of wheels that are not wanted any more."""
    names = tuple(wheel.filename for wheel in wanted)
    for path in directory.glob("*.whl*"):
        if not path.name.startswith(names):
            path.unlink()


def _refuse_large_library(path: Path, directory: Path) -> None:
    """Raise MissingError if the largest library of a wheel does not fit on the disk."""
    try:
        with zipfile.ZipFile(path) as archive:
            largest = max((member.file_size for member in archive.infolist()), default=0)
    except zipfile.BadZipFile:
        # The inspection says what is wrong with the file.
        return
    use = f"the largest library of {path.name} takes {largest / 1e9:.1f} GB unpacked"
    _refuse_small_disk(directory, largest, use)


def _refuse_small_disk(directory: Path, wanted: int, use: str) -> None:
    """Raise MissingError if so many bytes are not free. use: what they are for, as a clause."""
    free = shutil.disk_usage(directory).free
    if wanted > free:
        raise MissingError(
            f"{directory}: {use}, but only {free / 1e9:.1f} GB are free",
            hint="free some space, or set VALIDATOR_CACHE to a directory on another disk",
        )


def _read(kept: Path) -> dict[str, Any]:
    found: list[dict[str, Any]] = yaml.safe_load(kept.read_text(encoding="utf-8"))
    return found[0]


def _version_of_inspection() -> str:
    """Return a text that changes with the inspection's code, because new code may make another row."""
    digest = hashlib.sha256()
    for source in sorted(Path(inspect.__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:12]
