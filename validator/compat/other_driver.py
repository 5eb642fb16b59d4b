"""Find the driver with which a machine could run a newer TensorFlow release than with its own."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from ..model.prediction import Outcome
from ..model.situation import EAGER, Host
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


def other_driver(host: Host, python: str | None) -> OtherDriver | None:
    """Return the driver that allows a newer release; None if there is none, or if the machine's is not known.

    A release can be used if eager operations work in an image of this project or with pip, or if nothing
    speaks against it and only facts about the machine are missing.
    """
    own = loose_values.driver(host.driver)
    if own is None and host.driver_cuda:
        own = driver_with(CudaVersion.parse(host.driver_cuda), host.on_windows)
    if own is None:
        return None
    capability = loose_values.capability(host.capability) or _capability_of(host.gpu)
    last = drivers.last_branch(capability) if capability else None
    is_older = last is not None and own.branch > last
    drivers_for_gpu = [driver for driver in _candidates() if last is None or driver.branch <= last]
    wanted = drivers_for_gpu[-1:] if is_older else [driver for driver in drivers_for_gpu if own < driver]
    newest = _newest_release(_with(host, wanted[-1]), python) if wanted else None
    if newest is None or newest == _newest_release(host, python):
        return None
    # A single release sorts before its branch, because a branch stands for its newest release.
    fitting = (driver for driver in wanted if _is_usable(offer(_with(host, driver), python, newest, {})))
    return OtherDriver(next(fitting), last, is_older)


def _capability_of(name: str | None) -> ComputeCapability | None:
    try:
        return gpus.gpu(name).compute_capability if name else None
    except UnknownGpu:
        return None


def _with(host: Host, driver: DriverRelease) -> Host:
    return replace(host, driver=str(driver), driver_cuda=None)


def _newest_release(host: Host, python: str | None) -> Release | None:
    return next((offer.release for offer in offers(host, python, {}) if _is_usable(offer)), None)


def _is_usable(offer: Offer) -> bool:
    predictions = (*(image.prediction for image in offer.images), offer.pip.prediction)
    eager = [(outcome(prediction, EAGER), prediction.missing) for prediction in predictions]
    return any(seen is Outcome.WORKS or (seen is Outcome.UNKNOWN and missing) for seen, missing in eager)


@functools.cache
def _candidates() -> tuple[DriverRelease, ...]:
    """Return the known branches, and the oldest driver release that runs each CUDA major version."""
    return tuple(sorted({*(DriverRelease(one.number) for one in drivers.branches()), *_floors()}))


@functools.cache
def _floors() -> tuple[DriverRelease, ...]:
    rows = facts.rows("drivers", "minor_version")
    return tuple(DriverRelease.parse(row[name]) for row in rows for name in ("driver", "windows"))
