"""Read conda's environment.yml, and the lock that conda-lock writes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from yaml import Node

from ..errors import InputError
from ..matrix.requirements import CONSTRAIN, INCLUDE, MAX_FILES
from ..model.prediction import Place
from . import pins
from .pins import (
    Collected,
    Environment,
    Pin,
    Places,
    Source,
    Stated,
    exact_pin,
    items,
    list_of,
    members,
    normalized,
    parse,
    place_of,
    read_source,
    root_of,
    scalar,
    specifier,
    table_of,
    texts_of,
)
from .requirements import from_other_index, is_other_index, is_pypi, pin_of, pin_of_table, read_requirements

#: A package of conda: `python=3.11`, `cudatoolkit 11.2.*`, `conda-forge::cudnn=8.1.0=h90431f1_0`.
_SPEC = re.compile(
    r"(?:[\w./-]+::)?(?P<name>[A-Za-z_][\w.-]*)(?![\w.-])"
    r"(?:(?:\s*==?\s*|\s+)(?P<version>\d[\w.]*(?:\.\*)?)(?:=[\w.*]+)?)?"
)
#: conda's packages that say which CUDA is installed, the most exact ones first.
CUDA_PACKAGES = ("cuda-cudart", "cuda-runtime", "cuda-toolkit", "cudatoolkit", "cuda-version", "cuda")
_LINUX = "linux-64"


def of_conda(path: Path) -> tuple[list[Environment], list[Source]]:
    """Return what an environment.yml or a conda-lock.yml installs. Raises InputError."""
    source = read_source(path)
    sources = [source]
    root = members(root_of(source, "a conda environment"))
    packages = CondaPackages()
    if "dependencies" in root:
        for item in items(root["dependencies"]):
            spec, pip = scalar(item), members(item).get("pip")
            if spec is not None:
                packages.add_spec(spec, place_of(source, item))
            elif pip is not None:
                sources += _pip(source, path.parent, pip, packages)
    elif "package" in root:
        for item in items(root["package"]):
            _locked(source, item, packages)
        packages.complete = True
    else:
        raise InputError(
            f"{source.name} is not a conda environment: it has no key dependencies",
            hint="lint reads environment.yml and conda-lock.yml",
        )
    return [packages.environment()], sources


class CondaPackages:
    """The packages that conda and pip install together in one conda environment."""

    def __init__(self, python: Stated | None = None) -> None:
        self.collected = Collected()
        self.python = python
        self.libraries: dict[str, Stated | None] = {}
        self.complete = False
        self.for_gpu = False

    def add_spec(self, text: str, place: Place) -> None:
        """Add a package as environment.yml asks for it."""
        match = _SPEC.fullmatch(text.strip())
        if match is not None:
            self.add(match["name"], (match["version"] or "").removesuffix(".*"), place)
        elif name := re.match(r"[\w.-]+", text.strip().rpartition("::")[2]):
            self.add(name[0], "", place)

    def add(self, name: str, version: str, place: Place) -> None:
        """Add a package of conda. version: empty if it is not known."""
        name = normalized(name)
        stated = Stated(version, place) if version else None
        if name == "python":
            self.python = stated
        elif name in (*CUDA_PACKAGES, "cudnn"):
            self.libraries[name] = stated
        else:
            self.collected.add(exact_pin(name, version, place, from_conda=True))

    def environment(self, name: str = "") -> Environment:
        """Return the packages as an environment of this name."""
        return Environment(
            self.collected.all(),
            python=self.python,
            cuda=next((self.libraries[one] for one in CUDA_PACKAGES if self.libraries.get(one)), None),
            cudnn=self.libraries.get("cudnn"),
            for_gpu=self.for_gpu or bool(self.libraries),
            complete=self.complete,
            name=name,
        )


def _pip(source: Source, directory: Path, node: Node, packages: CondaPackages) -> list[Source]:
    """Read what pip installs. Return the requirements files that it includes, relative to the directory."""
    python = packages.python.value if packages.python else None
    lines = [
        (text.partition(" #")[0].strip(), item) for item in items(node) if (text := scalar(item)) is not None
    ]
    other_index = any(is_other_index(text) for text, _ in lines)
    sources: list[Source] = []
    asked = Collected()
    for text, item in lines:
        included = INCLUDE.fullmatch(text) or CONSTRAIN.fullmatch(text)
        if included is None:
            pin = pin_of(text, place_of(source, item), pins.pythons_of(packages.python))
            if pin is not None:
                asked.add(pin)
        elif "://" not in included["file"] and len(sources) < MAX_FILES:
            read = read_requirements(directory / included["file"], python)
            sources += read.sources
            other_index = other_index or read.other_index
            for pin in read.collected.all():
                asked.add(replace(pin, constraint=True) if included.re is CONSTRAIN else pin)
    for pin in asked.all():
        # pip installs over what conda installed.
        packages.collected.add(from_other_index(pin) if other_index else pin, later=True)
    return sources


def _locked(source: Source, node: Node, packages: CondaPackages) -> None:
    """Read one entry of a conda-lock.yml."""
    fields = members(node)
    name, version = scalar(fields.get("name")), scalar(fields.get("version"))
    if name is None or version is None or (scalar(fields.get("platform")) or _LINUX) != _LINUX:
        return
    place = place_of(source, fields["version"])
    if scalar(fields.get("manager")) == "pip":
        packages.collected.add(exact_pin(name, version, place), later=True)
    else:
        packages.add(name, version, place)


# Read pixi.toml, the tables of pixi in pyproject.toml, and pixi.lock.


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
