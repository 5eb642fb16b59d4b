"""Read conda's environment.yml, and the lock that conda-lock writes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from yaml import MappingNode, Node, ScalarNode, SequenceNode

from ..errors import InputError
from ..matrix.document import keys_of, parse_document
from ..matrix.problems import MatrixError
from ..model.finding import Place
from . import markers
from .environment import Collected, Environment, Pin, Stated, normalized, specifier
from .requirements import from_other_index, is_other_index, pin_of
from .source import Source, read_source

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
    root = _root(source)
    keys = keys_of(root)
    found = _Found()
    if "dependencies" in keys:
        for item in _items(keys["dependencies"][1]):
            if isinstance(item, ScalarNode):
                found.add_spec(str(item.value), _place(source, item))
            elif isinstance(item, MappingNode) and "pip" in keys_of(item):
                _pip(source, keys_of(item)["pip"][1], found)
    elif "package" in keys:
        for item in _items(keys["package"][1]):
            _locked(source, item, found)
        found.complete = True
    else:
        raise InputError(
            f"{source.name} is not an environment of conda: it has no key dependencies",
            hint="lint reads environment.yml and conda-lock.yml",
        )
    return [found.environment()], [source]


class _Found:
    def __init__(self) -> None:
        self.collected = Collected()
        self.python: Stated | None = None
        self.libraries: dict[str, Stated | None] = {}
        self.complete = False

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

    def environment(self) -> Environment:
        """Return what was found."""
        cuda = next((self.libraries[name] for name in _CUDA if self.libraries.get(name)), None)
        return Environment(
            self.collected.all(),
            python=self.python,
            cuda=cuda,
            cudnn=self.libraries.get("cudnn"),
            for_gpu=bool(self.libraries),
            complete=self.complete,
        )


def _pip(source: Source, node: Node, found: _Found) -> None:
    pythons = markers.pythons(found.python.value if found.python else ">=2")
    texts = [(str(item.value), item) for item in _items(node) if isinstance(item, ScalarNode)]
    other_index = any(is_other_index(text) for text, _ in texts)
    for text, item in texts:
        pin = pin_of(text.partition(" #")[0], _place(source, item), pythons)
        if pin is not None:
            # pip installs over what conda installed.
            found.collected.add(from_other_index(pin) if other_index else pin, later=True)


def _locked(source: Source, node: Node, found: _Found) -> None:
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
        pin = Pin(normalized(name), specifier(f"=={version}"), _place(source, place))
        found.collected.add(pin, later=True)
    else:
        found.add(name, version, _place(source, place))


def _root(source: Source) -> MappingNode:
    try:
        root = parse_document(source.text.encode(), source.name).root
    except MatrixError as error:
        raise InputError(str(error)) from None
    if not isinstance(root, MappingNode):
        raise InputError(f"{source.name} is not a conda environment: it is not a mapping")
    return root


def _items(node: Node) -> Iterator[Node]:
    yield from node.value if isinstance(node, SequenceNode) else ()


def _place(source: Source, node: Node) -> Place:
    return Place(source.name, node.start_mark.line + 1, node.start_mark.column + 1)
