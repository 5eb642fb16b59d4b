"""Cells with their predictions: what `plan` shows and everything after it starts from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from ..compat.predict import predict
from ..model.prediction import PlannedCell
from ..model.spec import ImageSpec
from .expand import Available, ExcludedCell, expand
from .selection import Selector
from .values import DEFAULT_PROFILE, Matrix

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
