"""Read pixi.toml, the tables of pixi in pyproject.toml, and pixi.lock."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from yaml import MappingNode, ScalarNode

from .._vendor.packaging.specifiers import SpecifierSet
from ..errors import InputError
from ..matrix.document import keys_of
from ..model.finding import Place
from .conda import Found
from .conda import environments as conda_environments
from .environment import Environment, Pin, Stated, normalized, specifier
from .requirements import from_other_index, is_pypi
from .source_file import Source, read_source
from .toml_places import Places, parse, table_of
from .yaml_places import items, place_of, root_of

#: The machines that this project is about, as pixi names them.
_TARGETS = ("unix", "linux", "linux-64")
_CONDA_TABLES = ("dependencies", "host-dependencies", "build-dependencies")
_ELSEWHERE = ("git", "path", "url", "index")
_EXACT = re.compile(r"={0,2}\s*(?P<version>\d[\w.]*?)(?:\.?\*)?")
_CONDA_FILE = re.compile(r"(?P<name>.+)-(?P<version>[^-]+)-[^-]+\.(?:conda|tar\.bz2)")
_WHEEL_FILE = re.compile(r"(?P<name>[^-]+)-(?P<version>[^-]+)(?:-\d[^-]*)?-[^-]+-[^-]+-[^-]+\.whl")
#: The environment that is used where a command names none.
_DEFAULT = "default"


def environments(path: Path) -> tuple[list[Environment], list[Source]]:
    """Return each environment of a pixi.toml. Raises InputError."""
    source = read_source(path)
    document, places = parse(source)
    return list(of_manifest(document, places, "")), [source]


def of_manifest(
    manifest: Mapping[str, Any],
    places: Places,
    prefix: str,
    project: Mapping[str, Sequence[Pin]] | None = None,
    python: Stated | None = None,
) -> Iterator[Environment]:
    """Yield each environment of a manifest.

    prefix: of the names of its tables. project: what the project itself asks pip for, by extra or group,
    under an empty name without any. python: the one that the project asks for.
    """
    features = table_of(manifest, "feature")
    wanted: dict[str, object] = {_DEFAULT: [], **table_of(manifest, "environments")}
    for name, given in wanted.items():
        named = given.get("features") if isinstance(given, dict) else given
        own = [one for one in named if isinstance(one, str)] if isinstance(named, list) else []
        alone = isinstance(given, dict) and given.get("no-default-feature") is True
        found = Found()
        found.python = python
        for feature in [*([] if alone else [""]), *own]:
            table = table_of(features, feature) if feature else manifest
            _add(found, table, places, f"{prefix}feature.{feature}." if feature else prefix)
            for pin in (project or {}).get(feature, ()):
                found.collected.add(pin)
            found.for_gpu |= "cuda" in table_of(table, "system-requirements")
        yield found.environment("" if name == _DEFAULT else name)


def _add(found: Found, feature: Mapping[str, Any], places: Places, prefix: str) -> None:
    """Add what a feature installs on the machines that this project is about."""
    parts = [(feature, prefix)]
    for target in _TARGETS:
        parts.append((table_of(feature, "target", target), f"{prefix}target.{target}."))
    options = table_of(feature, "pypi-options")
    urls = [
        options.get("index-url"),
        *_list(options.get("extra-index-urls")),
        *_list(options.get("find-links")),
    ]
    other_index = any(one is not None and not is_pypi(one) for one in urls)
    for table, where in parts:
        for kind in _CONDA_TABLES:
            for name, wanted in table_of(table, kind).items():
                version = wanted.get("version") if isinstance(wanted, dict) else wanted
                _add_conda(found, name, version, places.key(f"{where}{kind}", name))
        for name, wanted in table_of(table, "pypi-dependencies").items():
            pin = _pin(name, wanted, places.key(f"{where}pypi-dependencies", name))
            found.collected.add(from_other_index(pin) if other_index else pin, later=True)


def _add_conda(found: Found, name: str, version: object, place: Place) -> None:
    match = _EXACT.fullmatch(version.strip()) if isinstance(version, str) else None
    if match is not None:
        found.add(name, match["version"], place)
    elif name == "python":
        known = isinstance(version, str) and len(specifier(version) or ())
        found.python = Stated(str(version), place) if known else None
    else:
        found.add(name, "", place)


def _pin(name: str, wanted: object, place: Place) -> Pin:
    given: Mapping[str, Any] = wanted if isinstance(wanted, dict) else {"version": wanted}
    version, extras = given.get("version", "*"), given.get("extras")
    versions: SpecifierSet | None = None
    if isinstance(version, str) and not any(key in given for key in _ELSEWHERE):
        versions = SpecifierSet() if version == "*" else specifier(version)
    return Pin(normalized(name), versions, place, frozenset(normalized(str(one)) for one in _list(extras)))


def locked_environments(path: Path) -> tuple[list[Environment], list[Source]]:
    """Return each environment of a pixi.lock on Linux with x86_64. Raises InputError."""
    source = read_source(path)
    # The list of packages, which comes last, repeats what their file names say.
    head = re.split(r"^packages:", source.text, maxsplit=1, flags=re.MULTILINE)[0]
    root = keys_of(root_of(Source(source.name, head), "a pixi lock"))
    named = root.get("environments")
    if named is None:
        if "package" in root:
            # Until version 3 it had the form of conda-lock's.
            return conda_environments(path)
        raise InputError(f"{source.name} is not a pixi lock: it has no key environments")
    found = []
    for name, (_, environment) in (keys_of(named[1]) if isinstance(named[1], MappingNode) else {}).items():
        platforms = keys_of(environment).get("packages") if isinstance(environment, MappingNode) else None
        if platforms is None or not isinstance(platforms[1], MappingNode):
            continue
        one = Found()
        one.complete = True
        _, packages = keys_of(platforms[1]).get("linux-64", (None, None))
        for item in items(packages):
            if isinstance(item, MappingNode):
                _add_locked(one, item, source)
        found.append(one.environment("" if name == _DEFAULT else name))
    return found, [source]


def _add_locked(found: Found, item: MappingNode, source: Source) -> None:
    for kind, (_, address) in keys_of(item).items():
        if not isinstance(address, ScalarNode):
            continue
        url, place = str(address.value), place_of(source, address)
        file = unquote(url.rpartition("/")[2])
        if kind == "conda" and (package := _CONDA_FILE.fullmatch(file)):
            found.add(package["name"], package["version"], place)
        elif kind == "pypi" and (wheel := _WHEEL_FILE.fullmatch(file)):
            pin = Pin(normalized(wheel["name"]), specifier(f"=={wheel['version']}"), place)
            found.collected.add(pin if is_pypi(url) else from_other_index(pin), later=True)


def _list(given: object) -> list[Any]:
    return given if isinstance(given, list) else []
