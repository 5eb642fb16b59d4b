"""From the shared options to a plan: what every command that takes a matrix begins with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..errors import InputError
from ..locks import files
from ..matrix.load import DEFAULT_PROFILE, load_matrix
from ..matrix.plan import Available, Plan, plan
from ..matrix.selection import parse_selectors
from ..model.spec import ImageSpec


def planned(
    matrix_path: Path,
    profile: str | None,
    selectors: tuple[str, ...],
    available: Available | None = None,
) -> Plan:
    """The plan of a profile, judged by the locks that lie beside the matrix.

    Raises InputError when nothing is selected, so that a slip in a selector is not taken for success.
    """
    selected = parse_selectors(selectors)
    matrix = load_matrix(matrix_path)
    directory = locks_directory(matrix_path)

    def wheels(spec: ImageSpec) -> Mapping[str, str] | None:
        # Only a floating choice needs the lock to be judged; reading the others would tell nothing new.
        if not (spec.cuda and spec.cuda.floats) and not (spec.cudnn and spec.cudnn.floats):
            return None
        lock = files.read(directory, spec.identifier)
        return {wheel.name: wheel.version for wheel in lock.wheels} if lock else None

    found = plan(matrix, profile or DEFAULT_PROFILE, select=selected, available=available, wheels=wheels)
    if not found.cells and not found.excluded:
        raise InputError(
            f"{matrix_path}: profile {profile or DEFAULT_PROFILE} has no cell"
            + (f" that {' '.join(selectors)} selects" if selectors else ""),
            hint="see `python -m validator plan --profile full` for all there are",
        )
    return found


def locks_directory(matrix_path: Path) -> Path:
    """Where the locks of a matrix lie."""
    return matrix_path.parent / files.DIRECTORY
