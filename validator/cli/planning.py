"""Make a plan from the options that the commands with a matrix share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError, MissingError
from ..locks.lock_files import DIRECTORY, LockDirectory
from ..matrix.load import DEFAULT_PROFILE, Matrix, load_matrix, parse_selectors
from ..matrix.plan import Available, Plan, Wheels, expand, plan, predictions
from ..model.prediction import PlannedCell
from ..model.spec import HostClass, ImageSpec, Lock, OnIndex, Wheel
from ..registry.names import tag_of
from ..resources import shipped_matrix
from . import options
from .options import print_status

if TYPE_CHECKING:
    from ..compat.releases import Release
    from ..engines.protocol import Engine
    from ..matrix.plan import Chosen
    from ..model.record import Record


def load_plan(
    matrix_path: Path,
    profile: str | None,
    selectors: tuple[str, ...],
    available: Available | None = None,
    recorded: Iterable[Record] = (),
) -> Plan:
    """Return the plan of a profile, with predictions that use the locks next to the matrix.

    recorded: without a profile and selectors, the images of these records come after those of the default
        profile, if the matrix has them. `build-matrix` may have chosen another image for this machine.

    Raises InputError for wrong input, and if nothing is selected.
    """
    selected = parse_selectors(selectors)
    matrix = _load(matrix_path, warn=available is None)
    wheels = _wheels(matrix_path)
    found = plan(matrix, profile or DEFAULT_PROFILE, select=selected, available=available, wheels=wheels)
    if not found.cells and not found.excluded:
        raise _no_cell(matrix_path, profile, selectors)
    if profile is None and not selectors:
        images = {record.image for record in recorded} - {image.identifier for image in found.images}
        images &= {image.identifier for image in matrix.images}
        if images:
            more = plan(matrix, None, select=parse_selectors([f"image={','.join(images)}"]), wheels=wheels)
            return Plan((*found.cells, *more.cells), (*found.excluded, *more.excluded))
    return found


def plan_for_this_machine(matrix_path: Path, available: Available) -> tuple[Plan, Chosen] | None:
    """Return the plan of the image that fits this machine, and why it does.

    Return None if the default profile has not exactly one image with CUDA. Raises InputError.
    """
    from ..delivery.choose import this_host
    from ..matrix.plan import for_machine

    matrix = _load(matrix_path, warn=False)
    hosts: tuple[HostClass, ...] = ()
    try:
        here = this_host()
        hosts, machine = here.classes, str(here)
    except MissingError as error:
        machine = str(error)
    chosen = for_machine(matrix, hosts, machine, available)
    if chosen is None:
        return None
    select = parse_selectors([f"image={chosen.image}"])
    return plan(matrix, None, select=select, wheels=_wheels(matrix_path)), chosen


def available_on(engine: Engine, missing: dict[str, str] | None = None) -> Available:
    """Return a function that tells `load_plan` which Pythons an engine can't provide.

    missing: gets the reason for each Python that was asked for and that the engine can't provide.
    """

    def available(python: str) -> str | None:
        why = engine.provides(python)
        if why is not None and missing is not None:
            missing[python] = why
        return None if why else engine.name

    return available


def refuse_wrong_selection(matrix_path: Path, profile: str | None, selectors: tuple[str, ...]) -> None:
    """Raise InputError as `load_plan` does, but predict no more cells than that needs."""
    expansion = expand(_load(matrix_path), profile or DEFAULT_PROFILE, select=parse_selectors(selectors))
    if not expansion.excluded and next(predictions(expansion, _wheels(matrix_path)), None) is None:
        raise _no_cell(matrix_path, profile, selectors)


def load_cells(matrix_path: Path, profile: str | None, selectors: tuple[str, ...]) -> Iterator[PlannedCell]:
    """Return the cells of `load_plan`, each predicted when it is asked for: there may be very many.

    Raises InputError at once for wrong input, and if nothing is selected.
    """
    selected = parse_selectors(selectors)
    expansion = expand(_load(matrix_path), profile or DEFAULT_PROFILE, select=selected)
    if not expansion.cells:
        raise _no_cell(matrix_path, profile, selectors)
    return predictions(expansion, _wheels(matrix_path))


def images_of(matrix_path: Path) -> dict[str, ImageSpec]:
    """Return every image spec of a matrix by its identifier, whatever profiles it has."""
    return {spec.identifier: spec for spec in _load(matrix_path).images}


def hosts_of(matrix_path: Path) -> tuple[HostClass, ...]:
    """Return every host class of a matrix, whatever profiles it has."""
    return _load(matrix_path, warn=False).hosts


def _load(matrix_path: Path, *, warn: bool = True) -> Matrix:
    """Load a matrix, and print what its user should know about it."""
    # Commands that ask an engine what is available have loaded the plan before that.
    if matrix_path == shipped_matrix() and warn:
        print_status("Using the matrix that comes with this tool. `init` writes one of your own.")
    matrix = load_matrix(matrix_path, _own_releases)
    if warn:
        for warning in matrix.warnings:
            print_status(f"Warning: {matrix.file}:{warning.line}:{warning.column}: {warning}")
    return matrix


def _own_releases(asked: Wheel | OnIndex, pythons: Sequence[str]) -> list[Release]:
    """Return the TensorFlow of a matrix that no table lists, inspected."""
    from ..supply.release_facts import releases_of
    from ..system.package_sources import host_sources

    return releases_of(asked, pythons, host_sources(), print_status)


def _wheels(matrix_path: Path) -> Wheels:
    """Return the function that reads the wheels of an image's lock, where a prediction needs them."""
    locks = locks_of(matrix_path)

    def wheels(spec: ImageSpec) -> Mapping[str, str] | None:
        # Only predictions for floating versions and for more packages depend on the lock.
        floats = (spec.cuda and spec.cuda.floats) or (spec.cudnn and spec.cudnn.floats)
        if not floats and spec.additions is None:
            return None
        lock = locks.read(spec.identifier)
        return {wheel.name: wheel.version for wheel in lock.wheels} if lock else None

    return wheels


def _no_cell(matrix_path: Path, profile: str | None, selectors: tuple[str, ...]) -> InputError:
    """Return the error for a selection without a cell: a typo in a selector must not look like success."""
    return InputError(
        f"{matrix_path}: profile {profile or DEFAULT_PROFILE} has no cell"
        + (f" that matches {' '.join(selectors)}" if selectors else ""),
        hint="`validator plan --profile full` lists all cells",
    )


def lock_of_image(matrix_path: Path, identifier: str, digest: str) -> Lock | None:
    """Return the lock that an image says it was made from, if it is here.

    identifier, digest: the image spec and the digest of the lock, as the labels of the image name them.
    """
    try:
        tag_of(identifier)
    except ValueError:
        # A label may hold anything.
        return None
    lock = locks_of(matrix_path).read(identifier)
    return lock if lock is not None and lock.digest == digest else None


def locks_of(matrix_path: Path) -> LockDirectory:
    """Return the locks of a matrix: those next to it, and with the tool's own matrix also those it has."""
    shipped = shipped_matrix()
    return LockDirectory(
        options.working_directory(matrix_path) / DIRECTORY,
        shipped.parent / DIRECTORY if matrix_path == shipped else None,
    )
