"""A profile of the matrix as cells: image specs x host classes, less what is excluded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..compat.predict import predict
from ..errors import InputError
from ..model.prediction import PlannedCell
from ..model.spec import Cell, HostClass, ImageSpec, Variant
from .load import DEFAULT_PROFILE, Exclusion, Matrix, Profile
from .problems import not_known
from .selection import Scope, Selector

#: Where a Python (`3.12`) comes from on this machine, or None when it can't be provided.
Available = Callable[[str], str | None]


@dataclass(frozen=True)
class ExcludedCell:
    """A cell that the matrix leaves out, with the reason it gives and the address it names."""

    cell: Cell
    reason: str
    link: str | None = None


@dataclass(frozen=True)
class Expansion:
    """The cells of a profile and the cells it would have but for an exclusion, each in order.

    predicted: the selectors on predictions, which are left to whoever predicts.
    """

    cells: tuple[Cell, ...]
    excluded: tuple[ExcludedCell, ...]
    predicted: tuple[Selector, ...] = ()


def expand(
    matrix: Matrix,
    profile: str | None,
    *,
    select: Iterable[Selector] = (),
    available: Available | None = None,
) -> Expansion:
    """The cells of a profile (None: of the whole matrix) that all selectors hold for.

    The order is that of `order`: newest TensorFlow first, each image with its hosts by driver. An image for
    a GPU is paired with the host classes that have one, a cpu image with the one that has none.

    available: says whether a Python can be provided, for a profile that takes the first available one (it
        is taken among those the selectors leave). Where none of them can be, the first is taken, and the
        engine says why it can't be built. None: every Python can be provided.

    Raises InputError for an unknown profile.
    """
    chosen = find_profile(matrix, profile)
    selectors = (*chosen.select, *select)
    images = [image for image in matrix.images if _holds(selectors, Scope.IMAGE, image)]
    hosts = [host for host in matrix.hosts if _holds(selectors, Scope.HOST, host)]
    exclusions = _Exclusions(matrix.exclusions, hosts)
    if chosen.first_available:
        images = _first_available(images, chosen.first_available, available, exclusions)
    cells: list[Cell] = []
    excluded: list[ExcludedCell] = []
    for image in images:
        gpu = image.variant is Variant.GPU
        reasons = exclusions.of(image)
        for host in hosts:
            if host.has_gpu is not gpu:
                continue
            cell = Cell(image, host)
            exclusion = reasons.get(host.identifier)
            if exclusion is None:
                cells.append(cell)
            else:
                excluded.append(ExcludedCell(cell, exclusion.reason, exclusion.link))
    predicted = tuple(selector for selector in selectors if selector.scope is Scope.PREDICTION)
    return Expansion(tuple(cells), tuple(excluded), predicted)


def find_profile(matrix: Matrix, name: str | None) -> Profile:
    """The profile of that name; for None, one that takes the whole matrix. Raises InputError."""
    if name is None:
        return Profile("")
    if name not in matrix.profiles:
        raise InputError(f"{matrix.file}: {not_known(name, matrix.profiles, 'the profile')}")
    return matrix.profiles[name]


class _Exclusions:
    """Which host classes are excluded for an image, and by which exclusion (the first in the file)."""

    def __init__(self, exclusions: Sequence[Exclusion], hosts: Sequence[HostClass]) -> None:
        self.rows = [
            (exclusion, [host.identifier for host in hosts if _holds(exclusion.select, Scope.HOST, host)])
            for exclusion in exclusions
        ]

    def of(self, image: ImageSpec) -> dict[str, Exclusion]:
        found: dict[str, Exclusion] = {}
        for exclusion, hosts in self.rows:
            if _holds(exclusion.select, Scope.IMAGE, image):
                for host in hosts:
                    found.setdefault(host, exclusion)
        return found

    def wholly(self, image: ImageSpec) -> bool:
        """Whether the image is excluded whatever the host."""
        return any(
            all(selector.scope is Scope.IMAGE for selector in exclusion.select)
            and _holds(exclusion.select, Scope.IMAGE, image)
            for exclusion, _ in self.rows
        )


def _first_available(
    images: Sequence[ImageSpec],
    preferred: Sequence[str],
    available: Available | None,
    exclusions: _Exclusions,
) -> list[ImageSpec]:
    """Of images that differ in the Python alone, the one with the first Python that is available."""
    groups: dict[ImageSpec, list[ImageSpec]] = {}
    for image in images:
        if image.python in preferred:
            groups.setdefault(replace(image, python=""), []).append(image)
    chosen = []
    for group in groups.values():
        by_python = {image.python: image for image in group}
        ranked = [by_python[python] for python in preferred if python in by_python]
        wanted = [image for image in ranked if not exclusions.wholly(image)] or ranked
        # Lazily: to ask an engine for a Python may mean to ask a registry, or to start an interpreter.
        provided = (image for image in wanted if available is None or available(image.python) is not None)
        chosen.append(next(provided, wanted[0]))
    return chosen


def _holds(selectors: Iterable[Selector], scope: Scope, item: ImageSpec | HostClass) -> bool:
    return all(selector.holds(item) for selector in selectors if selector.scope is scope)


# Cells with their predictions: what `plan` shows and everything after it starts from.

#: The wheels of an image's lock, name to version, or None where there is no lock yet.
Wheels = Callable[[ImageSpec], Mapping[str, str] | None]


@dataclass(frozen=True)
class Plan:
    """The cells of a profile with their predictions, and the cells it leaves out."""

    cells: tuple[PlannedCell, ...]
    excluded: tuple[ExcludedCell, ...]

    @property
    def images(self) -> tuple[ImageSpec, ...]:
        """The images of the cells, each once, in order."""
        return tuple(dict.fromkeys(planned.cell.image for planned in self.cells))


def plan(
    matrix: Matrix,
    profile: str | None = DEFAULT_PROFILE,
    *,
    select: Iterable[Selector] = (),
    available: Available | None = None,
    wheels: Wheels | None = None,
) -> Plan:
    """Plan a profile: expand it, predict every cell, keep those that the selectors hold for.

    wheels: looks up what an image's lock holds, so that the prediction speaks of those versions; asked once
        an image. The other parameters are those of `expand`. Raises InputError for an unknown profile.
    """
    expansion = expand(matrix, profile, select=select, available=available)
    planned = []
    image, locked = None, None  # type: ImageSpec | None, Mapping[str, str] | None
    for cell in expansion.cells:
        if cell.image is not image:
            image = cell.image
            locked = wheels(image) if wheels else None
        prediction = predict(cell, locked)
        if all(selector.holds(prediction.outcome) for selector in expansion.predicted):
            planned.append(PlannedCell(cell, prediction))
    return Plan(tuple(planned), expansion.excluded)
