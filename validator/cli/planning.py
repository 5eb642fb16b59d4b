"""Make a plan from the options that the commands with a matrix share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..errors import InputError
from ..locks.files import DIRECTORY, LockDirectory
from ..matrix.load import DEFAULT_PROFILE, load_matrix
from ..matrix.plan import Available, Plan, plan
from ..matrix.selection import parse_selectors
from ..model.spec import ImageSpec
from ..resources import shipped_matrix
from .options import print_status, working_directory


def load_plan(
    matrix_path: Path,
    profile: str | None,
    selectors: tuple[str, ...],
    available: Available | None = None,
) -> Plan:
    """Return the plan of a profile, with predictions that use the locks next to the matrix.

    Raises InputError if nothing is selected, so that a typo in a selector does not look like success.
    """
    selected = parse_selectors(selectors)
    # Commands that ask an engine what is available have loaded the plan before that.
    if matrix_path == shipped_matrix() and available is None:
        print_status("Using the matrix that comes with this tool. `init` writes one of your own.")
    matrix = load_matrix(matrix_path)
    if available is None:
        for warning in matrix.warnings:
            print_status(f"Warning: {matrix.file}:{warning.line}:{warning.column}: {warning}")
    locks = locks_of(matrix_path)

    def wheels(spec: ImageSpec) -> Mapping[str, str] | None:
        # Only predictions for floating versions and for more packages depend on the lock.
        floats = (spec.cuda and spec.cuda.floats) or (spec.cudnn and spec.cudnn.floats)
        if not floats and spec.additions is None:
            return None
        lock = locks.read(spec.identifier)
        return {wheel.name: wheel.version for wheel in lock.wheels} if lock else None

    found = plan(matrix, profile or DEFAULT_PROFILE, select=selected, available=available, wheels=wheels)
    if not found.cells and not found.excluded:
        raise InputError(
            f"{matrix_path}: profile {profile or DEFAULT_PROFILE} has no cell"
            + (f" that matches {' '.join(selectors)}" if selectors else ""),
            hint="`python -m validator plan --profile full` lists all cells",
        )
    return found


def locks_of(matrix_path: Path) -> LockDirectory:
    """Return the locks of a matrix: those next to it, and with the tool's own matrix also those it has."""
    shipped = shipped_matrix()
    return LockDirectory(
        working_directory(matrix_path) / DIRECTORY,
        shipped.parent / DIRECTORY if matrix_path == shipped else None,
    )
