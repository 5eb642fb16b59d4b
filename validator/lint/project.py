"""Read what a pyproject.toml asks for: PEP 621, dependency groups, and the tables of Poetry."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .._vendor.packaging.specifiers import SpecifierSet
from . import markers
from .environment import Collected, Environment, Pin, Stated, normalized, specifier
from .requirements import pin_of
from .source import Source, read_source
from .toml_places import Places, parse

_POETRY = "tool.poetry"
_CARET = re.compile(r"\^\s*(\d+(?:\.\d+)*)")
_TILDE = re.compile(r"~\s*(\d+(?:\.\d+)*)")
_PLAIN = re.compile(r"\d+(?:\.\d+)*(?:[a-z]+\d+)?(?:\.post\d+)?(?:\+[\w.]+)?")
_WILDCARD = re.compile(r"\d+(?:\.\d+)*\.\*")


def environments(path: Path) -> tuple[list[Environment], list[Source]]:
    """Return an environment for the project, and one for it with each extra and each group.

    Raises InputError for a file that can't be read or is not TOML.
    """
    source = read_source(path)
    document, places = parse(source)
    return list(_Project(document, places).environments()), [source]


class _Project:
    def __init__(self, document: Mapping[str, Any], places: Places) -> None:
        self.places = places
        self.project = _table(document, "project")
        self.groups = _table(document, "dependency-groups")
        self.uv = _table(document, "tool", "uv")
        self.poetry = _table(document, "tool", "poetry")
        self.python = self._python()
        self.pythons = markers.pythons(self.python.value if self.python else ">=2")

    def environments(self) -> Iterator[Environment]:
        """Yield the environments."""
        base = [
            *self._requirements(self.project.get("dependencies")),
            *self._of_poetry(f"{_POETRY}.dependencies", _table(self.poetry, "dependencies")),
        ]
        limits = list(self._requirements(self.uv.get("constraint-dependencies"), constraint=True))
        additions = [list(one) for one in self._additions()]
        for added in [[], *additions]:
            collected = Collected()
            for pin in (*base, *added, *limits):
                collected.add(pin)
            yield Environment(collected.all(), python=self.python)

    def _additions(self) -> Iterator[Iterator[Pin]]:
        for name, requirements in _table(self.project, "optional-dependencies").items():
            yield self._requirements(requirements, extra=name)
        for name in self.groups:
            yield self._group(name, frozenset())
        for name, group in _table(self.poetry, "group").items():
            dependencies = _table(group, "dependencies") if isinstance(group, dict) else {}
            yield self._of_poetry(f"{_POETRY}.group.{name}.dependencies", dependencies)
        yield self._of_poetry(f"{_POETRY}.dev-dependencies", _table(self.poetry, "dev-dependencies"))
        yield self._requirements(self.uv.get("dev-dependencies"))

    def _group(self, name: str, inside: frozenset[str]) -> Iterator[Pin]:
        """Yield the pins of a dependency group and of those that it includes (PEP 735)."""
        requirements = self.groups.get(name)
        if name in inside or not isinstance(requirements, list):
            return
        yield from self._requirements([one for one in requirements if isinstance(one, str)])
        for one in requirements:
            included = one.get("include-group") if isinstance(one, dict) else None
            if isinstance(included, str):
                yield from self._group(included, inside | {name})

    def _requirements(self, texts: object, *, extra: str = "", constraint: bool = False) -> Iterator[Pin]:
        for text in texts if isinstance(texts, list) else ():
            if not isinstance(text, str):
                continue
            pin = pin_of(text, self.places.string(text), self.pythons, extra=extra, constraint=constraint)
            if pin is not None:
                yield self._from_source(pin)

    def _from_source(self, pin: Pin) -> Pin:
        """Return the pin with an unknown version if uv takes the package from somewhere else."""
        sources = {normalized(name) for name in _table(self.uv, "sources")}
        return _unknown(pin) if pin.name in sources else pin

    def _of_poetry(self, table: str, dependencies: Mapping[str, Any]) -> Iterator[Pin]:
        for name, wanted in dependencies.items():
            if name == "python":
                continue
            place = self.places.key(table, name)
            if isinstance(wanted, list):
                # Several versions, each with its conditions.
                yield Pin(normalized(name), None, place)
                continue
            given = wanted if isinstance(wanted, dict) else {"version": wanted}
            version = given.get("version")
            versions = from_poetry(version) if isinstance(version, str) else None
            if any(key in given for key in ("source", "git", "path", "url", "python", "platform")):
                versions = None
            if isinstance(given.get("markers"), str):
                holds = markers.holds(given["markers"], self.pythons)
                if holds is False:
                    continue
                versions = versions if holds else None
            extras = given.get("extras")
            names = (one for one in extras if isinstance(one, str)) if isinstance(extras, list) else ()
            yield Pin(normalized(name), versions, place, frozenset(map(normalized, names)))

    def _python(self) -> Stated | None:
        requires = self.project.get("requires-python")
        if isinstance(requires, str) and specifier(requires) is not None:
            return Stated(requires, self.places.key("project", "requires-python"))
        asked = _table(self.poetry, "dependencies").get("python")
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
        numbers = [int(number) for number in caret[1].split(".")]
        first = next((at for at, number in enumerate(numbers) if number), len(numbers) - 1)
        upper = [*numbers[:first], numbers[first] + 1]
        return f">={caret[1]},<{'.'.join(map(str, upper))}"
    if tilde is not None:
        numbers = [int(number) for number in tilde[1].split(".")][:2]
        upper = [*numbers[:-1], numbers[-1] + 1]
        return f">={tilde[1]},<{'.'.join(map(str, upper))}"
    if _PLAIN.fullmatch(part) or _WILDCARD.fullmatch(part):
        return f"=={part}"
    return re.sub(r"^=(?!=)", "==", part)


def _unknown(pin: Pin) -> Pin:
    return Pin(pin.name, None, pin.place, pin.extras, pin.from_conda, pin.constraint)


def _table(document: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """Return a table of a document, empty if it is not there."""
    found: Any = document
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}
