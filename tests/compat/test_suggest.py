"""The release that is suggested for a machine."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from validator.compat.judge import judge
from validator.compat.offers import (
    Installation,
    has_extra,
    installed,
    newest_that_works,
    requirement,
    same_or_newest,
    why_not,
)
from validator.compat.policies import allowed_cudnn
from validator.compat.releases import releases
from validator.model.prediction import AARCH64, LINUX, MACOS, WINDOWS, WSL2, X86_64, Host, Outcome
from validator.versions import Version

from .stated import Stated, changed, stated

A100 = stated(gpu="a100", driver="550.54.14", python="3.12", system=LINUX)


def suggested(machine: Stated) -> Installation:
    software, host = machine
    found = newest_that_works(host, software.python)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("machine", "wanted", "python"),
    [
        (A100, "tensorflow[and-cuda]==2.20.0", "3.12"),
        # The Python that is there decides which releases can be installed.
        (changed(A100, python="3.9.18"), "tensorflow[and-cuda]==2.20.0", "3.9"),
        # No stable release has a wheel for it.
        (changed(A100, python="3.14"), "tensorflow[and-cuda]==2.20.0", "3.13"),
        # The driver: CUDA 12 needs 525. pip can't install 2.14.1 with the newest Python of its wheels.
        (changed(A100, driver="470.82.01"), "tensorflow[and-cuda]==2.14.1", "3.10"),
        (changed(A100, driver="470.82.01", python=None), "tensorflow[and-cuda]==2.14.1", "3.10"),
        (changed(A100, driver="470.82.01", python="3.8"), "tensorflow==2.11.1", "3.8"),
        # The GPU: later wheels have no kernels for Maxwell, and their cuDNN none for Pascal.
        (stated(gpu="gtx 980", driver="535.183.01"), "tensorflow[and-cuda]==2.16.2", "3.12"),
        (stated(gpu="gtx 1080", driver="580.65.06"), "tensorflow[and-cuda]==2.20.0", "3.13"),
        # The system.
        (stated(system=WINDOWS, python="3.9"), "tensorflow==2.10.1", "3.9"),
        (stated(system=WSL2, python="3.12"), "tensorflow[and-cuda]==2.20.0", "3.12"),
        (stated(), "tensorflow[and-cuda]==2.20.0", "3.13"),
    ],
)
def test_the_newest_release_that_works_is_suggested(machine: Stated, wanted: str, python: str) -> None:
    found = suggested(machine)
    assert (found.requirement, found.python) == (wanted, python)
    assert not found.library_path
    assert not found.eager_only


def test_on_blackwell_only_eager_execution_works() -> None:
    found = suggested(stated(gpu="rtx 5090", driver="570.124.06", python="3.12"))
    assert (found.requirement, found.library_path, found.eager_only) == (
        "tensorflow[and-cuda]==2.21.0", True, True,
    )  # fmt: skip
    assert (found.prediction.eager, found.prediction.xla) == (Outcome.WORKS, Outcome.FAILS)


@pytest.mark.parametrize(
    ("machine", "why"),
    [
        (stated(system=MACOS), "on macOS"),
        (stated(machine=AARCH64), "aarch64 is built for the CPU"),
        (stated(driver="390.48"), "needs driver"),
        (stated(gpu="AMD Radeon RX 7900"), "AMD"),
    ],
)
def test_where_nothing_works_there_is_a_reason(machine: Stated, why: str) -> None:
    software, host = machine
    assert newest_that_works(host, software.python) is None
    assert same_or_newest(host, software) is None
    assert why in why_not(host, software.python)


def test_there_is_no_reason_where_something_works() -> None:
    assert why_not(A100[1], "3.12") == ""


@pytest.mark.parametrize(
    ("own", "wanted"),
    [
        ("2.17.0", "tensorflow[and-cuda]==2.17.0"),
        ("2.18", "tensorflow[and-cuda]==2.18.1"),
        # It works if the loader is told of the libraries.
        ("2.21.0", "tensorflow[and-cuda]==2.21.0"),
        # It has no wheel for Python 3.12, it is no stable release, or it does not exist.
        ("2.15.1", "tensorflow[and-cuda]==2.20.0"),
        ("2.22.0rc0", "tensorflow[and-cuda]==2.20.0"),
        ("2.99.0", "tensorflow[and-cuda]==2.20.0"),
        ("1.15.5", "tensorflow[and-cuda]==2.20.0"),
        (None, "tensorflow[and-cuda]==2.20.0"),
    ],
)
def test_a_release_that_works_is_kept(own: str | None, wanted: str) -> None:
    software, host = changed(A100, tensorflow=own)
    found = same_or_newest(host, software)
    assert found is not None
    assert found.requirement == wanted
    assert found.library_path == (own == "2.21.0")


@pytest.mark.slow
def test_whatever_is_suggested_is_predicted_to_work() -> None:
    names = ("k80", "gtx 1080", "v100", "rtx 4090", "h100", "b200")
    for gpu, driver, python in itertools.product(
        names, ("470.82.01", "535.183.01", "580.65.06"), ("3.8", "3.12", "3.14")
    ):
        host = Host(gpu=gpu, driver=driver, system=LINUX, machine=X86_64)
        found = newest_that_works(host, python)
        if found is None:
            continue
        made = replace(installed(found.release, library_path=found.library_path), python=found.python)
        if found.cudnn_below is not None:
            # What pip takes for this bound.
            older = [one for one in allowed_cudnn(found.release) if Version(one) < Version(found.cudnn_below)]
            packages = tuple({**made.versions, "nvidia-cudnn": older[-1]}.items())
            made = replace(made, cudnn=older[-1], packages=packages)
        prediction = judge(made, host)
        assert prediction == found.prediction
        assert found.python in found.release.pythons
        assert (prediction.eager if found.eager_only else prediction.outcome) is Outcome.WORKS


def test_nothing_newer_works_than_what_is_suggested() -> None:
    newer = itertools.takewhile(lambda one: one.version != "2.16.2", reversed(releases()))
    machine = stated(gpu="gtx 980", driver="535.183.01", python="3.12", system=LINUX)
    assert suggested(machine).release.version == "2.16.2"
    host = replace(machine[1], machine=X86_64)
    for release in newer:
        if not release.prerelease:
            assert (
                judge(replace(installed(release, library_path=True), python="3.12"), host).outcome
                is Outcome.FAILS
            )


@pytest.mark.parametrize(
    ("gpu", "driver", "besides", "afterwards"),
    [
        # The newest cuDNN has no kernels for Pascal and Volta, and the extra allows older ones.
        ("v100", "580", ("nvidia-cudnn-cu12<9.11",), ()),
        ("p100", "580", ("nvidia-cudnn-cu12<9.11",), ()),
        ("a100", "580", (), ()),
        # The extra of 2.16.2 pins a ptxas that miscompiles code for Hopper.
        ("h100", "535", (), ("nvidia-cuda-nvcc-cu12>=12.6.85",)),
    ],
)
def test_what_the_metadata_does_not_say_is_installed_too(
    gpu: str, driver: str, besides: tuple[str, ...], afterwards: tuple[str, ...]
) -> None:
    found = newest_that_works(Host(gpu=gpu, driver=driver, system=LINUX, machine=X86_64), None)
    assert found is not None
    assert (found.besides, found.afterwards) == (besides, afterwards)


def test_the_extra_is_asked_for_where_there_is_one() -> None:
    asked = {release.version: requirement(release) for release in releases()}
    assert asked["2.13.1"] == "tensorflow==2.13.1"
    assert asked["2.14.0"] == "tensorflow[and-cuda]==2.14.0"
    assert all(("[and-cuda]" in asked[release.version]) == has_extra(release) for release in releases())
