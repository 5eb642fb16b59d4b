"""Read Pipenv's Pipfile and Pipfile.lock."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from yaml import MappingNode, Node

from .._vendor.packaging.specifiers import SpecifierSet
from ..matrix.document import keys_of, plain_value
from ..model.finding import Place
from . import markers
from .environment import Collected, Environment, Pin, Stated, normalized, specifier
from .requirements import from_other_index, is_pypi
from .source_file import Source, read_source
from .toml_places import parse, table_of
from .yaml_places import place_of, root_of

#: The tables of a Pipfile that are no packages.
_OTHER = frozenset({"source", "requires", "scripts", "pipenv", "pipfile"})
#: Where a package comes from if not from an index.
_ELSEWHERE = ("git", "path", "file", "hg", "svn", "bzr", "url")
_MARKERS = ("sys_platform", "platform_machine", "platform_system", "os_name", "python_version")
#: The names of the categories in both files -> the name that a command uses.
_NAMES = {"packages": "", "default": "", "dev-packages": "dev", "develop": "dev"}


def environments(path: Path) -> tuple[list[Environment], list[Source]]:
    """Return what a Pipfile asks for, with each category. Raises InputError."""
    source = read_source(path)
    document, places = parse(source)
    asked = {
        name: {package: (wanted, places.key(name, package)) for package, wanted in table.items()}
        for name, table in document.items()
        if isinstance(table, dict) and name not in _OTHER
    }
    sources = document.get("source")
    requires = table_of(document, "requires")
    python = next(
        (
            Stated(requires[key], places.key("requires", key))
            for key in ("python_full_version", "python_version")
            if isinstance(requires.get(key), str) and requires[key][:1].isdigit()
        ),
        None,
    )
    return list(_environments(asked, _indexes(sources), python, complete=False)), [source]


def locked_environments(path: Path) -> tuple[list[Environment], list[Source]]:
    """Return what a Pipfile.lock installs, with each category. Raises InputError."""
    source = read_source(path)
    keys = keys_of(root_of(source, "a Pipenv lock"))
    meta = _mapping(keys.get("_meta"))
    requires = _mapping(meta.get("requires"))
    stated = requires.get("python_full_version") or requires.get("python_version")
    python = None
    if stated is not None and str(stated[1].value)[:1].isdigit():
        python = Stated(str(stated[1].value), place_of(source, stated[1]))
    asked = {
        name: {
            package: (
                plain_value(wanted),
                place_of(source, _mapping((key, wanted)).get("version", (key, key))[1]),
            )
            for package, (key, wanted) in keys_of(table).items()
        }
        for name, (_, table) in keys.items()
        if isinstance(table, MappingNode) and name != "_meta"
    }
    sources = plain_value(meta["sources"][1]) if "sources" in meta else None
    return list(_environments(asked, _indexes(sources), python, complete=True)), [source]


def _mapping(pair: tuple[Node, Node] | None) -> Mapping[str, tuple[Node, Node]]:
    """Return the keys of the value of a key, none if it is no mapping."""
    return keys_of(pair[1]) if pair is not None and isinstance(pair[1], MappingNode) else {}


def _environments(
    asked: Mapping[str, Mapping[str, tuple[Any, Place]]],
    other_indexes: frozenset[str],
    python: Stated | None,
    *,
    complete: bool,
) -> list[Environment]:
    pythons = markers.pythons(python.value if python else ">=2")
    pins = {
        name: [
            pin
            for package, (wanted, place) in packages.items()
            if (pin := _pin(package, wanted, place, pythons, other_indexes)) is not None
        ]
        for name, packages in asked.items()
    }
    base = [pin for name in pins if _NAMES.get(name) == "" for pin in pins[name]]
    found = []
    for name, added in {"": [], **pins}.items():
        if name and _NAMES.get(name) == "":
            continue
        collected = Collected()
        for pin in (*base, *added):
            collected.add(pin)
        found.append(
            Environment(collected.all(), python=python, complete=complete, name=_NAMES.get(name, name))
        )
    return found


def _pin(
    package: str, wanted: object, place: Place, pythons: tuple[str, ...], other_indexes: frozenset[str]
) -> Pin | None:
    """Return the pin of a package, or None if its conditions exclude it."""
    given: Mapping[str, Any] = wanted if isinstance(wanted, dict) else {"version": wanted}
    version = given.get("version")
    versions: SpecifierSet | None = None
    if isinstance(version, str):
        versions = SpecifierSet() if version == "*" else specifier(version)
    if any(key in given for key in _ELSEWHERE):
        versions = None
    parts = [f"({given['markers']})"] if isinstance(given.get("markers"), str) else []
    parts += [f"{key} {given[key]}" for key in _MARKERS if isinstance(given.get(key), str)]
    holds = markers.holds(" and ".join(parts), pythons) if parts else True
    if holds is False:
        return None
    extras = given.get("extras")
    pin = Pin(
        normalized(package),
        versions if holds else None,
        place,
        frozenset(normalized(one) for one in extras if isinstance(one, str))
        if isinstance(extras, list)
        else frozenset(),
    )
    # Without a name of an index, Pipenv asks the first one.
    return from_other_index(pin) if given.get("index", "") in other_indexes else pin


def _indexes(sources: object) -> frozenset[str]:
    """Return the names of the indexes other than PyPI; an empty name if the first one is not PyPI."""
    found = [one for one in sources if isinstance(one, dict)] if isinstance(sources, list) else []
    names = {str(one.get("name")) for one in found if not is_pypi(one.get("url"))}
    if found and not is_pypi(found[0].get("url")):
        names.add("")
    return frozenset(names)
