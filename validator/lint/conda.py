"""Read conda's environment.yml, and the lock that conda-lock writes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from yaml import Node

from ..errors import InputError
from ..matrix.requirements import CONSTRAIN, INCLUDE, MAX_FILES
from ..model.finding import Place
from . import markers
from .environment import Collected, Environment, Stated, exact_pin, normalized
from .requirements import from_other_index, is_other_index, pin_of, read_requirements
from .source_file import Source, read_source
from .yaml_places import items, members, place_of, root_of, scalar

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
            pin = pin_of(text, place_of(source, item), markers.pythons_of(packages.python))
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
