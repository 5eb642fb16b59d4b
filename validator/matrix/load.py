"""Load a matrix file: its document, its shape, and the meaning of its entries."""

from __future__ import annotations

import fnmatch
import functools
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path as FilePath
from typing import Any

import msgspec

from .. import versions
from ..compat import hardware, policies, releases
from ..compat.facts import UnknownGpu
from ..conditions import Comparison, Condition, NoneOf, Value, Wanted
from ..errors import InputError
from ..model.prediction import WORDS, Prediction
from ..model.spec import NO_GPU, POLICIES, Choice, HostClass, ImageSpec, Variant
from ..versions import Version, leading_numbers
from .document import (
    Document,
    Path,
    Problem,
    check_shape,
    join_words,
    parse_document,
    quote,
    read_document,
    unknown_name,
)
from .images import PYTHON, OwnReleases, refuse_own, resolve_hosts, resolve_images, shown
from .schema import ExcludeEntry, MatrixFile, ProfileEntry

#: The default profile.
DEFAULT_PROFILE = "quick"

#: Images x host classes of one file, before anything is selected.
MAX_CELLS = 1_000_000


@dataclass(frozen=True)
class Profile:
    """A part of the matrix under a name.

    select: selectors that must all match. first_available: Pythons in order of preference, of which each
    image uses the first that can be provided; empty to use every Python.
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

    file: the name of the file, for messages. warnings: what is allowed in the file, but probably wrong.
    images, hosts: each identifier once, in the order of `sort_images` and `sort_hosts`.
    """

    file: str
    images: tuple[ImageSpec, ...]
    hosts: tuple[HostClass, ...]
    profiles: Mapping[str, Profile]
    exclusions: tuple[Exclusion, ...] = ()
    warnings: tuple[Problem, ...] = ()


def load_matrix(path: str | FilePath, own: OwnReleases = refuse_own) -> Matrix:
    """Load a matrix file. own: inspects wheels of TensorFlow that no table lists.

    Raises MatrixError with every problem and its position, and MissingError if a wheel can't be downloaded.
    """
    return _matrix(read_document(FilePath(path)), own)


def parse_matrix(content: bytes, file: str = "matrix.yaml", own: OwnReleases = refuse_own) -> Matrix:
    """Load the content of a matrix file. file: its name for messages. Raises as `load_matrix`."""
    return _matrix(parse_document(content, file), own)


def _matrix(document: Document, own: OwnReleases) -> Matrix:
    file = check_shape(document, MatrixFile)
    for section in ("images", "hosts", "exclude"):
        for number, entry in enumerate(getattr(file, section)):
            _report_repeats(entry, (section, number), document)
    images = sort_images(resolve_images(file.images, document, own))
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
                    document.report((*path, name, index), f"{quote(shown(text))} is already in this list")


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
    for index, value in enumerate(entry.first_available_python):
        if not PYTHON.fullmatch(value):
            message = f'{quote(value)} is not a Python version (expected "3.12")'
            document.report((*path, "first_available_python", index), message)
    selectors = _selectors(entry.select, (*path, "select"), document)
    return Profile(name, entry.description, selectors, tuple(entry.first_available_python))


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
    return tuple(selector for _, selector in document.read_each(texts, path, parse_selector))


# The order of images and host classes, which does not depend on the order in the file.

_VARIANTS = (Variant.GPU, Variant.JUPYTER, Variant.CPU)


def sort_images(images: Iterable[ImageSpec]) -> tuple[ImageSpec, ...]:
    """Sort by newest TensorFlow, variant, CUDA and cuDNN with `latest` last, base, additions and Python."""

    def order(image: ImageSpec) -> tuple[Any, ...]:
        return (
            _VARIANTS.index(image.variant),
            *(
                (choice.floats, leading_numbers(choice.version)) if choice else ()
                for choice in (image.cuda, image.cudnn)
            ),
            image.base or "",
            image.additions.label if image.additions else "",
            leading_numbers(image.python),
        )

    by_axes = sorted(images, key=order)
    return tuple(sorted(by_axes, key=lambda image: Version(image.tensorflow), reverse=True))


def sort_hosts(hosts: Iterable[HostClass]) -> tuple[HostClass, ...]:
    """Sort by machines with a GPU first, then driver, compute capability, model and cuda-compat upwards."""

    def order(host: HostClass) -> tuple[Any, ...]:
        compat = leading_numbers(host.compat or "0")
        return not host.has_gpu, host.driver, host.compute_capability, host.gpu or "", compat, host.identifier

    return tuple(sorted(hosts, key=order))


# Selectors: `tensorflow>=2.20`, `python=3.11,3.12`, `host=r535-*`, for the command line (`--select`), for
# profiles and for exclusions. Each filters one axis, so their order does not matter.


class SelectorError(InputError, ValueError):
    """A selector that can't be read. The message quotes it."""


class Scope(Enum):
    """The kind of value that a selector filters."""

    IMAGE = "image"
    HOST = "host"
    PREDICTION = "prediction"


_OPERATORS = join_words(list(versions.OPERATORS))


@dataclass(frozen=True)
class Axis:
    """One key that a selector may have.

    read: returns the values that an image, a host class or a prediction has on this axis; an image for the
    CPU has no value for CUDA. equals: makes the test for a selector's value. Raises ValueError for a wrong
    value. comparer: makes the comparer for a selector's value, on axes with an order. Raises ValueError too.
    """

    scope: Scope
    read: (
        Callable[[ImageSpec], tuple[str, ...]]
        | Callable[[HostClass], tuple[str, ...]]
        | Callable[[Prediction], tuple[str, ...]]
    )
    equals: Callable[[str], Wanted]
    comparer: Callable[[str], versions.Comparer] | None = None


#: The name of an axis's value in a condition.
_VALUE = "value"


@dataclass(frozen=True)
class Selector:
    """A parsed selector."""

    text: str
    key: str
    condition: Condition

    @property
    def scope(self) -> Scope:
        return AXES[self.key].scope

    def holds(self, item: ImageSpec | HostClass | Prediction) -> bool:
        """Return True if an item matches. `!=` is exactly what `=` is not; `<` needs a value on the axis."""
        return _holds(self.condition, AXES[self.key].read(item))  # type: ignore[arg-type]

    def __str__(self) -> str:
        return self.text


@functools.lru_cache(maxsize=8192)
def _holds(condition: Condition, values: tuple[str, ...]) -> bool:
    found = tuple(Value({_VALUE: value}) for value in values)
    return condition.holds(lambda _: found)


def parse_selectors(texts: Iterable[str]) -> tuple[Selector, ...]:
    """Parse several selectors. Raises SelectorError for the first that is wrong."""
    return tuple(parse_selector(text) for text in texts)


def parse_selector(text: str) -> Selector:
    """Parse a key, an operator and a value; = and != take several, with commas. Raises SelectorError."""
    match = versions.OPERATOR_CHARACTERS.search(text)
    if not match:
        raise _error(text, "it has no operator (expected something like python=3.12)")
    key, operator, rest = text[: match.start()].strip(), match[0], text[match.end() :]
    axis = AXES.get(key)
    if axis is None:
        raise _error(text, unknown_name(key, AXES, "the key"))
    if operator not in versions.OPERATORS:
        raise _error(text, f"{quote(operator)} is not an operator; use {_OPERATORS}")
    values = [value.strip() for value in rest.split(",")]
    if "" in values:
        raise _error(text, "a value is missing")
    try:
        if operator in ("=", "==", "!="):
            equal = Comparison(key, {_VALUE: tuple(axis.equals(value) for value in values)})
            return Selector(text, key, NoneOf((equal,)) if operator == "!=" else equal)
        if axis.comparer is None:
            raise ValueError(f"{key} can't be compared by size; use = or !=")
        if len(values) > 1:
            raise ValueError(f"{operator} takes one value; write a selector for each")
        wanted = _ordered(operator, values[0], axis.comparer)
        return Selector(text, key, Comparison(key, {_VALUE: (wanted,)}))
    except ValueError as error:
        raise _error(text, str(error)) from None


def _error(text: str, what: str) -> SelectorError:
    return SelectorError(f"the selector {quote(text)}: {what}")


def _ordered(operator: str, wanted: str, comparer: Callable[[str], versions.Comparer]) -> Wanted:
    return Wanted(operator + wanted, versions.Range(((operator, comparer(wanted)),)))


def _same(comparer: Callable[[str], versions.Comparer]) -> Callable[[str], Wanted]:
    return lambda wanted: _ordered("=", wanted, comparer)


def _glob(wanted: str) -> Wanted:
    pattern = re.compile(fnmatch.translate(wanted.lower()))
    return Wanted(wanted, test=lambda found: pattern.match(found.lower()) is not None)


def _word(*known: str) -> Callable[[str], Wanted]:
    def read(wanted: str) -> Wanted:
        if wanted not in known:
            raise ValueError(unknown_name(wanted, known))
        return Wanted(wanted)

    return read


def _tensorflow(wanted: str) -> Wanted:
    if wanted == "newest":
        return Wanted(releases.newest().version)
    if wanted == "newest-patch":
        return Wanted(wanted, test=is_newest_patch)
    if wanted == "candidate":
        return Wanted(wanted, test=releases.is_candidate)
    return _ordered("=", wanted, versions.release_comparer)


@functools.cache
def is_newest_patch(version: str) -> bool:
    """Return True for a TensorFlow release that is the newest patch release of its minor version."""
    if versions.Version(version).is_prerelease or releases.origin_of(version):
        return False
    return releases.newest_patch(versions.major_minor(version)).version == version


def _gpu(wanted: str) -> Wanted:
    if any(char in wanted for char in "*?["):
        return _glob(wanted)
    try:
        return Wanted(hardware.gpu(wanted).slug)
    except UnknownGpu as error:
        raise ValueError(str(error)) from None


@functools.cache
def _policies_giving(tensorflow: str, cuda: str, cudnn: str) -> tuple[str, ...]:
    """Return all policies that give an image with this CUDA and cuDNN."""
    chosen = policies.by_policy(releases.release(tensorflow)).items()
    return tuple(policy for policy, pair in chosen if (pair[0].label, pair[1].label) == (cuda, cudnn))


def _policies(image: ImageSpec) -> tuple[str, ...]:
    if image.cuda is None or image.cudnn is None:
        return ()
    return _policies_giving(image.tensorflow, image.cuda.label, image.cudnn.label)


def _version(choice: Choice | None) -> tuple[str, ...]:
    return () if choice is None else (choice.version,)


_image = functools.partial(Axis, Scope.IMAGE)
_host = functools.partial(Axis, Scope.HOST)
_two_parts = functools.partial(versions.numbers_comparer, max_parts=2)

#: Every key that a selector may have.
AXES: dict[str, Axis] = {
    "image": _image(lambda image: (image.identifier,), _glob),
    "tensorflow": _image(lambda image: (image.tensorflow,), _tensorflow, versions.release_comparer),
    "python": _image(lambda image: (image.python,), _same(_two_parts), _two_parts),
    "variant": _image(lambda image: (image.variant.value,), _word(*(member.value for member in Variant))),
    "policy": _image(_policies, _word(*POLICIES)),
    "cuda": _image(lambda image: _version(image.cuda), _same(_two_parts), _two_parts),
    "cudnn": _image(lambda image: _version(image.cudnn), _same(_two_parts), _two_parts),
    "base": _image(lambda image: (image.base or "default",), _glob),
    "host": _host(lambda host: (host.identifier,), _glob),
    "driver": _host(
        lambda host: (str(host.driver),) if host.has_gpu else (),
        _same(versions.driver_comparer),
        versions.driver_comparer,
    ),
    "gpu": _host(lambda host: (host.gpu,) if host.gpu else (), _gpu),
    "compute_capability": _host(
        lambda host: (str(host.compute_capability),) if host.has_gpu else (), _same(_two_parts), _two_parts
    ),
    "compat": _host(lambda host: (host.compat,) if host.compat else (), _same(_two_parts), _two_parts),
    "prediction": Axis(Scope.PREDICTION, lambda prediction: (prediction.word,), _word(*WORDS)),
}
