"""Read lock files: uv.lock, poetry.lock, pdm.lock and pylock.toml (PEP 751)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..model.finding import Place
from . import markers
from .environment import Environment, Pin, Stated, normalized, specifier
from .source_file import Source, read_source
from .toml_places import Places, parse

#: Where a package comes from if not from an index.
_ELSEWHERE = ("git", "url", "directory", "path", "vcs", "archive")
#: The sources of a project's own packages in uv.lock.
_OWN = ("virtual", "editable", "workspace")
#: A lock may be that of this many projects.
MAX_PROJECTS = 200
#: The groups that are always installed: Poetry's, and PDM's.
_ALWAYS = frozenset({"main", "default"})


@dataclass(frozen=True)
class _Locked:
    """One package of a lock. place: that of its version."""

    name: str
    entry: Mapping[str, Any]
    place: Place


def environments(path: Path) -> tuple[list[Environment], list[Source]]:
    """Return what a lock installs, with each extra and each group.

    Raises InputError for a file that can't be read or is not TOML. A package that is locked in several
    versions has an unknown version, because its conditions decide.
    """
    source = read_source(path)
    document, places = parse(source)
    table = "packages" if "packages" in document else "package"
    packages = document.get(table)
    locked = [
        _Locked(normalized(entry["name"]), entry, places.key(table, "version", position))
        for position, entry in enumerate(packages if isinstance(packages, list) else ())
        if isinstance(entry, dict) and isinstance(entry.get("name"), str)
    ]
    python = _python(document, places)
    pythons = markers.pythons(python.value if python else ">=2")
    pins = _pins(locked, pythons)
    return [
        Environment(
            tuple(pins[one] for one in packages if one in pins), python=python, complete=True, name=name
        )
        for name, packages in _installed_together(locked)
    ], [source]


def _pins(locked: Sequence[_Locked], pythons: tuple[str, ...]) -> dict[str, Pin]:
    """Return the pin of each package that may be installed on the machines that this project is about."""
    pins: dict[str, Pin] = {}
    for one in locked:
        version, marker = one.entry.get("version"), one.entry.get("marker", one.entry.get("markers"))
        source = one.entry.get("source")
        holds = markers.holds(marker, pythons) if isinstance(marker, str) and marker else marker in (None, "")
        if holds is False and marker is not None and isinstance(marker, str):
            continue
        known = holds and isinstance(version, str) and not one.entry.get("optional")
        if any(key in one.entry or (isinstance(source, dict) and key in source) for key in _ELSEWHERE):
            known = False
        known = known and one.name not in pins
        pins[one.name] = Pin(one.name, specifier(f"=={version}") if known else None, one.place)
    return pins


def _installed_together(locked: Sequence[_Locked]) -> Iterator[tuple[str, Iterable[str]]]:
    """Yield the name of each extra or group, and the names of the packages that are installed with it."""
    own = [one for one in locked if _is_own(one)]
    if own:
        yield from _of_uv(locked, own)
        return
    groups = {one.name: _groups(one.entry) for one in locked}
    others = sorted({group for found in groups.values() for group in found} - _ALWAYS)
    for group in ["", *others]:
        yield group, [name for name, found in groups.items() if not found or found & (_ALWAYS | {group})]


def _groups(entry: Mapping[str, Any]) -> frozenset[str]:
    groups = entry.get("groups")
    return (
        frozenset(one for one in groups if isinstance(one, str)) if isinstance(groups, list) else frozenset()
    )


def _is_own(one: _Locked) -> bool:
    source = one.entry.get("source")
    return isinstance(source, dict) and any(key in source for key in _OWN)


def _of_uv(locked: Sequence[_Locked], own: Sequence[_Locked]) -> Iterator[tuple[str, Iterable[str]]]:
    """Yield what each package of the project installs: by itself, with each extra, and with each group.

    Only for the one at the root of the project, the names are those of its extras and groups.
    """
    if len(own) > MAX_PROJECTS:
        raise InputError(f"{own[0].place.file} has more than {MAX_PROJECTS} projects, so it is not checked")
    by_name = {one.name: one for one in locked}
    for project in own:
        base = _references(project.entry.get("dependencies"))
        additions = [
            (name, _references(references))
            for section in ("optional-dependencies", "dev-dependencies")
            for name, references in _table(project.entry.get(section)).items()
        ]
        member = "" if "." in _table(project.entry.get("source")).values() else f"package {project.name} "
        for name, added in [("", []), *additions]:
            yield f"{member}{name}", _reachable([*base, *added], by_name)


def _reachable(wanted: Sequence[tuple[str, frozenset[str]]], by_name: Mapping[str, _Locked]) -> list[str]:
    """Return the names of packages, given with their extras, and of everything that they need."""
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = list(wanted)
    while waiting:
        name, extras = waiting.pop()
        if (name, extras) in seen or name not in by_name:
            continue
        seen.add((name, extras))
        entry = by_name[name].entry
        waiting += _references(entry.get("dependencies"))
        optional = _table(entry.get("optional-dependencies"))
        for extra in extras:
            waiting += _references(optional.get(extra))
    return sorted({name for name, _ in seen})


def _references(given: object) -> list[tuple[str, frozenset[str]]]:
    """Return the names and extras of the packages that an entry of uv.lock refers to."""
    found = []
    for one in given if isinstance(given, list) else ():
        if not isinstance(one, dict) or not isinstance(one.get("name"), str):
            continue
        marker = one.get("marker")
        if isinstance(marker, str) and markers.holds(marker, ()) is False:
            continue
        extras = one.get("extra")
        found.append((normalized(one["name"]), frozenset(extras if isinstance(extras, list) else ())))
    return found


def _python(document: Mapping[str, Any], places: Places) -> Stated | None:
    requires = document.get("requires-python")
    if isinstance(requires, str) and specifier(requires) is not None:
        return Stated(requires, places.key("", "requires-python"))
    metadata = _table(document.get("metadata"))
    for name in ("python-versions", "requires_python"):
        requires = metadata.get(name)
        if isinstance(requires, str) and specifier(requires) is not None:
            return Stated(requires, places.key("metadata", name))
    return None


def _table(given: object) -> Mapping[str, Any]:
    return given if isinstance(given, dict) else {}
