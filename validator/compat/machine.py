"""Judge a host by itself: its driver, the libcuda in use and its GPU."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from ..model.prediction import Reason
from ..model.situation import Host
from ..model.spec import NO_GPU
from ..versions import ComputeCapability, CudaVersion, DriverRelease
from . import drivers, gpus, loose_values, older_releases, platforms
from .drivers import UserDriver, user_driver
from .errors import UnknownGpu


# Compared by identity, which is fast: equal descriptions of a machine get the same one from the cache.
@dataclass(frozen=True, eq=False)
class Machine:
    """A machine as the rules see it, and the reasons that follow from it.

    has_gpu: False if it is known to have none.
    driver: as installed; on Windows its number is that of Windows. linux: the Linux branch with the same
        CUDA, or the driver itself on Linux. None if they are not known.
    user_cuda: the newest CUDA that the libcuda in use supports, None if it is not known.
    missing: the facts that are not known.
    model: the short name of the GPU, if its name is known. is_jetson: True if the name of the GPU says so.
    """

    has_gpu: bool
    on_windows: bool
    driver: DriverRelease | None
    linux: DriverRelease | None
    capability: ComputeCapability | None
    user: UserDriver | None
    user_cuda: CudaVersion | None
    reasons: tuple[Reason, ...]
    missing: tuple[str, ...]
    model: str | None = None
    is_jetson: bool = False


@functools.lru_cache(maxsize=8192)
def judge_host(host: Host) -> Machine:
    """Return the machine that is known of a host. Its architecture makes no difference here."""
    on_windows = host.on_windows
    if host.gpu == NO_GPU:
        return Machine(False, on_windows, None, None, None, None, None, (), ())
    capability, model, kind, reasons = _gpu(host.gpu, host.capability)
    driver = loose_values.driver(host.driver)
    shown = loose_values.cuda(host.driver_cuda)
    if driver is None and shown is not None:
        driver = older_releases.driver_with(shown, on_windows)
    linux = _linux_branch(driver) if driver and on_windows else driver
    if capability is not None and not on_windows:
        wrong = platforms.kernel_modules(host.kernel_modules, capability)
        reasons += (wrong,) if wrong else ()
    facts = {"driver": linux, "gpu": capability, "system": host.system}
    missing = tuple(name for name, value in facts.items() if value is None)
    is_jetson = kind == gpus.EMBEDDED
    if linux is None:
        return Machine(
            True, on_windows, driver, None, capability, None, None, reasons, missing, model, is_jetson
        )
    user = user_driver(linux, host.compat if loose_values.cuda(host.compat) else None, kind)
    branch = drivers.branch_of(user.branch)
    if capability is not None:
        reasons += drivers.knows_gpu(linux.branch, user.branch, capability)
    return Machine(
        has_gpu=True,
        on_windows=on_windows,
        driver=driver or linux,
        linux=linux,
        capability=capability,
        user=user,
        user_cuda=branch.cuda if branch else None,
        reasons=(*reasons, *user.reasons),
        missing=missing,
        model=model,
        is_jetson=is_jetson,
    )


def runs_toolkit(machine: Machine, toolkit: CudaVersion) -> Reason | None:
    """Decide if the driver runs the libraries of a toolkit; None if the driver is not known."""
    if machine.driver is None:
        return None
    lifted_to = machine.user.lifted_to if machine.user else None
    floor = older_releases.oldest_driver(toolkit, machine.on_windows)
    if (
        floor is not None
        and lifted_to is None
        and (machine.on_windows or drivers.minor_version(toolkit.major) is None)
    ):
        where = " for Windows" if machine.on_windows else ""
        if machine.driver < floor.driver:
            return floor.fact.fails(
                f"CUDA {toolkit} needs driver {floor.driver} or newer{where}; this is {machine.driver}",
                "driver_too_old",
            )
        return floor.fact.works(
            f"driver {machine.driver} runs CUDA {toolkit} ({floor.driver} or newer{where})"
        )
    return drivers.runs_toolkit(toolkit, machine.linux, lifted_to) if machine.linux else None


def _gpu(
    name: str | None, capability: str | None
) -> tuple[ComputeCapability | None, str | None, str | None, tuple[Reason, ...]]:
    """Return a GPU's capability, short name and kind by its name or its capability, and why it is not used.

    A capability identifies the kind only if all GPUs with it are of one kind.
    """
    given = loose_values.capability(capability)
    if name is not None:
        try:
            known = gpus.gpu(name)
        except UnknownGpu:
            other = platforms.not_nvidia(name)
            return given, None, None, (other,) if other else ()
        return given or known.compute_capability, known.slug, known.kind, ()
    kinds = {one.kind for one in gpus.gpus() if one.compute_capability == given}
    return given, None, kinds.pop() if len(kinds) == 1 else None, ()


def _linux_branch(driver: DriverRelease) -> DriverRelease | None:
    """Return the Linux branch of a Windows driver: R570 for 572.16. Before R450 it has its number."""
    if driver.branch < drivers.branches()[0].number:
        return driver
    branch = drivers.branch_of(driver.branch)
    return DriverRelease(branch.number) if branch else None
