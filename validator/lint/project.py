"""Read a pyproject.toml: PEP 621, dependency groups, and the tables of Poetry, uv, PDM, Hatch and pixi."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from .._vendor.packaging.specifiers import SpecifierSet
from ..versions import caret_range, tilde_range
from . import markers, pixi
from .environment import Collected, Environment, Pin, Stated, normalized, specifier
from .requirements import from_other_index, is_pypi, pin_of, pin_of_table
from .source_file import Source, read_source
from .toml_places import Places, list_of, parse, table_of, texts_of

_POETRY = "tool.poetry"
#: A Hatch environment may have a chain of this many templates.
_MOST_TEMPLATES = 20
_CARET = re.compile(r"\^\s*(\d+(?:\.\d+)*)")
_TILDE = re.compile(r"~\s*(\d+(?:\.\d+)*)")
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
        self.python = self._python()
        self.pythons = markers.pythons_of(self.python)
        self.other_index = self._uses_other_index()
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
            yield from pixi.of_manifest(
                self.pixi, self.places, "tool.pixi.", {**by_name, "": base}, self.python
            )

    def _environment(self, name: str, pins: Iterable[Pin], python: Stated | None) -> Environment:
        collected = Collected()
        limits = self._requirements(self.uv.get("constraint-dependencies"), constraint=True)
        for pin in (*pins, *limits):
            collected.add(pin)
        overrides = {pin.name: pin for pin in self._overrides()}
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
            yield name, self._group(name, frozenset())
        for name, group in table_of(self.poetry, "group").items():
            dependencies = table_of(group, "dependencies")
            yield name, self._of_poetry(f"{_POETRY}.group.{name}.dependencies", dependencies)
        development = table_of(self.poetry, "dev-dependencies")
        yield "dev", self._of_poetry(f"{_POETRY}.dev-dependencies", development)
        yield "dev", self._requirements(self.uv.get("dev-dependencies"))
        for name, requirements in table_of(self.pdm, "dev-dependencies").items():
            yield name, self._requirements(requirements)

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

    def _group(self, name: str, inside: frozenset[str]) -> Iterator[Pin]:
        """Yield the pins of a dependency group and of those that it includes (PEP 735)."""
        if name in inside:
            return
        yield from self._requirements(self.groups.get(name))
        for requirement in list_of(self.groups.get(name)):
            included = table_of(requirement).get("include-group")
            if isinstance(included, str):
                yield from self._group(included, inside | {name})

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

    def _python(self) -> Stated | None:
        requires = self.project.get("requires-python")
        if isinstance(requires, str) and specifier(requires) is not None:
            return Stated(requires, self.places.key("project", "requires-python"))
        asked = table_of(self.poetry, "dependencies").get("python")
        versions = from_poetry(asked) if isinstance(asked, str) else None
        if versions is None or not len(versions):
            return None
        return Stated(str(versions), self.places.key(f"{_POETRY}.dependencies", "python"))


def from_poetry(text: str) -> SpecifierSet | None:
    """Return the specifier that a constraint of Poetry means, or None if it has alternatives."""
    text = text.strip()
    if text == "*":
        return SpecifierSet()
    parts = [_from_poetry(part.strip()) for part in re.split(r"\s*,\s*", text)]
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
