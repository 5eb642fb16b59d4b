"""Reads a matrix file: bytes, text, nodes, shape, meaning. All that is wrong with it is told at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, TypeVar

from pydantic import BaseModel

from ..model.spec import NO_GPU, Choice, HostClass, ImageSpec, Variant
from ..versions import Version, leading_numbers
from .hosts import resolve_hosts
from .images import PYTHON, resolve_images
from .nodes import MAX_BYTES, Entries, Findings, Items, Path, parse
from .problems import MatrixError, Problem, quote
from .schema import ExcludeEntry, HostEntry, ImageEntry, ProfileEntry
from .selection import Scope, Selector, SelectorError, parse_selector
from .shape import check_shape, entry

_M = TypeVar("_M", bound=BaseModel)

#: Images x host classes of one file, before anything is selected.
MAX_CELLS = 1_000_000


def load_matrix(path: str | FilePath) -> Matrix:
    """Read a matrix file.

    Raises MatrixError with every problem found and its position, or saying why the file can't be read.
    """
    return parse_matrix(_read(FilePath(path)), str(path))


def parse_matrix(content: bytes, file: str = "matrix.yaml") -> Matrix:
    """Read the content of a matrix file. file: what messages call it. Raises MatrixError."""
    root = parse(_decode(content, file), file)
    if root is None:
        raise MatrixError(file, [Problem(1, 1, "", "the file is empty")])
    findings = Findings(file, root)
    check_shape(findings)
    matrix = _Reader(findings).matrix()
    findings.raise_if_any()
    return matrix


def _read(path: FilePath) -> bytes:
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        # ValueError: a name that no file can have, with a NUL in it.
        said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise MatrixError(
            str(path),
            [Problem(0, 0, "", f"can't be read: {said}")],
            hint="name the matrix file with --matrix PATH",
        ) from None
    if len(content) > MAX_BYTES:
        message = f"is larger than {MAX_BYTES:,} bytes"
        raise MatrixError(str(path), [Problem(0, 0, "", message)])
    return content


def _decode(content: bytes, file: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # A byte order mark is cut off before offsets are counted.
        offset = error.start + len(content) - len(error.object)
        before = content[:offset]
        line = before.count(b"\n") + 1
        column = len(before[before.rfind(b"\n") + 1 :].decode("utf-8-sig")) + 1
        message = f"not UTF-8: the byte 0x{content[offset]:02x} at offset {offset}"
        raise MatrixError(file, [Problem(line, column, "", message)], hint="save the file as UTF-8") from None


class _Reader:
    """The sections of one document; an entry that has not the right shape is passed over."""

    def __init__(self, findings: Findings) -> None:
        self.findings = findings
        self.sections = findings.root.entries if isinstance(findings.root, Entries) else {}

    def matrix(self) -> Matrix:
        images = in_order(resolve_images(self._list("images", ImageEntry), self.findings))
        hosts = hosts_in_order(resolve_hosts(self._list("hosts", HostEntry), self.findings))
        self._check_together(images, hosts)
        return Matrix(self.findings.file, images, hosts, self._profiles(), self._exclusions())

    def _list(self, section: str, model: type[_M]) -> dict[int, _M]:
        node = self.sections[section][1] if section in self.sections else None
        items = enumerate(node.items) if isinstance(node, Items) else ()
        found = {number: value for number, item in items if (value := entry(model, item)) is not None}
        for number, value in found.items():
            self._refuse_repeats(value, (section, number))
        return found

    def _refuse_repeats(self, value: BaseModel, path: Path) -> None:
        for name, values in value:
            if isinstance(values, list):
                for index, text in enumerate(values):
                    if text in values[:index]:
                        self.findings.add((*path, name, index), f"{quote(text)} is in this list already")

    def _check_together(self, images: tuple[ImageSpec, ...], hosts: tuple[HostClass, ...]) -> None:
        if self.findings.problems:
            return  # what is missing here may only be what was wrong above
        if len(images) * len(hosts) > MAX_CELLS:
            message = (
                f"{len(images):,} images on {len(hosts):,} host classes are more than {MAX_CELLS:,} cells"
            )
            self.findings.add((), message)
        variants = {image.variant for image in images}
        if Variant.CPU in variants and all(host.has_gpu for host in hosts):
            self.findings.add(("hosts",), "cpu images need a host without a GPU; add an entry gpu: none")
        if Variant.GPU in variants and not any(host.has_gpu for host in hosts):
            self.findings.add(("hosts",), f"gpu images need a host with a GPU; there is only {NO_GPU}")

    def _profiles(self) -> dict[str, Profile]:
        node = self.sections["profiles"][1] if "profiles" in self.sections else None
        profiles = {}
        for name, (_, value) in node.entries.items() if isinstance(node, Entries) else ():
            found = entry(ProfileEntry, value)
            if found is not None:
                path = ("profiles", name)
                self._refuse_repeats(found, path)
                selectors = self._selectors(found.select, (*path, "select"))
                pythons = self._pythons(found.first_available_python, (*path, "first_available_python"))
                profiles[name] = Profile(name, found.description, selectors, pythons)
        return profiles

    def _pythons(self, values: list[str], path: Path) -> tuple[str, ...]:
        for index, value in enumerate(values):
            if not PYTHON.fullmatch(value):
                self.findings.add((*path, index), f'{quote(value)} is not a Python version (expected "3.12")')
        return tuple(values)

    def _exclusions(self) -> tuple[Exclusion, ...]:
        exclusions = []
        for number, found in self._list("exclude", ExcludeEntry).items():
            path = ("exclude", number, "select")
            selectors = self._selectors(found.select, path)
            for index, selector in enumerate(selectors):
                if selector.scope is Scope.PREDICTION:
                    self.findings.add((*path, index), "a prediction excludes nothing; select by it instead")
            exclusions.append(Exclusion(selectors, found.reason, found.link or None))
        return tuple(exclusions)

    def _selectors(self, texts: list[str], path: Path) -> tuple[Selector, ...]:
        good = []
        for index, text in enumerate(texts):
            try:
                good.append(parse_selector(text))
            except SelectorError as error:
                self.findings.add((*path, index), str(error))
        return tuple(good)


# A matrix that was read and found good.

#: The profile taken when none is named.
DEFAULT_PROFILE = "quick"


@dataclass(frozen=True)
class Profile:
    """A part of the matrix under a name.

    select: selectors that all must hold.
    first_available: Pythons in order of preference, of which each image takes the first that can be
        provided; empty when every Python is taken.
    """

    name: str
    description: str = ""
    select: tuple[Selector, ...] = ()
    first_available: tuple[str, ...] = ()


@dataclass(frozen=True)
class Exclusion:
    """Cells that are left out: those for which all selectors hold. `link` is an address, or None."""

    select: tuple[Selector, ...]
    reason: str
    link: str | None = None


@dataclass(frozen=True)
class Matrix:
    """Everything a matrix file asks for, expanded.

    file: the name it was read by, for messages.
    images, hosts: each identifier once, in the order that `order` gives.
    """

    file: str
    images: tuple[ImageSpec, ...]
    hosts: tuple[HostClass, ...]
    profiles: Mapping[str, Profile]
    exclusions: tuple[Exclusion, ...] = ()


# The order of images and host classes: the same for the same content, however the file lists it.


def in_order(images: Iterable[ImageSpec]) -> tuple[ImageSpec, ...]:
    """Newest TensorFlow first; gpu before cpu, CUDA and cuDNN upwards with what floats last, then Python."""
    by_axes = sorted(images, key=_axes)
    return tuple(sorted(by_axes, key=lambda image: Version(image.tensorflow), reverse=True))


def hosts_in_order(hosts: Iterable[HostClass]) -> tuple[HostClass, ...]:
    """Machines with a GPU first; by driver, compute capability, model and cuda-compat upwards."""
    return tuple(sorted(hosts, key=_host))


def _axes(image: ImageSpec) -> tuple[Any, ...]:
    return (
        image.variant is not Variant.GPU,
        _choice(image.cuda),
        _choice(image.cudnn),
        image.base or "",
        leading_numbers(image.python),
    )


def _host(host: HostClass) -> tuple[Any, ...]:
    return (
        not host.has_gpu,
        host.driver,
        host.compute_capability,
        host.gpu or "",
        leading_numbers(host.compat or "0"),
        host.identifier,
    )


def _choice(choice: Choice | None) -> tuple[Any, ...]:
    return (choice.floats, leading_numbers(choice.version)) if choice else ()
