"""Find the driver with which a machine could run a newer TensorFlow release than with its own."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from ..model.prediction import Outcome, Prediction
from ..model.situation import EAGER, WINDOWS, WSL2, Situation
from ..versions import ComputeCapability, CudaVersion, DriverRelease
from . import drivers, facts, gpus, loose_values
from .errors import UnknownGpu
from .offers import Offer, offer, offers, outcome
from .older_releases import driver_with
from .releases import Release


@dataclass(frozen=True)
class OtherDriver:
    """The oldest driver that allows the newest release which the machine can use with any driver.

    last_branch: the last driver branch for the GPU, None if the newest one supports it. is_older: True if the
    machine's own driver is too new for the GPU.
    """

    driver: DriverRelease
    last_branch: int | None
    is_older: bool


def other_driver(machine: Situation) -> OtherDriver | None:
    """Return the driver that allows a newer release; None if there is none, or if the machine's is not known.

    A release can be used if eager operations work in an image of this project or with pip, or if nothing
    speaks against it and only facts about the machine are missing.
    """
    own = loose_values.driver(machine.driver)
    if own is None and machine.driver_cuda:
        own = driver_with(CudaVersion.parse(machine.driver_cuda), _on_windows(machine))
    if own is None:
        return None
    capability = loose_values.capability(machine.capability) or _capability_of(machine.gpu)
    last = drivers.last_branch(capability) if capability else None
    is_older = last is not None and own.branch > last
    known = [one for one in _candidates() if last is None or one.branch <= last]
    wanted = known[-1:] if is_older else [one for one in known if own < one]
    found = _newest_release(_with(machine, wanted[-1])) if wanted else None
    if found is None or found == _newest_release(machine):
        return None
    # A single release sorts before its branch, because a branch stands for its newest release.
    fitting = (one for one in wanted if _is_usable(offer(_with(machine, one), found, {})))
    return OtherDriver(next(fitting), last, is_older)


def _capability_of(name: str | None) -> ComputeCapability | None:
    try:
        return gpus.gpu(name).compute_capability if name else None
    except UnknownGpu:
        return None


def _with(machine: Situation, driver: DriverRelease) -> Situation:
    return replace(machine, driver=str(driver), driver_cuda=None)


def _on_windows(machine: Situation) -> bool:
    return machine.system in (WINDOWS, WSL2)


def _newest_release(machine: Situation) -> Release | None:
    return next((one.release for one in offers(machine, {}) if _is_usable(one)), None)


def _is_usable(one: Offer) -> bool:
    return any(map(_fits, (*(image.prediction for image in one.images), one.pip.prediction)))


def _fits(prediction: Prediction) -> bool:
    found = outcome(prediction, EAGER)
    return found is Outcome.WORKS or (found is Outcome.UNKNOWN and bool(prediction.missing))


@functools.cache
def _candidates() -> tuple[DriverRelease, ...]:
    """Return the known branches, and the oldest driver release that runs each CUDA major version."""
    return tuple(sorted({*(DriverRelease(one.number) for one in drivers.branches()), *_floors()}))


@functools.cache
def _floors() -> tuple[DriverRelease, ...]:
    rows = facts.rows("drivers", "minor_version")
    return tuple(DriverRelease.parse(row[name]) for row in rows for name in ("driver", "windows"))
