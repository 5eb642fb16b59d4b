"""Read a pyproject.toml: PEP 621, dependency groups, and the tables of Poetry, uv, PDM, Hatch and pixi."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .._vendor.packaging.specifiers import SpecifierSet
from ..errors import InputError
from ..matrix.document import plain_value
from ..model.prediction import Place
from ..versions import InvalidVersion, caret_range, tilde_range
from .pins import (
    Collected,
    Environment,
    Pin,
    Places,
    Source,
    Stated,
    entries,
    list_of,
    marker_holds,
    members,
    normalized,
    parse,
    place_of,
    pythons_of,
    read_source,
    root_of,
    scalar,
    specifier,
    table_of,
    texts_of,
)
from .requirements import ELSEWHERE, from_other_index, is_pypi, of_manifest, pin_of, pin_of_table

_POETRY = "tool.poetry"
#: A Hatch environment may have a chain of this many templates.
_MOST_TEMPLATES = 20
#: A file may have this many environments, with this many requirements in all. They take some seconds.
_MOST_ENVIRONMENTS = 500
_MOST_PINS = 200_000
_NUMBERS = r"([0-9]{1,9}(?:\.[0-9]{1,9}){0,9})"
_CARET, _TILDE = re.compile(rf"\^\s*{_NUMBERS}"), re.compile(rf"~\s*{_NUMBERS}")
_PLAIN = re.compile(r"\d+(?:\.\d+)*(?:[a-z]+\d+)?(?:\.post\d+)?(?:\+[\w.]+)?")
_WILDCARD = re.compile(r"\d+(?:\.\d+)*\.\*")


def of_pyproject(path: Path) -> tuple[list[Environment], list[Source]]:
    """Return an environment for the project, and one for it with each extra and each group.

    Raises InputError for a file that can't be read or is not TOML.
    """
    source = read_source(path)
    document, places = parse(source)
    return list(_Project(document, places).environments()), [source]


class _Project:
    def __init__(self, document: Mapping[str, Any], places: Places) -> None:
        self.places = places
        self.project = table_of(document, "project")
        self.groups = table_of(document, "dependency-groups")
        self.uv = table_of(document, "tool", "uv")
        self.pdm = table_of(document, "tool", "pdm")
        self.poetry = table_of(document, "tool", "poetry")
        self.hatch = table_of(document, "tool", "hatch", "envs")
        self.pixi = table_of(document, "tool", "pixi")
        self.python = _first(
            (self.project.get("requires-python"), places.key("project", "requires-python")),
            (
                table_of(self.poetry, "dependencies").get("python"),
                places.key(f"{_POETRY}.dependencies", "python"),
            ),
        )
        self.pythons = pythons_of(self.python)
        self.other_index = self._uses_other_index()
        self.pins_of_groups: dict[str, list[Pin]] = {}
        self.counted = 0
        self.other_sources = {normalized(name) for name in table_of(self.uv, "sources")}

    def environments(self) -> Iterator[Environment]:
        """Yield the environments."""
        base = [
            *self._requirements(self.project.get("dependencies")),
            *self._of_poetry(f"{_POETRY}.dependencies", table_of(self.poetry, "dependencies")),
        ]
        additions = [(name, list(pins)) for name, pins in self._additions()]
        for name, added in [("", []), *additions]:
            yield self._environment(name, [*base, *added], self.python)
        by_name = dict(additions)
        for name in self.hatch:
            yield self._of_hatch(name, base, by_name)
        if self.pixi:
            yield from of_manifest(self.pixi, self.places, "tool.pixi.", {**by_name, "": base}, self.python)

    def _environment(self, name: str, pins: Iterable[Pin], python: Stated | None) -> Environment:
        collected = Collected()
        self._count(_MOST_PINS // _MOST_ENVIRONMENTS)
        for pin in (*pins, *self._limits):
            self._count(1)
            collected.add(pin)
        overrides = self._overriding
        pins = tuple(
            replace(pin, versions=overrides[pin.name].versions) if pin.name in overrides else pin
            for pin in collected.all()
        )
        return Environment(pins, python=python, name=name)

    def _additions(self) -> Iterator[tuple[str, Iterator[Pin]]]:
        """Yield the name of each extra and each group, and what it adds."""
        for name, requirements in table_of(self.project, "optional-dependencies").items():
            yield name, self._requirements(requirements, extra=name)
        for name in self.groups:
            yield name, self._group(name)
        for name, group in table_of(self.poetry, "group").items():
            dependencies = table_of(group, "dependencies")
            yield name, self._of_poetry(f"{_POETRY}.group.{name}.dependencies", dependencies)
        development = table_of(self.poetry, "dev-dependencies")
        yield "dev", self._of_poetry(f"{_POETRY}.dev-dependencies", development)
        yield "dev", self._requirements(self.uv.get("dev-dependencies"))
        for name, requirements in table_of(self.pdm, "dev-dependencies").items():
            yield name, self._requirements(requirements)

    @functools.cached_property
    def _limits(self) -> list[Pin]:
        return list(self._requirements(self.uv.get("constraint-dependencies"), constraint=True))

    @functools.cached_property
    def _overriding(self) -> dict[str, Pin]:
        return {pin.name: pin for pin in self._overrides()}

    def _overrides(self) -> Iterator[Pin]:
        """Yield the pins that replace what every package asks for."""
        yield from self._requirements(self.uv.get("override-dependencies"))
        for name, version in table_of(self.pdm, "resolution", "overrides").items():
            if isinstance(version, str):
                versions = specifier(f"=={version}" if version[:1].isdigit() else version)
                yield Pin(normalized(name), versions, self.places.start)

    def _of_hatch(self, name: str, base: list[Pin], additions: Mapping[str, list[Pin]]) -> Environment:
        """Return an environment of Hatch, which has the options of its template where it has no own."""
        chain = [table_of(self.hatch, name)]
        while len(chain) < _MOST_TEMPLATES:
            template = chain[-1].get("template", "default")
            if not isinstance(template, str) or table_of(self.hatch, template) is chain[-1]:
                break
            chain.append(table_of(self.hatch, template))

        def option(key: str) -> Any:
            return next((table[key] for table in chain if key in table), None)

        pins: list[Pin] = []
        if option("skip-install") is not True and option("detached") is not True:
            pins += [
                *base,
                *(pin for feature in texts_of(option("features")) for pin in additions.get(feature, ())),
            ]
        pins += [pin for group in texts_of(option("dependency-groups")) for pin in additions.get(group, ())]
        for key in ("dependencies", "extra-dependencies"):
            pins += self._requirements(option(key))
        python, stated = option("python"), self.python
        if isinstance(python, str) and re.fullmatch(r"3\.\d+(?:\.\d+)?", python):
            at = next(index for index, table in enumerate(chain) if "python" in table)
            where = name if at == 0 else chain[at - 1].get("template", "default")
            stated = Stated(python, self.places.key(f"tool.hatch.envs.{where}", "python"))
        return self._environment(f"hatch {name}", pins, stated)

    def _group(self, name: str) -> Iterator[Pin]:
        """Yield the pins of a dependency group and of those that it includes, each once (PEP 735)."""
        # The order in which a reader of the file meets them: a group, then what it includes.
        waiting, seen = [name], set[str]()
        while waiting:
            if (group := waiting.pop()) in seen:
                continue
            seen.add(group)
            self._count(1)
            if group not in self.pins_of_groups:
                self.pins_of_groups[group] = list(self._requirements(self.groups.get(group)))
            yield from self.pins_of_groups[group]
            included = [table_of(one).get("include-group") for one in list_of(self.groups.get(group))]
            waiting += reversed(texts_of(included))

    def _count(self, more: int) -> None:
        """Count what the environments of the file have in all. Raises InputError if that is too much."""
        self.counted += more
        if self.counted > _MOST_PINS:
            raise InputError(
                f"{self.places.start.file}: it has more extras and groups than are checked: at most"
                f" {_MOST_ENVIRONMENTS}, with {_MOST_PINS:,} requirements together"
            )

    def _requirements(self, texts: object, *, extra: str = "", constraint: bool = False) -> Iterator[Pin]:
        for text in texts_of(texts):
            pin = pin_of(text, self.places.string(text), self.pythons, extra=extra, constraint=constraint)
            if pin is not None:
                yield self._from_source(pin)

    def _from_source(self, pin: Pin) -> Pin:
        """Return the pin with an unknown version if the package is taken from somewhere else."""
        if pin.name in self.other_sources:
            return replace(pin, versions=None)
        return from_other_index(pin) if self.other_index else pin

    def _uses_other_index(self) -> bool:
        """Return True if a package that names no index may come from another one than PyPI."""
        given: list[object] = []
        for table in (self.uv, table_of(self.uv, "pip")):
            for key in ("index-url", "extra-index-url", "find-links"):
                given += table[key] if isinstance(table.get(key), list) else [table.get(key)]
        for indexes in (self.uv.get("index"), self.pdm.get("source"), self.poetry.get("source")):
            for index in map(table_of, list_of(indexes)):
                if not index.get("explicit") and index.get("priority") != "explicit":
                    given.append(index.get("url"))
        return any(isinstance(url, str) and not is_pypi(url) for url in given)

    def _of_poetry(self, table: str, dependencies: Mapping[str, Any]) -> Iterator[Pin]:
        for name, wanted in dependencies.items():
            if name == "python":
                continue
            place = self.places.key(table, name)
            # A list has several versions, each with its conditions.
            pin = pin_of_table(
                name,
                {"version": None} if isinstance(wanted, list) else wanted,
                place,
                self.pythons,
                versions_of=from_poetry,
                also_elsewhere=("source", "python", "platform"),
            )
            if pin is not None:
                yield self._from_source(pin)


def _first(*statements: tuple[object, Place]) -> Stated | None:
    """Return the first statement about Python, in the form of PEP 440 or of Poetry, that can be read."""
    for text, place in statements:
        if isinstance(text, str) and (versions := from_poetry(text)):
            return Stated(str(versions), place)
    return None


def from_poetry(text: str) -> SpecifierSet | None:
    """Return the specifier that a constraint of Poetry means, or None if it has alternatives."""
    text = text.strip()
    if text == "*":
        return SpecifierSet()
    try:
        parts = [_from_poetry(part.strip()) for part in re.split(r"\s*,\s*", text)]
    except InvalidVersion:
        return None
    return specifier(",".join(parts))


def _from_poetry(part: str) -> str:
    caret, tilde = _CARET.fullmatch(part), _TILDE.fullmatch(part)
    if caret is not None:
        return caret_range(caret[1])
    if tilde is not None:
        return tilde_range(tilde[1])
    if _PLAIN.fullmatch(part) or _WILDCARD.fullmatch(part):
        return f"=={part}"
    return re.sub(r"^=(?!=)", "==", part)


# Read Pipenv's Pipfile and Pipfile.lock.


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
    python = _first(*versions)
    other_indexes = _other_indexes(sources)
    pins: dict[str, list[Pin]] = {"": []}
    for category, packages in asked.items():
        for package, (wanted, place) in packages.items():
            pin = pin_of_table(package, wanted, place, pythons_of(python))
            if pin is not None:
                # Without a name of an index, Pipenv asks the first one.
                other = str(table_of(wanted).get("index", "")) in other_indexes
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


# Read lock files: uv.lock, poetry.lock, pdm.lock and pylock.toml (PEP 751).


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
    metadata = table_of(document, "metadata")
    # PDM writes one for each machine that the lock is for.
    targets = list_of(metadata.get("targets"))
    python = _first(
        (document.get("requires-python"), places.key("", "requires-python")),
        (metadata.get("python-versions"), places.key("metadata", "python-versions")),
        (metadata.get("requires_python"), places.key("metadata", "requires_python")),
        *(
            (table_of(one).get("requires_python"), places.key("metadata.targets", "requires_python"))
            for one in targets
            if len(targets) == 1
        ),
    )
    pins = _pins(locked, pythons_of(python))
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
        holds = marker_holds(marker, pythons) if is_marker else marker in (None, "")
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
        is_excluded = isinstance(marker, str) and marker_holds(marker, ()) is False
        if isinstance(name, str) and not is_excluded:
            references.append((normalized(name), frozenset(texts_of(entry.get("extra")))))
    return references
