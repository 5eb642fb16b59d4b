"""The driver with which a machine could run a newer release."""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest

from validator.compat import hardware
from validator.compat.judge import judge_host
from validator.compat.offers import offers, other_driver, outcome
from validator.model.prediction import EAGER, Host, Outcome
from validator.model.spec import NO_GPU
from validator.versions import DriverRelease, Version


def machine(gpu: str, driver: str, system: str = "linux") -> Host:
    return Host(gpu=gpu, driver=driver, system=system, machine="x86_64")


@functools.cache
def newest(host: Host) -> Version:
    """Return the newest release with which eager operations work."""
    for offer in offers(host, None, {}):
        predictions = (*(image.prediction for image in offer.images), offer.pip.prediction)
        if any(outcome(one, EAGER) is Outcome.WORKS for one in predictions):
            return Version(offer.release.version)
    return Version("0")


@pytest.mark.slow
@pytest.mark.parametrize("gpu", ["k80", "gtx 1080", "t4", "h100", "rtx 5090"])
@pytest.mark.parametrize("driver", ["418.56", "525.53", "550"])
@pytest.mark.parametrize("system", ["linux", "wsl2"])
def test_it_allows_a_newer_release_and_no_older_branch_allows_that(
    gpu: str, driver: str, system: str
) -> None:
    now = machine(gpu, driver, system)
    found = other_driver(now, None)
    newer = [one.number for one in hardware.branches() if one.number > DriverRelease.parse(driver).branch]
    best = max((newest(machine(gpu, str(number), system)) for number in newer), default=Version("0"))
    if found is None:
        assert newest(now) >= best
        return
    with_it = newest(machine(gpu, str(found.driver), system))
    assert with_it >= best and with_it > newest(now)
    if not found.is_older:
        older = [number for number in newer if number < found.driver.branch]
        assert all(newest(machine(gpu, str(number), system)) < with_it for number in older)
    assert found.last_branch is None or found.driver.branch <= found.last_branch


def test_nothing_is_known_without_a_driver_or_for_a_gpu_that_is_not_known() -> None:
    assert other_driver(Host(gpu="h100", system="linux"), None) is None
    assert other_driver(machine("thing 9000", "999"), None) is None


@pytest.mark.parametrize("cuda", ["twelve", "x.2", ""])
def test_a_cuda_version_that_cannot_be_read_is_no_driver(cuda: str) -> None:
    known = Host(gpu="h100", driver_cuda="11.4", system="linux", machine="x86_64")
    assert judge_host(known).driver is not None
    assert other_driver(replace(known, driver_cuda=cuda), None) is None


def test_a_machine_without_a_gpu_needs_no_other_driver() -> None:
    assert other_driver(machine(NO_GPU, "418.56"), None) is None
