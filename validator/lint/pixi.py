"""Read pixi.toml, the tables of pixi in pyproject.toml, and pixi.lock."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from yaml import Node

from ..errors import InputError
from ..model.finding import Place
from .conda import CondaPackages, of_conda
from .environment import Environment, Pin, Stated, exact_pin, specifier
from .requirements import from_other_index, is_pypi, pin_of_table
from .source_file import Source, read_source
from .toml_places import Places, list_of, parse, table_of, texts_of
from .yaml_places import items, members, place_of, root_of, scalar

#: The machines that this project is about, as pixi names them.
_TARGETS = ("unix", "linux", "linux-64")
_CONDA_TABLES = ("dependencies", "host-dependencies", "build-dependencies")
_EXACT = re.compile(r"={0,2}\s*(?P<version>\d[\w.]*?)(?:\.?\*)?")
_CONDA_FILE = re.compile(r"(?P<name>.+)-(?P<version>[^-]+)-[^-]+\.(?:conda|tar\.bz2)")
_WHEEL_FILE = re.compile(r"(?P<name>[^-]+)-(?P<version>[^-]+)(?:-\d[^-]*)?-[^-]+-[^-]+-[^-]+\.whl")
#: The environment that is used where a command names none.
_DEFAULT = "default"


def of_pixi_toml(path: Path) -> tuple[list[Environment], list[Source]]:
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
    for name, given in {_DEFAULT: [], **table_of(manifest, "environments")}.items():
        features = texts_of(given.get("features") if isinstance(given, dict) else given)
        if table_of(given).get("no-default-feature") is not True:
            features.insert(0, "")
        packages = CondaPackages(python)
        for feature in features:
            table = table_of(manifest, "feature", feature) if feature else manifest
            _add(packages, table, places, f"{prefix}feature.{feature}." if feature else prefix)
            for pin in (project or {}).get(feature, ()):
                packages.collected.add(pin)
            packages.for_gpu |= "cuda" in table_of(table, "system-requirements")
        yield packages.environment("" if name == _DEFAULT else name)


def _add(packages: CondaPackages, feature: Mapping[str, Any], places: Places, prefix: str) -> None:
    """Add what a feature installs on the machines that this project is about."""
    options = table_of(feature, "pypi-options")
    addresses = [options.get("index-url")]
    addresses += list_of(options.get("extra-index-urls")) + list_of(options.get("find-links"))
    other_index = any(address is not None and not is_pypi(address) for address in addresses)
    targets = [(table_of(feature, "target", target), f"{prefix}target.{target}.") for target in _TARGETS]
    for table, where in [(feature, prefix), *targets]:
        for kind in _CONDA_TABLES:
            for name, wanted in table_of(table, kind).items():
                version = wanted.get("version") if isinstance(wanted, dict) else wanted
                _add_conda(packages, name, version, places.key(f"{where}{kind}", name))
        for name, wanted in table_of(table, "pypi-dependencies").items():
            place = places.key(f"{where}pypi-dependencies", name)
            pin = pin_of_table(name, wanted, place, also_elsewhere=("index",), default="*")
            if pin is not None:
                packages.collected.add(from_other_index(pin) if other_index else pin, later=True)


def _add_conda(packages: CondaPackages, name: str, version: object, place: Place) -> None:
    match = _EXACT.fullmatch(version.strip()) if isinstance(version, str) else None
    if match is None and name == "python":
        is_range = isinstance(version, str) and len(specifier(version) or ())
        packages.python = Stated(str(version), place) if is_range else None
    else:
        packages.add(name, match["version"] if match else "", place)


def of_pixi_lock(path: Path) -> tuple[list[Environment], list[Source]]:
    """Return each environment of a pixi.lock on Linux with x86_64. Raises InputError."""
    source = read_source(path)
    # The list of packages, which comes last, repeats what their file names say.
    head = re.split(r"^packages:", source.text, maxsplit=1, flags=re.MULTILINE)[0]
    root = members(root_of(Source(source.name, head), "a pixi lock"))
    if "environments" not in root:
        if "package" in root:
            # Until version 3 it had the form of conda-lock's.
            return of_conda(path)
        raise InputError(f"{source.name} is not a pixi lock: it has no key environments")
    locked = []
    for name, environment in members(root["environments"]).items():
        by_platform = members(members(environment).get("packages"))
        if by_platform:
            packages = CondaPackages()
            packages.complete = True
            for item in items(by_platform.get("linux-64")):
                _add_locked(packages, item, source)
            locked.append(packages.environment("" if name == _DEFAULT else name))
    return locked, [source]


def _add_locked(packages: CondaPackages, item: Node, source: Source) -> None:
    for kind, address in members(item).items():
        url, place = scalar(address) or "", place_of(source, address)
        file = unquote(url.rpartition("/")[2])
        if kind == "conda" and (package := _CONDA_FILE.fullmatch(file)):
            packages.add(package["name"], package["version"], place)
        elif kind == "pypi" and (wheel := _WHEEL_FILE.fullmatch(file)):
            pin = exact_pin(wheel["name"], wheel["version"], place)
            packages.collected.add(pin if is_pypi(url) else from_other_index(pin), later=True)
