"""Put the files of several wheels together, as they are in one environment."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from ..errors import InputError
from .entries import Content, Entry
from .paths import directories_of
from .wheel import refusal

_DIRECTORY_MODE = 0o755

#: The SHA-256 of each file, by path.
Contents = Mapping[str, str]


def merged(parts: Iterable[tuple[str, Iterable[Entry]]]) -> list[Entry]:
    """Return the entries of several wheels with their directories, in the order of a layer.

    parts: the name of each wheel, and its entries. A file that several have with the same content is there
    once. Raises InputError with both names if they have it with different content.
    """
    owners: dict[str, tuple[str, Entry]] = {}
    for name, some in parts:
        for entry in some:
            if entry.path not in owners:
                owners[entry.path] = (name, entry)
            elif not _same(owners[entry.path][1], entry):
                raise _conflict(owners[entry.path][0], name, entry.path)
    directories = directories_of(owners)
    for path in directories & owners.keys():
        name, entry = owners[path]
        if entry.content is not None or entry.link is not None:
            other = next(owner for below, (owner, _) in owners.items() if below.startswith(f"{path}/"))
            raise refusal(f"{name} and {other}", f"{path} is a file in one and a directory in the other")
    everything = {path: Entry(path, _DIRECTORY_MODE) for path in directories}
    everything.update((path, entry) for path, (_, entry) in owners.items())
    return [everything[path] for path in sorted(everything)]


def contents_of(entries: Iterable[Entry]) -> Contents:
    """Return what the files of a wheel contain."""
    return {entry.path: _digest(entry.content) for entry in entries if entry.content is not None}


def check_no_conflict(parts: Iterable[tuple[str, Contents]]) -> None:
    """Raise InputError if two wheels have a file with different content. parts: as in `merged`."""
    owners: dict[str, tuple[str, str]] = {}
    for name, contents in parts:
        for path, digest in contents.items():
            other, expected = owners.setdefault(path, (name, digest))
            if digest != expected:
                raise _conflict(other, name, path)


def _conflict(one: str, other: str, path: str) -> InputError:
    return refusal(
        f"{one} and {other}",
        f"both contain {path}, with different content",
        "leave out one of the two packages, or lock releases that agree",
    )


def _same(one: Entry, other: Entry) -> bool:
    if one.content is None or other.content is None:
        return one == other
    # Permissions don't matter: the first wheel's count.
    return one.content.size == other.content.size and _digest(one.content) == _digest(other.content)


def _digest(content: Content) -> str:
    if content.sha256 is not None:
        return content.sha256
    hashing = hashlib.sha256()
    for chunk in content.chunks():
        hashing.update(chunk)
    return hashing.hexdigest()
