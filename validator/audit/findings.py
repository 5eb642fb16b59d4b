"""Match packages against a database, with one finding for each vulnerability of a package."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from ..errors import InputError
from .affected import fixed_in, is_affected, key_of, keys_of, newest
from .listed_packages import Audited, Listed
from .osv import HINT, Entry, Reading, read_database
from .severity import Rating, rating

#: Names in the order in which people know them best.
_ORDER = ("CVE-", "GHSA-", "PYSEC-", "DEBIAN-CVE-")
#: Debian's name of what it knows of one CVE.
_OF_ONE = re.compile(r"DEBIAN-(CVE-\d+-\d+)")


@dataclass(frozen=True)
class Finding:
    """A vulnerability of a package.

    packages: the names of the installed packages, which have the same source. ids: all its names, the best
    known first. fixed: the first version with a fix, of the source package, or None if there is none yet.
    """

    ecosystem: str
    name: str
    version: str
    packages: tuple[str, ...]
    ids: tuple[str, ...]
    rating: Rating
    fixed: str | None
    summary: str

    @property
    def sort_key(self) -> tuple[object, ...]:
        return (-self.rating, self.ecosystem, self.name, self.ids)


@dataclass(frozen=True)
class Audit:
    """The result of an audit.

    undecided: ids of entries whose versions can't be compared with that of an installed package.
    newest: when the last entry of the database was changed.
    """

    findings: tuple[Finding, ...]
    listed: Listed
    read: int
    newest: datetime
    unreadable: int
    faults: tuple[str, ...]
    undecided: tuple[str, ...]


@dataclass(frozen=True)
class _Match:
    """An entry that affects a package."""

    entry: Entry
    rating: Rating
    fixed: str | None

    @property
    def names(self) -> frozenset[str]:
        """The names of this one vulnerability."""
        known = {self.entry.id, *(self.entry.aliases or ())}
        if of_one := _OF_ONE.fullmatch(self.entry.id):
            known.add(of_one[1])
        return frozenset(known)

    @property
    def covers(self) -> frozenset[str]:
        """The vulnerabilities that an advisory is about, which are not its other names."""
        return frozenset(self.entry.upstream or ()) - self.names


def audit(listed: Listed, database: Path) -> Audit:
    """Match the packages of an image against a database.

    Raises InputError if it has no entries, or none about an ecosystem of the packages.
    """
    keys: dict[tuple[str, str], list[Audited]] = defaultdict(list)
    for package in listed.audited:
        for key in keys_of(package):
            keys[key].append(package)

    def is_wanted(entry: Entry) -> bool:
        return any(one.package and key_of(one.package) in keys for one in entry.affected or ())

    reading = read_database(database, is_wanted)
    if missing := _missing(listed, reading):
        why = f" ({reading.faults[0]})" if reading.faults else ""
        raise InputError(
            f"{database}: the database has no entries about {' and '.join(missing)}, so it can't say what is"
            f" known about these packages of the image{why}",
            hint=HINT,
        )
    findings, undecided = _matched(reading, keys)
    assert reading.newest is not None
    return Audit(
        tuple(sorted(findings, key=lambda one: one.sort_key)),
        listed,
        reading.read,
        reading.newest,
        reading.unreadable,
        tuple(reading.faults),
        tuple(sorted(undecided)),
    )


def _missing(listed: Listed, reading: Reading) -> list[str]:
    """Return the ecosystems of packages about which the database has no entries under any of their names."""
    return sorted(
        {
            package.ecosystem
            for package in listed.audited
            if not any(ecosystem in reading.ecosystems for ecosystem, _ in keys_of(package))
        }
    )


def _matched(reading: Reading, keys: dict[tuple[str, str], list[Audited]]) -> tuple[list[Finding], set[str]]:
    # Packages with the same source of the same version have the same vulnerabilities.
    matches: dict[tuple[str, str, str], dict[str, _Match]] = defaultdict(dict)
    shown: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    undecided = set()
    for entry in reading.entries.values():
        for affected in entry.affected or ():
            for package in keys.get(key_of(affected.package), ()) if affected.package else ():
                place = (package.ecosystem, package.name, package.version)
                try:
                    if not is_affected(package.version, affected, package.ecosystem):
                        continue
                    fixed = fixed_in(package.version, affected, package.ecosystem)
                except ValueError:
                    undecided.add(entry.id)
                    continue
                shown[place].add(package.shown)
                before = matches[place].get(entry.id)
                found = _Match(entry, rating(entry, affected), fixed)
                if before is None or before.rating < found.rating:
                    matches[place][entry.id] = found
    findings = [
        _finding(place, shown[place], group)
        for place, found in matches.items()
        for group in _groups(list(found.values()))
    ]
    return findings, undecided


def _groups(matches: Sequence[_Match]) -> Iterator[list[_Match]]:
    """Yield the matches that are about the same vulnerability.

    An advisory about several of them joins each, and is on its own only if one of them has no entry.
    """
    single = [one for one in matches if not one.covers]
    groups: list[tuple[set[str], list[_Match]]] = []
    for one in single:
        names, members = set(one.names), [one]
        for group in [group for group in groups if group[0] & names]:
            names |= group[0]
            members += group[1]
            groups.remove(group)
        groups.append((names, members))
    known = {name for names, _ in groups for name in names}
    for one in matches:
        if not one.covers:
            continue
        for names, members in groups:
            if names & one.covers:
                members.append(one)
        if not one.covers <= known:
            groups.append((set(one.names), [one]))
    for _, members in groups:
        yield members


def _finding(place: tuple[str, str, str], packages: Iterable[str], group: list[_Match]) -> Finding:
    ecosystem, name, version = place
    fixes = [one.fixed for one in group if one.fixed is not None]
    ids = {name for one in group for name in one.names}
    # The entry that describes it, and not an advisory about several.
    summary = next((one.entry.summary for one in group if one.entry.summary and not one.covers), None)
    return Finding(
        ecosystem, name, version,
        tuple(sorted(packages)),
        tuple(sorted(ids, key=_identifier_order)),
        max(one.rating for one in group),
        newest(fixes, ecosystem) if fixes else None,
        summary or next((one.entry.summary for one in group if one.entry.summary), None) or "",
    )  # fmt: skip


def _identifier_order(name: str) -> tuple[int, str]:
    place = next((number for number, prefix in enumerate(_ORDER) if name.startswith(prefix)), len(_ORDER))
    return place, name
