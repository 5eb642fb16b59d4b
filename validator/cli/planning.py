"""Make a plan from the options that the commands with a matrix share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..errors import InputError
from ..locks import files
from ..matrix.load import DEFAULT_PROFILE, load_matrix
from ..matrix.plan import Available, Plan, plan
from ..matrix.selection import parse_selectors
from ..model.spec import ImageSpec


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
    matrix = load_matrix(matrix_path)
    directory = locks_directory(matrix_path)

    def wheels(spec: ImageSpec) -> Mapping[str, str] | None:
        # Only predictions for floating versions depend on the lock.
        if not (spec.cuda and spec.cuda.floats) and not (spec.cudnn and spec.cudnn.floats):
            return None
        lock = files.read(directory, spec.identifier)
        return {wheel.name: wheel.version for wheel in lock.wheels} if lock else None

    found = plan(matrix, profile or DEFAULT_PROFILE, select=selected, available=available, wheels=wheels)
    if not found.cells and not found.excluded:
        raise InputError(
            f"{matrix_path}: profile {profile or DEFAULT_PROFILE} has no cell"
            + (f" that matches {' '.join(selectors)}" if selectors else ""),
            hint="`python -m validator plan --profile full` lists all cells",
        )
    return found


def locks_directory(matrix_path: Path) -> Path:
    """Return the directory with the locks of a matrix."""
    return matrix_path.parent / files.DIRECTORY
