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
from .requirements import ELSEWHERE
from .source_file import Source, read_source
from .toml_places import Places, list_of, parse, table_of, texts_of

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


def of_lock(path: Path) -> tuple[list[Environment], list[Source]]:
    """Return what a lock installs, with each extra and each group.

    Raises InputError for a file that can't be read or is not TOML. A package that is locked in several
    versions has an unknown version, because its conditions decide.
    """
    source = read_source(path)
    document, places = parse(source)
    table = "packages" if "packages" in document else "package"
    locked = [
        _Locked(normalized(entry["name"]), entry, places.key(table, "version", position))
        for position, entry in enumerate(list_of(document.get(table)))
        if isinstance(entry, dict) and isinstance(entry.get("name"), str)
    ]
    python = _python(document, places)
    pins = _pins(locked, markers.pythons_of(python))
    return [
        Environment(
            tuple(pins[package] for package in packages if package in pins),
            python=python,
            complete=True,
            name=name,
        )
        for name, packages in _installed_together(locked)
    ], [source]


def _pins(locked: Sequence[_Locked], pythons: tuple[str, ...]) -> dict[str, Pin]:
    """Return the pin of each package that may be installed on the machines that this project is about."""
    pins: dict[str, Pin] = {}
    for one in locked:
        version, marker = one.entry.get("version"), one.entry.get("marker", one.entry.get("markers"))
        is_marker = isinstance(marker, str) and marker != ""
        holds = markers.holds(marker, pythons) if is_marker else marker in (None, "")
        if is_marker and holds is False:
            continue
        from_index = not any(key in one.entry or key in table_of(one.entry, "source") for key in ELSEWHERE)
        is_only = one.name not in pins and not one.entry.get("optional")
        known = holds and isinstance(version, str) and from_index and is_only
        pins[one.name] = Pin(one.name, specifier(f"=={version}") if known else None, one.place)
    return pins


def _installed_together(locked: Sequence[_Locked]) -> Iterator[tuple[str, Iterable[str]]]:
    """Yield the name of each extra or group, and the names of the packages that are installed with it."""
    own = [one for one in locked if not table_of(one.entry, "source").keys().isdisjoint(_OWN)]
    if own:
        yield from _of_uv(locked, own)
        return
    groups = {one.name: frozenset(texts_of(one.entry.get("groups"))) for one in locked}
    others = sorted({group for named in groups.values() for group in named} - _ALWAYS)
    for group in ["", *others]:
        yield group, [name for name, named in groups.items() if not named or named & (_ALWAYS | {group})]


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
            for name, references in table_of(project.entry, section).items()
        ]
        member = "" if "." in table_of(project.entry, "source").values() else f"package {project.name} "
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
        optional = table_of(entry, "optional-dependencies")
        for extra in extras:
            waiting += _references(optional.get(extra))
    return sorted({name for name, _ in seen})


def _references(given: object) -> list[tuple[str, frozenset[str]]]:
    """Return the names and extras of the packages that an entry of uv.lock refers to."""
    references = []
    for entry in map(table_of, list_of(given)):
        name, marker = entry.get("name"), entry.get("marker")
        is_excluded = isinstance(marker, str) and markers.holds(marker, ()) is False
        if isinstance(name, str) and not is_excluded:
            references.append((normalized(name), frozenset(texts_of(entry.get("extra")))))
    return references


def _python(document: Mapping[str, Any], places: Places) -> Stated | None:
    metadata = table_of(document, "metadata")
    for table, key, requires in (
        ("", "requires-python", document.get("requires-python")),
        ("metadata", "python-versions", metadata.get("python-versions")),
        ("metadata", "requires_python", metadata.get("requires_python")),
    ):
        if isinstance(requires, str) and specifier(requires) is not None:
            return Stated(requires, places.key(table, key))
    return None
