"""Plan a profile of the matrix: its cells (image specs x host classes) with their predictions.

`for_machine` chooses the image to build on one machine, or without a GPU, the one for most machines.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..compat import hardware, policies
from ..compat.offers import first_usable, rank
from ..compat.predict import predict
from ..compat.releases import release
from ..errors import InputError
from ..model.prediction import EAGER, EAGER_ONLY, XLA, Outcome, PlannedCell, Prediction
from ..model.spec import RECOMMENDED, Cell, HostClass, ImageSpec, Variant, host_identifier
from ..versions import ComputeCapability, DriverRelease, is_numbers, leading_numbers
from .document import join_words, unknown_name
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

    @property
    def hosts(self) -> tuple[HostClass, ...]:
        """The host classes of the cells, each once, in order."""
        return tuple(dict.fromkeys(planned.cell.host for planned in self.cells))


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


# Choose the image to build on a machine.

#: The Pythons to prefer where a profile has no order of its own.
_PYTHONS = ("3.12", "3.11", "3.13", "3.10")


@dataclass(frozen=True)
class Chosen:
    """An image, and why it is built. profile: the first that has it, the default one before others."""

    image: ImageSpec
    profile: str | None
    why: str


def choose_image(images: Iterable[ImageSpec], hosts: Sequence[HostClass]) -> ImageSpec:
    """Return the first image that is predicted to work on all of these host classes.

    If there is none, return the first whose eager operations work, otherwise simply the first.

    images: the newest TensorFlow first, at least one with CUDA. For each release, the recommended CUDA
    and cuDNN come first, then the newest ones, then a common Python. Candidates and images whose CUDA changes
    from lock to lock are left out.
    """
    ordered = _in_order(images, _PYTHONS)
    return first_usable(ordered, lambda image: _on_all(image, hosts)) or ordered[0]


def for_machine(
    matrix: Matrix, hosts: Sequence[HostClass], machine: str, available: Available | None = None
) -> Chosen | None:
    """Return the image for a machine, like that of the default profile but of any release and policy.

    If the default profile's image is predicted to work there, or nothing works better, return it. Return None
    unless that profile has exactly one image, with CUDA.

    hosts: the host class of each kind of GPU; without any, the image is for most data-center GPUs. machine:
    how a sentence names it (`driver 580.65.06 with Tesla T4 (7.5)`), or without a GPU, why none was found.
    available: as for `plan.expand`.
    """
    profile = find_profile(matrix, DEFAULT_PROFILE)
    images = dict.fromkeys(cell.image for cell in expand(matrix, DEFAULT_PROFILE, available=available).cells)
    if len(images) != 1 or not next(iter(images)).variant.has_cuda:
        return None
    [usual] = images
    # Remember the answers: an engine may have to ask a registry for each Python.
    provides = functools.cache(available) if available is not None else None
    others = _like(matrix, profile, usual, provides)
    if not hosts:
        return Chosen(
            usual, DEFAULT_PROFILE,
            f"No GPU was found: {machine}. This builds {usual}{_for_most(usual, others, matrix)}.",
        )  # fmt: skip
    best = first_usable([usual, *others], lambda image: _on_all(image, hosts))
    why = f"This builds {best or usual} for this machine ({machine})"
    if best is None:
        why += f", although no image of {matrix.file} is expected to work there: {_against(usual, hosts)}"
    elif best != usual:
        eager = all(prediction.eager is Outcome.WORKS for prediction in _on_all(usual, hosts))
        works = f"is {EAGER_ONLY} there" if eager else "does not work there"
        why += f", because {usual}, the default, {works}: {_against(usual, hosts)}"
    chosen = best or usual
    if best is not None and (limits := list(_limits(chosen, hosts))):
        why += f"{', where' if chosen == usual else ';'} {'; '.join(limits)}"
    return Chosen(chosen, _profile_of(matrix, chosen), f"{why}.")


def _like(matrix: Matrix, profile: Profile, usual: ImageSpec, available: Available | None) -> list[ImageSpec]:
    """Return the images that differ from one only in release, CUDA, cuDNN and Python, in order."""
    whole = replace(profile, select=())
    cells = expand(replace(matrix, profiles={profile.name: whole}), profile.name, available=available).cells
    kind = (usual.variant, usual.base, usual.additions)
    images = dict.fromkeys(
        cell.image for cell in cells if (cell.image.variant, cell.image.base, cell.image.additions) == kind
    )
    return _in_order(images, profile.first_available or (usual.python, *_PYTHONS))


def _in_order(images: Iterable[ImageSpec], pythons: Sequence[str]) -> list[ImageSpec]:
    candidates = [
        image
        for image in images
        if image.variant is not Variant.CPU
        and is_numbers(image.tensorflow)
        and not any(choice.floats for choice in (image.cuda, image.cudnn) if choice)
    ]
    releases = list(dict.fromkeys(image.tensorflow for image in candidates))

    def order(image: ImageSpec) -> tuple[object, ...]:
        versions = [
            tuple(-number for number in leading_numbers(choice.version))
            for choice in (image.cuda, image.cudnn)
            if choice
        ]
        python = pythons.index(image.python) if image.python in pythons else len(pythons)
        recommended = policies.choose(release(image.tensorflow), RECOMMENDED, RECOMMENDED)
        return releases.index(image.tensorflow), (image.cuda, image.cudnn) != recommended, versions, python

    return sorted(candidates, key=order)


def _on_all(image: ImageSpec, hosts: Sequence[HostClass]) -> list[Prediction]:
    return [predict(Cell(image, host)) for host in hosts]


def _against(image: ImageSpec, hosts: Sequence[HostClass]) -> str:
    """Return the first reason against an image on the host where it works worst."""
    worst = max(_on_all(image, hosts), key=lambda prediction: (rank(prediction)[1], rank(prediction)))
    # What speaks only against XLA is not why eager operations don't work.
    modes = (None, EAGER) if worst.eager is not Outcome.WORKS else (None, XLA)
    against = (reason for reason in worst.reasons if reason.outcome is not Outcome.WORKS)
    return next(reason.sentence for reason in against if reason.mode in modes)


def _limits(image: ImageSpec, hosts: Sequence[HostClass]) -> Iterator[str]:
    """Yield clauses about the GPUs on which only eager operations are known to work, each with the reason."""
    for outcome, says in (
        (Outcome.FAILS, f"it is {EAGER_ONLY}"),
        (Outcome.UNKNOWN, f"it may be {EAGER_ONLY}"),
    ):
        limited = [host for host in hosts if predict(Cell(image, host)).xla is outcome]
        if limited:
            names = [host.gpu or f"compute capability {host.compute_capability}" for host in limited]
            where = f"on {join_words(names)} " if len(hosts) > 1 else ""
            yield f"{where}{says}: {_against(image, limited)}"


def _profile_of(matrix: Matrix, image: ImageSpec) -> str | None:
    names = (DEFAULT_PROFILE, *(name for name in matrix.profiles if name != DEFAULT_PROFILE))
    return next(
        (name for name in names if any(cell.image == image for cell in expand(matrix, name).cells)), None
    )


# The image for most machines, and those that it is not for.


def _for_most(image: ImageSpec, others: Sequence[ImageSpec], matrix: Matrix) -> str:
    """Return a clause about the data-center GPUs that an image is for, and which image the others need."""
    words: dict[str, list[ComputeCapability]] = {}
    for capability in _models():
        words.setdefault(_at_best(image, capability).word, []).append(capability)
    works, eager = words.pop(Outcome.WORKS.value, []), words.pop(EAGER_ONLY, [])
    text = f", for data-center GPUs from {_span(works)}" if works else ""
    text += f" ({EAGER_ONLY}: {_span(eager)})" if eager else ""
    elsewhere: dict[ImageSpec, list[ComputeCapability]] = {}
    for capability in sorted(itertools.chain(*words.values())):
        works_there = (other for other in others if _at_best(other, capability).outcome is Outcome.WORKS)
        if (other := next(works_there, None)) is not None:
            elsewhere.setdefault(other, []).append(capability)
    for other, capabilities in reversed(elsewhere.items()):
        name = _profile_of(matrix, other)
        profile = f"--profile {name} " if name not in (None, DEFAULT_PROFILE) else ""
        names = join_words([name for capability in capabilities for name in _models()[capability]])
        newer = others[: others.index(other)]
        for_eager = all(
            any(_at_best(one, capability).eager is Outcome.WORKS for one in newer)
            for capability in capabilities
        )
        needed = f"{_difference(other, image)}{' for XLA' if for_eager else ''}"
        text += f"; not for {names}, which need {needed}: {profile}--select image={other}"
    return text


def _difference(image: ImageSpec, usual: ImageSpec) -> str:
    """Return the versions of an image that are not those of another one: its release, or CUDA and cuDNN."""
    if image.tensorflow != usual.tensorflow:
        return f"TensorFlow {image.tensorflow}"
    pairs = (("CUDA", image.cuda, usual.cuda), ("cuDNN", image.cudnn, usual.cudnn))
    return join_words([f"{name} {own.version}" for name, own, other in pairs if own and own != other])


def _span(capabilities: Sequence[ComputeCapability]) -> str:
    """Return the first and the last model of ascending compute capabilities: `T4 to H200`."""
    return f"{_models()[capabilities[0]][0]} to {_models()[capabilities[-1]][-1]}"


@functools.cache
def _models() -> dict[ComputeCapability, list[str]]:
    """Return the names of the data-center GPUs by compute capability, in ascending order."""
    names: dict[ComputeCapability, list[str]] = {}
    for model in sorted(hardware.gpus(), key=lambda model: model.compute_capability):
        if model.data_center:
            names.setdefault(model.compute_capability, []).append(model.name)
    return names


@functools.lru_cache(maxsize=1024)
def _at_best(image: ImageSpec, capability: ComputeCapability) -> Prediction:
    """Return the best prediction for an image on a GPU with any driver, with the fewest reasons to fail."""

    def order(prediction: Prediction) -> tuple[object, ...]:
        return rank(prediction), sum(reason.outcome is Outcome.FAILS for reason in prediction.reasons)

    releases = [DriverRelease(branch.number) for branch in hardware.branches()]
    hosts = [HostClass(host_identifier(driver, None, capability), driver, capability) for driver in releases]
    return min((predict(Cell(image, host)) for host in hosts), key=order)
