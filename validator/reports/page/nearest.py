"""For a combination that does not work, find the nearest one that does.

Nearest is the same machine: the same GPU and driver. Among its combinations, one that was measured to work
comes before one that is only predicted to, then the newest release, then the same Python. If nothing works
there, it is the same GPU with another driver: the oldest newer one, since an upgrade is easier.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...compat.offers import Installation, newest_that_works, why_not
from ...compat.predict import host_of
from ...model.prediction import Outcome
from ...model.record import Verdict
from ...model.spec import HostClass, ImageSpec
from ...versions import DriverRelease, Version
from ..overview import Row

_WORKING = (Verdict.CERTIFIED, Verdict.WORKS_ON_CPU)
_FAILING = (Verdict.FAILED, Verdict.BROKEN)


@dataclass(frozen=True)
class Advice:
    """The requirement with which TensorFlow works on a machine. reason: why there is none, as a sentence."""

    suggestion: Installation | None
    reason: str = ""


def works(row: Row) -> bool:
    """Return True if a combination was measured to work, or is predicted to and did not fail."""
    if row.record is not None and row.record.verdict in (*_WORKING, *_FAILING):
        return row.record.verdict in _WORKING
    return row.planned is not None and row.planned.prediction.outcome is Outcome.WORKS


def fails(row: Row) -> bool:
    """Return True if a combination was measured to fail, or is predicted to and was not measured to work."""
    if row.record is not None and row.record.verdict in (*_WORKING, *_FAILING):
        return row.record.verdict in _FAILING
    return row.planned is not None and row.planned.prediction.outcome is Outcome.FAILS


def nearest(rows: Sequence[Row], images: Sequence[ImageSpec]) -> dict[int, int]:
    """Return the number of the nearest row that works, by the number of each row that fails.

    images: the image of each row. A row without anything near is left out.
    """
    working: dict[str, list[int]] = {}
    same_gpu: dict[object, list[int]] = {}
    for number, row in enumerate(rows):
        if works(row):
            working.setdefault(row.host, []).append(number)
            if row.planned is not None:
                same_gpu.setdefault(_gpu_kind(row.planned.cell.host), []).append(number)
    #: By machine, image without its release, and Python: many rows have the same nearest one.
    known: dict[tuple[str, str, bool, object], int | None] = {}
    found = {}
    for number, row in enumerate(rows):
        if not fails(row):
            continue
        image = images[number]
        key = (row.host, image.python, image.cuda is not None, image.additions)
        if key not in known:
            candidates = working.get(row.host, ())
            best = _best(candidates, rows, images, image)
            if best is None and row.planned is not None:
                host = row.planned.cell.host
                others = same_gpu.get(_gpu_kind(host), ())
                best = _best(_nearest_driver(others, rows, host), rows, images, image)
            known[key] = best
        if (nearby := known[key]) is not None:
            found[number] = nearby
    return found


def advice(host: HostClass) -> Advice:
    """Return what to install with pip on a kind of machine with a GPU."""
    machine = host_of(host)
    suggestion = newest_that_works(machine, None)
    return Advice(suggestion, "" if suggestion else why_not(machine, None))


def _best(
    candidates: Iterable[int], rows: Sequence[Row], images: Sequence[ImageSpec], wanted: ImageSpec
) -> int | None:
    """Return the candidate that is nearest to an image. With CUDA or without must be the same."""

    def rank(number: int) -> tuple[object, ...]:
        record, image = rows[number].record, images[number]
        release = Version(image.tensorflow)
        return (
            record is not None and record.verdict in _WORKING,
            not release.is_prerelease,
            release,
            image.additions == wanted.additions,
            image.python == wanted.python,
            Version(image.python),
        )

    same = [number for number in candidates if (images[number].cuda is None) == (wanted.cuda is None)]
    return max(same, key=rank, default=None)


def _nearest_driver(candidates: Iterable[int], rows: Sequence[Row], host: HostClass) -> list[int]:
    """Return the candidates with the nearest driver: the oldest newer one, else the newest older one."""
    drivers: dict[DriverRelease, list[int]] = {}
    for number in candidates:
        planned = rows[number].planned
        if planned is not None:
            drivers.setdefault(planned.cell.host.driver, []).append(number)
    newer = [driver for driver in drivers if driver > host.driver]
    if newer:
        return drivers[min(newer)]
    return drivers[max(drivers)] if drivers else []


def _gpu_kind(host: HostClass) -> object:
    return host.gpu or host.compute_capability
