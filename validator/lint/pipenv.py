"""Read Pipenv's Pipfile and Pipfile.lock."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..matrix.document import plain_value
from ..model.finding import Place
from . import markers
from .environment import Collected, Environment, Pin, Stated
from .requirements import from_other_index, is_pypi, pin_of_table
from .source_file import Source, read_source
from .toml_places import list_of, parse, table_of
from .yaml_places import entries, members, place_of, root_of, scalar

#: The tables of a Pipfile that are no packages.
_OTHER = frozenset({"source", "requires", "scripts", "pipenv", "pipfile"})
#: The names of the categories in both files -> the name that a command uses.
_NAMES = {"packages": "", "default": "", "dev-packages": "dev", "develop": "dev"}
#: Category -> package -> what is asked for, and its place.
_Asked = Mapping[str, Mapping[str, tuple[Any, Place]]]


def of_pipfile(path: Path) -> tuple[list[Environment], list[Source]]:
    """Return what a Pipfile asks for, with each category. Raises InputError."""
    source = read_source(path)
    document, places = parse(source)
    requires = table_of(document, "requires")
    versions = [
        (requires.get(key), places.key("requires", key)) for key in ("python_full_version", "python_version")
    ]
    asked: _Asked = {
        category: {package: (wanted, places.key(category, package)) for package, wanted in table.items()}
        for category, table in document.items()
        if isinstance(table, dict) and category not in _OTHER
    }
    return _environments(asked, document.get("source"), versions, complete=False), [source]


def of_pipfile_lock(path: Path) -> tuple[list[Environment], list[Source]]:
    """Return what a Pipfile.lock installs, with each category. Raises InputError."""
    source = read_source(path)
    root = members(root_of(source, "a Pipenv lock"))
    meta = members(root.pop("_meta", None))
    requires = members(meta.get("requires"))
    versions = [
        (scalar(requires[key]), place_of(source, requires[key]))
        for key in ("python_full_version", "python_version")
        if key in requires
    ]
    asked: _Asked = {
        category: {
            package: (plain_value(wanted), place_of(source, members(wanted).get("version", key)))
            for package, (key, wanted) in entries(table).items()
        }
        for category, table in root.items()
    }
    sources = plain_value(meta["sources"]) if "sources" in meta else None
    return _environments(asked, sources, versions, complete=True), [source]


def _environments(
    asked: _Asked, sources: object, versions: list[tuple[Any, Place]], *, complete: bool
) -> list[Environment]:
    """Return an environment for each category. versions: of Python, the most exact one first."""
    python = next(
        (
            Stated(version, place)
            for version, place in versions
            if isinstance(version, str) and version[:1].isdigit()
        ),
        None,
    )
    other_indexes = _other_indexes(sources)
    pins: dict[str, list[Pin]] = {"": []}
    for category, packages in asked.items():
        for package, (wanted, place) in packages.items():
            pin = pin_of_table(package, wanted, place, markers.pythons_of(python))
            if pin is not None:
                # Without a name of an index, Pipenv asks the first one.
                other = table_of(wanted).get("index", "") in other_indexes
                name = _NAMES.get(category, category)
                pins.setdefault(name, []).append(from_other_index(pin) if other else pin)
        pins.setdefault(_NAMES.get(category, category), [])
    environments = []
    for name, own in pins.items():
        collected = Collected()
        for pin in pins[""] + (own if name else []):
            collected.add(pin)
        environments.append(Environment(collected.all(), python=python, complete=complete, name=name))
    return environments


def _other_indexes(sources: object) -> frozenset[str]:
    """Return the names of the indexes other than PyPI; an empty name if the first one is not PyPI."""
    indexes = [index for index in list_of(sources) if isinstance(index, dict)]
    others = {str(index.get("name")) for index in indexes if not is_pypi(index.get("url"))}
    return frozenset(others | ({""} if indexes and not is_pypi(indexes[0].get("url")) else set()))
