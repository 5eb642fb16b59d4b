"""Put the files of several wheels together, as they are in one environment."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from .entries import Content, Entry
from .paths import directories_of
from .wheel import refusal

_DIRECTORY_MODE = 0o755


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
                other = owners[entry.path][0]
                raise refusal(
                    f"{other} and {name}",
                    f"both contain {entry.path}, with different content",
                    "leave out one of the two packages, or lock releases that agree",
                )
    directories = directories_of(owners)
    for path in directories & owners.keys():
        name, entry = owners[path]
        if entry.content is not None or entry.link is not None:
            other = next(owner for below, (owner, _) in owners.items() if below.startswith(f"{path}/"))
            raise refusal(f"{name} and {other}", f"{path} is a file in one and a directory in the other")
    everything = {path: Entry(path, _DIRECTORY_MODE) for path in directories}
    everything.update((path, entry) for path, (_, entry) in owners.items())
    return [everything[path] for path in sorted(everything)]


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
