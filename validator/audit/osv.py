"""Read vulnerabilities in the format OSV (https://ossf.github.io/osv-schema/), one at a time.

A database is what osv.dev publishes: `all.zip` of an ecosystem or of all of them, the unpacked files, or both
in one directory. It has hundreds of thousands of entries, so only those about wanted packages are kept.
"""

from __future__ import annotations

import lzma
import os
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from ..errors import InputError
from ..model.timestamps import parse_timestamp

#: Bytes of one entry. The largest that osv.dev has are a few megabytes.
LARGEST = 32 << 20
#: Bytes of all entries of a database, when they are decompressed. osv.dev has less than 10 GiB in all.
LARGEST_DATABASE = 64 << 30
#: Entries in one archive. osv.dev has less than a million in all.
MOST_ENTRIES = 4_000_000
#: Faults that are shown; the others are counted.
_SHOWN = 3
_ZIP = b"PK\x03\x04"
_TOO_LARGE = f"it is larger than {LARGEST >> 20} MiB"
#: What the standard library raises for what is damaged, encrypted or compressed in an unknown way.
#: NotImplementedError is a RuntimeError.
_DAMAGED = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError, OSError, ValueError)
#: How to get a database.
HINT = (
    "download the archive of each ecosystem, such as"
    " https://osv-vulnerabilities.storage.googleapis.com/PyPI/all.zip and"
    " https://osv-vulnerabilities.storage.googleapis.com/Debian/all.zip, and name the directory with them"
)


class Event(msgspec.Struct, frozen=True):
    """A version at which something changes. Exactly one of the fields is set."""

    introduced: str | None = None
    fixed: str | None = None
    last_affected: str | None = None
    limit: str | None = None


class Range(msgspec.Struct, frozen=True):
    """Affected versions between events."""

    type: str
    events: tuple[Event, ...] = ()


class Package(msgspec.Struct, frozen=True):
    """A package. ecosystem: such as `PyPI` or `Debian:12`."""

    ecosystem: str
    name: str


class Severity(msgspec.Struct, frozen=True):
    """A rating. type: such as `CVSS_V3`. score: for that, a vector."""

    type: str
    score: str


class Specific(msgspec.Struct, frozen=True):
    """The fields that GitHub's and Debian's databases add."""

    severity: Any = None
    urgency: Any = None


class Affected(msgspec.Struct, frozen=True):
    """A package with its affected versions."""

    package: Package | None = None
    ranges: tuple[Range, ...] | None = None
    versions: tuple[str, ...] | None = None
    severity: tuple[Severity, ...] | None = None
    ecosystem_specific: Specific | None = None
    database_specific: Specific | None = None


class Entry(msgspec.Struct, frozen=True):
    """One vulnerability as one database describes it."""

    id: str
    modified: str
    withdrawn: str | None = None
    aliases: tuple[str, ...] | None = None
    upstream: tuple[str, ...] | None = None
    summary: str | None = None
    affected: tuple[Affected, ...] | None = None
    severity: tuple[Severity, ...] | None = None
    database_specific: Specific | None = None


_DECODER = msgspec.json.Decoder(Entry)


@dataclass
class Reading:
    """The entries read from a database.

    entries: those that were wanted, by id. changed, withdrawn: when they and the withdrawn ones were changed.
    ecosystems: those of all entries. read: the number of all entries. newest: when the last of them was
    changed. unreadable: the number of files that are not entries. faults: the first of them, with the reason.
    """

    entries: dict[str, Entry] = field(default_factory=dict)
    changed: dict[str, datetime] = field(default_factory=dict)
    withdrawn: dict[str, datetime] = field(default_factory=dict)
    ecosystems: set[str] = field(default_factory=set)
    read: int = 0
    newest: datetime | None = None
    unreadable: int = 0
    faults: list[str] = field(default_factory=list)


def read_database(path: Path, wanted: Callable[[Entry], bool]) -> Reading:
    """Return the wanted entries of a database: a file, an archive, or a directory with any of these.

    Entries that can't be read are counted. Raises InputError if there is none that can be read, or if it is
    too large.
    """
    found = Reading()
    total = 0
    for name, content in _files(path):
        if isinstance(content, str):
            _note(found, name, content)
            continue
        total += len(content)
        if total > LARGEST_DATABASE:
            raise InputError(
                f"{path}: the database is larger than {LARGEST_DATABASE >> 30} GiB", hint="use a smaller one"
            )
        _add(found, name, content, wanted)
    if not found.read:
        why = f": {found.faults[0]}" if found.faults else ""
        raise InputError(f"{path}: no vulnerability in the format OSV was found{why}", hint=HINT)
    for name, modified in found.withdrawn.items():
        # Another file may have an older or a newer state of the same entry.
        if name in found.entries and found.changed[name] <= modified:
            del found.entries[name]
    return found


def _add(found: Reading, name: str, content: bytes, wanted: Callable[[Entry], bool]) -> None:
    try:
        # Not the project's own reader: a database has a thousand times more documents than anything else
        # here, and this one skips what has no type without making a value of it.
        entry = _DECODER.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        _note(found, name, f"it is not an entry of OSV: {error}")
        return
    modified = parse_timestamp(entry.modified)
    if modified is None:
        _note(found, name, "its time of modification is not a timestamp")
        return
    found.read += 1
    found.newest = max(found.newest or modified, modified)
    found.ecosystems.update(one.package.ecosystem for one in entry.affected or () if one.package)
    if entry.withdrawn is not None:
        found.withdrawn[entry.id] = max(found.withdrawn.get(entry.id, modified), modified)
    elif wanted(entry) and (entry.id not in found.changed or found.changed[entry.id] < modified):
        found.entries[entry.id] = entry
        found.changed[entry.id] = modified


def _note(found: Reading, name: str, why: str) -> None:
    found.unreadable += 1
    if len(found.faults) < _SHOWN:
        found.faults.append(f"{name}: {why[:200]}")


def _files(path: Path) -> Iterator[tuple[str, bytes | str]]:
    """Yield the name of each file of a database with its content, or with the reason why it has none."""
    try:
        if path.is_dir():
            for directory, names, files in os.walk(path, onerror=_fail):
                names.sort()
                for name in sorted(files):
                    if name.endswith((".json", ".zip")):
                        yield from _file(Path(directory, name))
        elif stat.S_ISREG(path.stat().st_mode):
            yield from _file(path)
        else:
            raise InputError(f"{path}: is neither a file nor a directory", hint=HINT)
    except OSError as error:
        raise InputError(f"{error.filename or path}: can't be read: {error.strerror}", hint=HINT) from error


def _fail(error: OSError) -> None:
    """Pass on an error that `os.walk` would ignore: what is in that directory would be missing."""
    raise error


def _file(path: Path) -> Iterator[tuple[str, bytes | str]]:
    # A pipe or a device has no end.
    if not path.is_file():
        yield str(path), "it is not a regular file"
        return
    with path.open("rb") as stream:
        if stream.read(4) == _ZIP:
            yield from _archive(path)
            return
        stream.seek(0)
        content = stream.read(LARGEST + 1)
    yield str(path), content if len(content) <= LARGEST else _TOO_LARGE


def _archive(path: Path) -> Iterator[tuple[str, bytes | str]]:
    try:
        archive = zipfile.ZipFile(path)
    except _DAMAGED as error:
        yield str(path), f"the archive is damaged: {error}"
        return
    with archive:
        members = [one for one in archive.infolist() if one.filename.endswith(".json")]
        if len(members) > MOST_ENTRIES:
            raise InputError(f"{path}: the archive has more than {MOST_ENTRIES} files")
        for member in members:
            name = f"{path}/{member.filename}"
            try:
                with archive.open(member) as stream:
                    # Whatever size the archive claims.
                    content = stream.read(LARGEST + 1)
            except _DAMAGED as error:
                yield name, f"it can't be unpacked: {error}"
                continue
            yield name, content if len(content) <= LARGEST else _TOO_LARGE
