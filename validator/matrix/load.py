"""Load a matrix file: its document, its shape, and the meaning of its entries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path as FilePath
from typing import Any

import msgspec

from ..model.spec import NO_GPU, Choice, HostClass, ImageSpec, Variant
from ..versions import Version, leading_numbers
from .document import Document, Path, parse_document, read_document
from .hosts import resolve_hosts
from .images import PYTHON, resolve_images
from .problems import Problem, quote
from .schema import ExcludeEntry, MatrixFile, ProfileEntry
from .selection import Scope, Selector, SelectorError, parse_selector
from .shape import check_shape

#: The default profile.
DEFAULT_PROFILE = "quick"

#: Images x host classes of one file, before anything is selected.
MAX_CELLS = 1_000_000


@dataclass(frozen=True)
class Profile:
    """A part of the matrix under a name.

    select: selectors that must all match.
    first_available: Pythons in order of preference, of which each image uses the first that can be
        provided; empty to use every Python.
    """

    name: str
    description: str = ""
    select: tuple[Selector, ...] = ()
    first_available: tuple[str, ...] = ()


@dataclass(frozen=True)
class Exclusion:
    """Cells that are left out: those for which all selectors hold. link: an address, or None."""

    select: tuple[Selector, ...]
    reason: str
    link: str | None = None


@dataclass(frozen=True)
class Matrix:
    """Everything that a matrix file asks for.

    file: the name of the file, for messages.
    warnings: what is allowed in the file, but probably wrong.
    images, hosts: each identifier once, in the order of `sort_images` and `sort_hosts`.
    """

    file: str
    images: tuple[ImageSpec, ...]
    hosts: tuple[HostClass, ...]
    profiles: Mapping[str, Profile]
    exclusions: tuple[Exclusion, ...] = ()
    warnings: tuple[Problem, ...] = ()


def load_matrix(path: str | FilePath) -> Matrix:
    """Load a matrix file.

    Raises MatrixError with every problem and its position, or with the reason why the file can't be read.
    """
    return _matrix(read_document(FilePath(path)))


def parse_matrix(content: bytes, file: str = "matrix.yaml") -> Matrix:
    """Load the content of a matrix file. file: its name for messages. Raises MatrixError."""
    return _matrix(parse_document(content, file))


def _matrix(document: Document) -> Matrix:
    file = check_shape(document, MatrixFile)
    for section in ("images", "hosts", "exclude"):
        for number, entry in enumerate(getattr(file, section)):
            _report_repeats(entry, (section, number), document)
    images = sort_images(resolve_images(file.images, document))
    hosts = sort_hosts(resolve_hosts(file.hosts, document))
    _check_together(images, hosts, document)
    profiles = {name: _profile(name, entry, document) for name, entry in file.profiles.items()}
    matrix = Matrix(document.file, images, hosts, profiles, _exclusions(file.exclude, document))
    document.raise_problems()
    # Reading an entry for several variants gives its warnings several times.
    return replace(matrix, warnings=tuple(dict.fromkeys(document.warnings)))


def _report_repeats(entry: msgspec.Struct, path: Path, document: Document) -> None:
    for name, values in msgspec.structs.asdict(entry).items():
        if isinstance(values, list):
            for index, text in enumerate(values):
                if text in values[:index]:
                    document.report((*path, name, index), f"{quote(text)} is already in this list")


def _check_together(images: tuple[ImageSpec, ...], hosts: tuple[HostClass, ...], document: Document) -> None:
    if document.problems:
        return  # what is missing here may be in an entry with a problem
    if len(images) * len(hosts) > MAX_CELLS:
        message = f"{len(images):,} images on {len(hosts):,} host classes are more than {MAX_CELLS:,} cells"
        document.report((), message)
    variants = {image.variant for image in images}
    if Variant.CPU in variants and all(host.has_gpu for host in hosts):
        document.report(("hosts",), "cpu images need a host without a GPU; add an entry gpu: none")
    if any(variant.has_cuda for variant in variants) and not any(host.has_gpu for host in hosts):
        document.report(("hosts",), f"gpu images need a host with a GPU; there is only {NO_GPU}")


def _profile(name: str, entry: ProfileEntry, document: Document) -> Profile:
    path = ("profiles", name)
    _report_repeats(entry, path, document)
    selectors = _selectors(entry.select, (*path, "select"), document)
    pythons = _pythons(entry.first_available_python, (*path, "first_available_python"), document)
    return Profile(name, entry.description, selectors, pythons)


def _pythons(values: list[str], path: Path, document: Document) -> tuple[str, ...]:
    for index, value in enumerate(values):
        if not PYTHON.fullmatch(value):
            document.report((*path, index), f'{quote(value)} is not a Python version (expected "3.12")')
    return tuple(values)


def _exclusions(entries: Iterable[ExcludeEntry], document: Document) -> tuple[Exclusion, ...]:
    exclusions = []
    for number, entry in enumerate(entries):
        path = ("exclude", number, "select")
        selectors = _selectors(entry.select, path, document)
        for index, selector in enumerate(selectors):
            if selector.scope is Scope.PREDICTION:
                message = "cells can't be excluded by their prediction; use this selector in a profile"
                document.report((*path, index), message)
        exclusions.append(Exclusion(selectors, entry.reason, entry.link or None))
    return tuple(exclusions)


def _selectors(texts: list[str], path: Path, document: Document) -> tuple[Selector, ...]:
    selectors = []
    for index, text in enumerate(texts):
        try:
            selectors.append(parse_selector(text))
        except SelectorError as error:
            document.report((*path, index), str(error))
    return tuple(selectors)


# The order of images and host classes, which does not depend on the order in the file.


def sort_images(images: Iterable[ImageSpec]) -> tuple[ImageSpec, ...]:
    """Sort by newest TensorFlow, variant, CUDA and cuDNN upwards with `latest` last, base, additions,
    Python.
    """
    by_axes = sorted(images, key=_image_order)
    return tuple(sorted(by_axes, key=lambda image: Version(image.tensorflow), reverse=True))


def sort_hosts(hosts: Iterable[HostClass]) -> tuple[HostClass, ...]:
    """Sort by machines with a GPU first, then driver, compute capability, model and cuda-compat upwards."""
    return tuple(sorted(hosts, key=_host_order))


_VARIANTS = (Variant.GPU, Variant.JUPYTER, Variant.CPU)


def _image_order(image: ImageSpec) -> tuple[Any, ...]:
    return (
        _VARIANTS.index(image.variant),
        _choice_order(image.cuda),
        _choice_order(image.cudnn),
        image.base or "",
        image.additions.label if image.additions else "",
        leading_numbers(image.python),
    )


def _host_order(host: HostClass) -> tuple[Any, ...]:
    return (
        not host.has_gpu,
        host.driver,
        host.compute_capability,
        host.gpu or "",
        leading_numbers(host.compat or "0"),
        host.identifier,
    )


def _choice_order(choice: Choice | None) -> tuple[Any, ...]:
    return (choice.floats, leading_numbers(choice.version)) if choice else ()
