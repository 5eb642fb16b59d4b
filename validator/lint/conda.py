"""Read conda's environment.yml, and the lock that conda-lock writes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from yaml import MappingNode, Node, ScalarNode

from ..errors import InputError
from ..matrix.document import keys_of
from ..matrix.requirements import CONSTRAIN, INCLUDE, MAX_FILES
from ..model.finding import Place
from . import markers
from .environment import Collected, Environment, Pin, Stated, normalized, specifier
from .requirements import from_other_index, is_other_index, pin_of, read_requirements
from .source_file import Source, read_source
from .yaml_places import items, place_of, root_of

#: A package of conda: `python=3.11`, `cudatoolkit 11.2.*`, `conda-forge::cudnn=8.1.0=h90431f1_0`.
_SPEC = re.compile(
    r"(?:(?P<channel>[\w./-]+)::)?(?P<name>[A-Za-z_][\w.-]*)(?![\w.-])"
    r"(?:(?:\s*==?\s*|\s+)(?P<version>\d[\w.]*(?:\.\*)?)(?:=(?P<build>[\w.*]+))?)?"
)
#: conda's packages that say which CUDA is installed, the most exact ones first.
_CUDA = ("cuda-cudart", "cuda-runtime", "cuda-toolkit", "cudatoolkit", "cuda-version", "cuda")
_LINUX = "linux-64"


def environments(path: Path) -> tuple[list[Environment], list[Source]]:
    """Return what an environment.yml or a conda-lock.yml installs. Raises InputError."""
    source = read_source(path)
    sources = [source]
    root = root_of(source, "a conda environment")
    keys = keys_of(root)
    found = Found()
    if "dependencies" in keys:
        for item in items(keys["dependencies"][1]):
            if isinstance(item, ScalarNode):
                found.add_spec(str(item.value), place_of(source, item))
            elif isinstance(item, MappingNode) and "pip" in keys_of(item):
                sources += _pip(source, path.parent, keys_of(item)["pip"][1], found)
    elif "package" in keys:
        for item in items(keys["package"][1]):
            _locked(source, item, found)
        found.complete = True
    else:
        raise InputError(
            f"{source.name} is not a conda environment: it has no key dependencies",
            hint="lint reads environment.yml and conda-lock.yml",
        )
    return [found.environment()], sources


class Found:
    """The packages that conda and pip install together in one conda environment."""

    def __init__(self) -> None:
        self.collected = Collected()
        self.python: Stated | None = None
        self.libraries: dict[str, Stated | None] = {}
        self.complete = False
        self.for_gpu = False

    def add_spec(self, text: str, place: Place) -> None:
        """Add a package as environment.yml asks for it."""
        match = _SPEC.fullmatch(text.strip())
        if match is None:
            name = re.match(r"[\w.-]+", text.strip().rpartition("::")[2])
            self.add(name[0] if name else "", "", place)
        else:
            self.add(match["name"], (match["version"] or "").removesuffix(".*"), place)

    def add(self, name: str, version: str, place: Place) -> None:
        """Add a package of conda. version: empty if it is not known."""
        name = normalized(name) if name else ""
        stated = Stated(version, place) if version else None
        if name == "python":
            self.python = stated
        elif name in (*_CUDA, "cudnn"):
            self.libraries[name] = stated
        elif name:
            self.collected.add(
                Pin(name, specifier(f"=={version}") if version else None, place, from_conda=True)
            )

    def environment(self, name: str = "") -> Environment:
        """Return what was found, as an environment of this name."""
        cuda = next((self.libraries[name] for name in _CUDA if self.libraries.get(name)), None)
        return Environment(
            self.collected.all(),
            python=self.python,
            cuda=cuda,
            cudnn=self.libraries.get("cudnn"),
            for_gpu=self.for_gpu or bool(self.libraries),
            complete=self.complete,
            name=name,
        )


def _pip(source: Source, directory: Path, node: Node, found: Found) -> list[Source]:
    """Read what pip installs. Return the requirements files that it includes, relative to the directory."""
    python = found.python.value if found.python else None
    pythons = markers.pythons(python or ">=2")
    texts = [
        (str(item.value).partition(" #")[0].strip(), item)
        for item in items(node)
        if isinstance(item, ScalarNode)
    ]
    other_index = any(is_other_index(text) for text, _ in texts)
    sources: list[Source] = []
    asked = Collected()
    for text, item in texts:
        included = INCLUDE.fullmatch(text) or CONSTRAIN.fullmatch(text)
        if included is not None:
            if "://" in included["file"] or len(sources) >= MAX_FILES:
                continue
            read = read_requirements(directory / included["file"], python)
            sources += read.sources
            other_index = other_index or read.other_index
            for pin in read.collected.all():
                asked.add(replace(pin, constraint=True) if included.re is CONSTRAIN else pin)
            continue
        found_pin = pin_of(text, place_of(source, item), pythons)
        if found_pin is not None:
            asked.add(found_pin)
    for pin in asked.all():
        # pip installs over what conda installed.
        found.collected.add(from_other_index(pin) if other_index else pin, later=True)
    return sources


def _locked(source: Source, node: Node, found: Found) -> None:
    """Read one entry of a conda-lock.yml."""
    if not isinstance(node, MappingNode):
        return
    values = {
        name: (str(value.value), value)
        for name, (_, value) in keys_of(node).items()
        if isinstance(value, ScalarNode)
    }
    if "name" not in values or "version" not in values or values.get("platform", (_LINUX,))[0] != _LINUX:
        return
    name, (version, place) = values["name"][0], values["version"]
    if values.get("manager", ("conda",))[0] == "pip":
        pin = Pin(normalized(name), specifier(f"=={version}"), place_of(source, place))
        found.collected.add(pin, later=True)
    else:
        found.add(name, version, place_of(source, place))
