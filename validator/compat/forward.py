"""Forward compatibility: whether a cuda-compat package on the loader path lifts a driver."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from ..model.prediction import Reason
from ..model.versions import CudaVersion, DriverRelease
from . import drivers, facts
from .gpus import CONSUMER, DATA_CENTER


@dataclass(frozen=True)
class UserDriver:
    """The CUDA user-mode driver (libcuda) that a process gets.

    branch: of that library. lifted_to: the package's CUDA version where it stands in for the driver's own.
    """

    branch: int
    lifted_to: CudaVersion | None
    reasons: tuple[Reason, ...]


@functools.lru_cache(maxsize=8192)
def user_driver(driver: DriverRelease, compat: str | None, kind: str | None) -> UserDriver:
    """What a driver offers together with a cuda-compat package.

    compat: the package's CUDA version (`12.9`), or None when there is no package. kind: the GPU's, as
    `gpus.Gpu.kind` has it, or None when it is not known.
    """
    if compat is None:
        return UserDriver(driver.branch, None, ())
    asked = CudaVersion.parse(compat)
    branch = drivers.branch_for(asked)
    row = next((row for row in facts.rows("forward", "packages") if row["compat"] == str(asked)), None)
    if row is None or branch is None:
        text = f"no table read has a cuda-compat {asked}"
        return UserDriver(driver.branch, None, (facts.rule("forward", "compat-eligible").unknown(text),))
    if driver.branch == branch.number:
        text = f"cuda-compat {asked} is not needed: driver {driver} has CUDA {asked} itself"
        return UserDriver(driver.branch, None, (facts.fact(row).works(text),))
    if driver.branch > branch.number:
        text = (
            f"cuda-compat {asked} is older than driver {driver}, which there is no package for; take it off"
            " the loader path: the driver itself runs older CUDA versions"
        )
        return UserDriver(driver.branch, None, (facts.fact(row).unknown(text),))
    return _lifted(driver, asked, branch.number, row, kind)


def _lifted(
    driver: DriverRelease, asked: CudaVersion, branch: int, row: facts.Row, kind: str | None
) -> UserDriver:
    """The package is newer than the driver, which is what it is made for, on GPUs that are eligible."""
    if kind == CONSUMER:
        text = (
            f"cuda-compat {asked} on a GPU that is not a data-center product: cuInit answers error 804"
            " (forward compatibility not supported on this device) and no GPU is found"
        )
        return UserDriver(branch, asked, (facts.rule("forward", "compat-error-804").fails(text),))
    if row["bases"].get(driver.branch) != "compatible":
        bases = ", ".join(f"R{base}" for base, answer in row["bases"].items() if answer == "compatible")
        text = (
            f"cuda-compat {asked} is not offered for base driver R{driver.branch}, which is no supported base"
            f" (ended, or a feature branch); it is for {bases or 'none that is still supported'}"
        )
        return UserDriver(branch, asked, (facts.fact(row).unknown(text),))
    if kind != DATA_CENTER:
        text = (
            "only some professional GPUs are eligible for cuda-compat, and whether this one is, is not known"
        )
        return UserDriver(branch, asked, (facts.rule("forward", "compat-eligible").unknown(text),))
    text = f"cuda-compat {asked} is offered for base driver R{driver.branch} on data-center GPUs"
    return UserDriver(branch, asked, (facts.fact(row).works(text),))
