"""Plan a profile of the matrix: its cells (image specs x host classes) with their predictions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..compat.predict import predict
from ..errors import InputError
from ..model.prediction import PlannedCell
from ..model.spec import Cell, HostClass, ImageSpec
from .document import unknown_name
from .load import DEFAULT_PROFILE, Exclusion, Matrix, Profile, Scope, Selector

#: Returns where a Python (`3.12`) comes from on this machine, or None if it can't be provided.
Available = Callable[[str], str | None]


@dataclass(frozen=True)
class ExcludedCell:
    """A cell that the matrix leaves out, with the reason and the address that it gives."""

    cell: Cell
    reason: str
    link: str | None = None


@dataclass(frozen=True)
class Expansion:
    """The cells of a profile and the cells that were excluded from it, each in order.

    predicted: the selectors on predictions, which `plan` applies. instead: the Pythons, in order, that are
    used where an engine can't provide the one of the images.
    """

    cells: tuple[Cell, ...]
    excluded: tuple[ExcludedCell, ...]
    predicted: tuple[Selector, ...] = ()
    instead: tuple[str, ...] = ()


def expand(
    matrix: Matrix,
    profile: str | None,
    *,
    select: Iterable[Selector] = (),
    available: Available | None = None,
) -> Expansion:
    """Return the cells of a profile (None: of the whole matrix) for which all selectors hold.

    The newest TensorFlow comes first, and each image has its hosts by driver. An image for a GPU is combined
    with the host classes that have one, a cpu image with the one that has none.

    available: looks up a Python, for a profile that uses the first available one of those that the selectors
        leave. If none is available, the first is used, and the engine says why it can't be built. None: every
        Python is available.

    Raises InputError for an unknown profile.
    """
    chosen = find_profile(matrix, profile)
    selectors = (*chosen.select, *select)
    images = [image for image in matrix.images if _holds(selectors, Scope.IMAGE, image)]
    hosts = [host for host in matrix.hosts if _holds(selectors, Scope.HOST, host)]
    pythons = {image.python for image in images}
    if chosen.first_available:
        images = _first_available(images, chosen.first_available, available, matrix.exclusions)
    left_out = [
        (exclusion, [host.identifier for host in hosts if _holds(exclusion.select, Scope.HOST, host)])
        for exclusion in matrix.exclusions
    ]
    cells: list[Cell] = []
    excluded: list[ExcludedCell] = []
    for image in images:
        # The first exclusion in the file gives the reason.
        reasons: dict[str, Exclusion] = {}
        for exclusion, excluding in left_out:
            if _holds(exclusion.select, Scope.IMAGE, image):
                reasons = dict.fromkeys(excluding, exclusion) | reasons
        for host in hosts:
            if host.has_gpu is image.variant.has_cuda:
                cell = Cell(image, host)
                if why := reasons.get(host.identifier):
                    excluded.append(ExcludedCell(cell, why.reason, why.link))
                else:
                    cells.append(cell)
    predicted = tuple(selector for selector in selectors if selector.scope is Scope.PREDICTION)
    left = pythons - {image.python for image in images}
    instead = tuple(python for python in chosen.first_available if python in left)
    return Expansion(tuple(cells), tuple(excluded), predicted, instead)


def find_profile(matrix: Matrix, name: str | None) -> Profile:
    """Return the profile of that name, or for None one that takes the whole matrix. Raises InputError."""
    if name is None:
        return Profile("")
    if name not in matrix.profiles:
        raise InputError(f"{matrix.file}: {unknown_name(name, matrix.profiles, 'the profile')}")
    return matrix.profiles[name]


def _excludes(exclusion: Exclusion, image: ImageSpec) -> bool:
    """Return True when the image is excluded on every host."""
    everywhere = all(selector.scope is Scope.IMAGE for selector in exclusion.select)
    return everywhere and _holds(exclusion.select, Scope.IMAGE, image)


def _first_available(
    images: Sequence[ImageSpec],
    preferred: Sequence[str],
    available: Available | None,
    exclusions: Sequence[Exclusion],
) -> list[ImageSpec]:
    """Among images that differ only in their Python, keep the one with the first Python that is available."""
    groups: dict[ImageSpec, list[ImageSpec]] = {}
    for image in images:
        if image.python in preferred:
            groups.setdefault(replace(image, python=""), []).append(image)
    chosen = []
    for group in groups.values():
        by_python = {image.python: image for image in group}
        ranked = [by_python[python] for python in preferred if python in by_python]
        wanted = [image for image in ranked if not any(_excludes(one, image) for one in exclusions)] or ranked
        # Look it up only when needed, because an engine may have to ask a registry or start an interpreter.
        provided = (image for image in wanted if available is None or available(image.python) is not None)
        chosen.append(next(provided, wanted[0]))
    return chosen


def _holds(selectors: Iterable[Selector], scope: Scope, item: ImageSpec | HostClass) -> bool:
    return all(selector.holds(item) for selector in selectors if selector.scope is scope)


# Predictions for the cells.

#: Returns the wheels of an image's lock, name to version, or None if there is no lock yet.
Wheels = Callable[[ImageSpec], Mapping[str, str] | None]


@dataclass(frozen=True)
class Plan:
    """The cells of a profile with their predictions, and the excluded cells. instead: see `Expansion`."""

    cells: tuple[PlannedCell, ...]
    excluded: tuple[ExcludedCell, ...]
    instead: tuple[str, ...] = ()

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
    """Plan a profile: expand it, predict every cell, and keep those for which the selectors hold.

    wheels: returns the wheels of an image's lock, so that the prediction is about those versions. It is
        called once for each image. The other parameters are those of `expand`. Raises InputError for an
        unknown profile.
    """
    expansion = expand(matrix, profile, select=select, available=available)
    return Plan(tuple(predictions(expansion, wheels)), expansion.excluded, expansion.instead)


def predictions(expansion: Expansion, wheels: Wheels | None = None) -> Iterator[PlannedCell]:
    """Predict an expansion's cells one by one, and yield those that are selected. wheels: as for `plan`."""
    image, locked = None, None  # type: ImageSpec | None, Mapping[str, str] | None
    for cell in expansion.cells:
        if cell.image is not image:
            image = cell.image
            locked = wheels(image) if wheels else None
        prediction = predict(cell, locked)
        if all(selector.holds(prediction) for selector in expansion.predicted):
            yield PlannedCell(cell, prediction)


# A plan in the form that GitHub Actions reads for `strategy.matrix`, through `fromJSON`.

#: Jobs that one matrix may have in a workflow run (GitHub Docs, "Running variations of jobs in a workflow").
MAX_JOBS = 256


def github_rows(planned: Sequence[PlannedCell]) -> list[dict[str, Any]]:
    """Return one row for each cell, in the order of the plan.

    A row has `id`, `image`, `host`, `tensorflow`, `python`, `variant`, `prediction` (its word) and
    `runner`, a list of labels for `runs-on`.
    """
    return [
        {
            "id": each.cell.identifier,
            **_image(each.cell.image),
            "host": each.cell.host.identifier,
            "prediction": each.prediction.word,
            "runner": list(each.cell.host.runner),
        }
        for each in planned
    ]


def github_matrices(planned: Sequence[PlannedCell]) -> list[dict[str, list[dict[str, Any]]]]:
    """Return `{"include": [...]}` with the rows of all cells: one if they fit into it, else several."""
    rows = github_rows(planned)
    return [{"include": rows[at : at + MAX_JOBS]} for at in range(0, len(rows), MAX_JOBS)] or [
        {"include": []}
    ]


def github_image_matrix(images: Sequence[ImageSpec]) -> dict[str, list[dict[str, Any]]]:
    """Return the same with one row for each image, for jobs that build.

    A row has `image`, `tensorflow`, `python` and `variant`. Raises InputError for more images than GitHub
    allows.
    """
    if len(images) > MAX_JOBS:
        raise InputError(
            f"the plan has {len(images):,} images, but GitHub runs at most {MAX_JOBS} jobs of one matrix",
            hint="select fewer, for example with --select tensorflow=newest or --select prediction=works",
        )
    return {"include": [_image(image) for image in images]}


def _image(image: ImageSpec) -> dict[str, Any]:
    return {
        "image": image.identifier,
        "tensorflow": image.tensorflow,
        "python": image.python,
        "variant": image.variant.value,
    }
