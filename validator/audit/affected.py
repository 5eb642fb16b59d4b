"""Decide whether a version is affected, by the rules of OSV
(https://ossf.github.io/osv-schema/#evaluation).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from .._vendor.packaging.utils import canonicalize_name
from ..versions import DebianVersion, Version
from .listed_packages import DEBIAN, PYPI, Audited
from .osv import Affected, Event, Package, Range

#: Before every version.
_FIRST = "0"
#: A limit that is after every version.
_NO_LIMIT = "*"

#: Reads a version of an ecosystem. Raises ValueError for text that is not one.
Reader = Callable[[str], Any]


def key_of(named: Package) -> tuple[str, str]:
    """Return what a database's name of a package is looked up by."""
    return (PYPI, canonicalize_name(named.name)) if named.ecosystem == PYPI else (named.ecosystem, named.name)


def keys_of(package: Audited) -> tuple[tuple[str, str], ...]:
    """Return the names that a database may use for a package.

    An ecosystem without a release, `Debian`, is about every release.
    """
    own = (package.ecosystem, package.name)
    return (own,) if package.ecosystem == PYPI else (own, (DEBIAN, package.name))


def is_affected(version: str, affected: Affected, ecosystem: str) -> bool:
    """Return True if a version is one of those that are affected.

    Raises ValueError if that can't be decided: an event is not a version of the ecosystem.
    """
    if _is_listed(version, affected.versions or (), _reader(ecosystem)):
        return True
    return any(_in_range(version, one, _reader(ecosystem)) for one in _ranges(affected))


def fixed_in(version: str, affected: Affected, ecosystem: str) -> str | None:
    """Return the first version after this one in which it is fixed, or None if there is none yet."""
    read = _reader(ecosystem)
    later = []
    for one in _ranges(affected):
        if not _in_range(version, one, read):
            continue
        for event in one.events:
            if event.fixed is not None and _order(read, event.fixed, version) > 0:
                later.append(event.fixed)
    return min(later, key=read) if later else None


def newest(versions: Iterable[str], ecosystem: str) -> str:
    """Return the newest of some versions that `fixed_in` returned."""
    return max(versions, key=_reader(ecosystem))


def _ranges(affected: Affected) -> list[Range]:
    # Commits of a repository say nothing about packages.
    return [one for one in affected.ranges or () if one.type == "ECOSYSTEM"]


def _reader(ecosystem: str) -> Reader:
    return Version if ecosystem == PYPI else DebianVersion.parse


def _is_listed(version: str, versions: tuple[str, ...], read: Reader) -> bool:
    if version in versions:
        return True
    try:
        wanted = read(version)
    except ValueError:
        return False
    for one in versions:
        try:
            if read(one) == wanted:
                return True
        except ValueError:
            continue
    return False


def _in_range(version: str, one: Range, read: Reader) -> bool:
    """Return True if a version is between the events of a range. Raises ValueError."""
    limits = [event.limit for event in one.events if event.limit is not None]
    if limits and not any(limit == _NO_LIMIT or _order(read, version, limit) < 0 for limit in limits):
        return False
    vulnerable = False
    for event in sorted(one.events, key=lambda event: _place(event, read)):
        if event.introduced is not None:
            vulnerable = vulnerable or _order(read, version, event.introduced) >= 0
        elif event.fixed is not None:
            vulnerable = vulnerable and _order(read, version, event.fixed) < 0
        elif event.last_affected is not None:
            vulnerable = vulnerable and _order(read, version, event.last_affected) <= 0
    return vulnerable


def _place(event: Event, read: Reader) -> tuple[int, Any]:
    text = event.introduced or event.fixed or event.last_affected or event.limit or _FIRST
    if text == _FIRST:
        return (0, 0)
    return (2, 0) if text == _NO_LIMIT else (1, read(text))


def _order(read: Reader, one: str, other: str) -> int:
    """Return the order of two versions: negative, zero or positive. Raises ValueError for another text."""
    if _FIRST in (one, other):
        return (other == _FIRST) - (one == _FIRST)
    first, second = read(one), read(other)
    return int(first > second) - int(first < second)
