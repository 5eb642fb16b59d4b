"""Rules about drivers: the newest CUDA of a branch, the toolkits that it runs, its GPUs, and its end."""

from __future__ import annotations

import datetime
import functools
from dataclasses import dataclass

from ..model.prediction import Reason
from ..versions import ComputeCapability, CudaVersion, DriverRelease
from . import facts
from .facts import Fact, UnknownDriver
from .gpus import CONSUMER, DATA_CENTER

#: Windows drivers, which WSL2 shows, have the number of the Linux branch or one of the next few: R535 has
#: releases from 536 to 539, and R470 has releases up to 475.
_WINDOWS_NUMBERS = 5

_KINDS = {
    "long-term": "a long-term support branch",
    "production": "a production branch",
    "new-feature": "a new feature branch",
    "developer": "a branch for developers",
}


@dataclass(frozen=True)
class Branch:
    """A driver branch and its newest CUDA version."""

    number: int
    cuda: CudaVersion
    fact: Fact


@dataclass(frozen=True)
class MinorVersion:
    """The oldest driver that runs every toolkit of a CUDA major version. It may not compile all their PTX.

    windows: the same for a driver of Windows, whose releases have other numbers.
    """

    cuda_major: int
    driver: DriverRelease
    windows: DriverRelease
    fact: Fact


def parse_release(text: str) -> DriverRelease:
    """Parse the release or the branch that a person names.

    Raises ValueError for other text, and UnknownDriver as `refuse_mistyped` does.
    """
    release = DriverRelease.parse(text)
    refuse_mistyped(release)
    return release


def refuse_mistyped(release: DriverRelease) -> None:
    """Raise UnknownDriver if the number of the branch is more than twice the newest one, as in 5355 for 535.

    A branch that is newer than the tables is not refused.
    """
    newest = branches()[:-4:-1]
    if release.branch > 2 * newest[0].number:
        names = ", ".join(f"R{known.number}" for known in newest)
        raise UnknownDriver(
            f"there is no driver branch R{release.branch}; the newest are {names}",
            hint="the first lines of `nvidia-smi` show the driver, such as 535.183.01",
        )


@functools.cache
def branches() -> tuple[Branch, ...]:
    """Return every known driver branch, oldest first."""
    return tuple(
        Branch(row["branch"], CudaVersion.parse(row["cuda"]), facts.fact(row))
        for row in facts.rows("drivers", "branches")
    )


@functools.cache
def branch_of(number: int) -> Branch | None:
    """Return the branch with that number, or just below it, as on Windows: 581 is R580.

    None if there is none.
    """
    below = next((known for known in reversed(branches()) if known.number <= number), None)
    return below if below is not None and number - below.number <= _WINDOWS_NUMBERS else None


@functools.cache
def branch_for(cuda: CudaVersion) -> Branch | None:
    """Return the first branch with a CUDA version, or None if the tables don't have it."""
    return next((known for known in branches() if known.cuda == cuda), None)


@functools.cache
def minor_version(cuda_major: int) -> MinorVersion | None:
    """Return the oldest driver for a CUDA major version, or None if the tables don't have it."""
    for row in facts.rows("drivers", "minor_version"):
        if row["cuda_major"] == cuda_major:
            linux, windows = DriverRelease.parse(row["driver"]), DriverRelease.parse(row["windows"])
            return MinorVersion(cuda_major, linux, windows, facts.fact(row))
    return None


@functools.cache
def toolkit_driver(cuda: CudaVersion) -> tuple[DriverRelease, Fact] | None:
    """Return the driver that came with the first release of a toolkit, or None if it is not listed."""
    for row in facts.rows("toolkits", "toolkits"):
        if CudaVersion.parse(row["release"]) == cuda and "driver" in row:
            return DriverRelease.parse(row["driver"]), facts.fact(row)
    return None


@functools.lru_cache(maxsize=8192)
def runs_toolkit(toolkit: CudaVersion, driver: DriverRelease, lifted_to: CudaVersion | None) -> Reason:
    """Decide if a driver runs the libraries of a toolkit.

    lifted_to: the CUDA version of a forward compatibility package in use, which replaces the driver's.
    """
    if lifted_to is not None:
        return _runs_lifted(toolkit, lifted_to)
    floor = minor_version(toolkit.major)
    if floor is None:
        return branches()[-1].fact.unknown(f"the oldest driver for CUDA {toolkit} is not known")
    if driver < floor.driver:
        return floor.fact.fails(
            f"CUDA {toolkit} needs driver {floor.driver} or newer; this is {driver}", "driver_too_old"
        )
    branch = branch_of(driver.branch)
    if branch is None:
        return branches()[-1].fact.unknown(
            f"it is not known which CUDA versions and GPUs driver {driver} supports: the tables end with"
            f" R{branches()[-1].number}"
        )
    if branch.cuda.major > toolkit.major:
        return branch.fact.works(
            f"driver {driver} is for CUDA {branch.cuda} and runs CUDA {toolkit} by backward compatibility"
        )
    own = toolkit_driver(toolkit)
    if own is not None and driver >= own[0]:
        return own[1].works(f"driver {driver} is not older than {own[0]}, which came with CUDA {toolkit}")
    return floor.fact.works(
        f"driver {driver} runs CUDA {toolkit} by minor-version compatibility ({floor.driver} or newer)"
    )


@functools.lru_cache(maxsize=8192)
def knows_gpu(kernel_branch: int, user_branch: int, capability: ComputeCapability) -> tuple[Reason, ...]:
    """Return why a driver is too old or too new for a GPU, and a remark if its branch has ended.

    kernel_branch: the branch of the installed driver. user_branch: that of the libcuda in use, which differs
    if there is a forward compatibility package.
    """
    remark = ended(kernel_branch)
    return (
        *_retired(max(kernel_branch, user_branch), capability),
        *_not_yet(kernel_branch, capability),
        *((remark,) if remark else ()),
    )


def _retired(branch: int, capability: ComputeCapability) -> tuple[Reason, ...]:
    row = _last_branch(capability)
    if row is None or branch <= row["branch"]:
        return ()
    text = (
        f"R{row['branch']} is the last driver branch for {row['generation']}"
        f" (compute capability {capability}); this is R{branch}"
    )
    return (facts.fact(row).fails(text, "driver_dropped_gpu"),)


def last_branch(capability: ComputeCapability) -> int | None:
    """Return the number of the last driver branch for a GPU; None if the newest branch supports it."""
    row = _last_branch(capability)
    return row["branch"] if row else None


def _last_branch(capability: ComputeCapability) -> facts.Row | None:
    for row in facts.rows("drivers", "last_branch"):
        if ComputeCapability.parse(row["from"]) <= capability < ComputeCapability.parse(row["below"]):
            return row
    return None


def no_branch_for(capability: ComputeCapability, toolkit: CudaVersion) -> Reason | None:
    """Say why no driver branch has both a GPU and a toolkit, if the last one for the GPU is too old."""
    floor, row = minor_version(toolkit.major), _last_branch(capability)
    if row is None or floor is None or row["branch"] >= floor.driver.branch:
        return None
    return facts.fact(row).fails(
        f"{row['generation']} (compute capability {capability}) needs R{row['branch']} or older, and"
        f" CUDA {toolkit} needs R{floor.driver.branch} or newer",
        "driver_dropped_gpu",
    )


def _not_yet(branch: int, capability: ComputeCapability) -> tuple[Reason, ...]:
    # There is no table of drivers by GPU. A branch from before the first PTX ISA with an architecture can't
    # have a compiler for it. That the driver doesn't support the GPU either is derived from this.
    for row in facts.rows("drivers", "ptx"):
        if str(capability) in row["first_targets"] and branch < row["branch"]:
            known = facts.fact(row)
            text = (
                f"PTX ISA {row['isa']}, new in R{row['branch']}, is the first with compute capability"
                f" {capability}; R{branch} is older than the GPU"
            )
            return (known.derived().fails(text, "driver_older_than_gpu"),)
    return ()


def first_toolkit_for(capability: str) -> str:
    """Return the first toolkit whose ptxas knows a compute capability; empty if that is not known."""
    known = False
    for row in facts.rows("drivers", "ptx"):
        known = known or capability in row["first_targets"]
        for cuda in row["cuda"] if known else ():
            toolkit = CudaVersion.parse(cuda)
            # 12.7 was never released. The table of toolkits begins with 11.0.
            if toolkit.major < 11 or toolkit_driver(toolkit) is not None:
                return str(cuda)
    return ""


def _runs_lifted(toolkit: CudaVersion, lifted_to: CudaVersion) -> Reason:
    row = next(row for row in facts.rows("forward", "packages") if row["compat"] == str(lifted_to))
    known = facts.fact(row)
    if lifted_to.major >= toolkit.major:
        return known.works(f"cuda-compat {lifted_to} replaces the driver's CUDA and runs CUDA {toolkit}")
    return known.fails(
        f"cuda-compat {lifted_to} is older than CUDA {toolkit.major}.x, which CUDA {toolkit} needs",
        "compat_package_unsupported",
    )


# The end of a branch


@dataclass(frozen=True)
class Lifecycle:
    """The support of a driver branch.

    kind: a phrase, None if it is not known. ends: the month in which it ends (`2028-06`), None if it is not
    known. by: the month of a page that says that it has ended, but not when. newest: the
    newest release that was seen, None if none was.
    """

    branch: int
    kind: str | None
    ends: str | None
    by: str | None
    newest: DriverRelease | None
    fact: Fact

    def has_ended(self, today: datetime.date) -> bool:
        """Return whether the branch has ended. It ends with the last day of its last month."""
        return self.by is not None or (self.ends is not None and self.ends < f"{today:%Y-%m}")


@functools.cache
def lifecycle(number: int) -> Lifecycle | None:
    """Return the lifecycle of the branch of a number, as in `branch_of`, or None if the tables lack it."""
    branch = branch_of(number)
    return next((one for one in _lifecycles() if branch is not None and one.branch == branch.number), None)


def ended(number: int, today: datetime.date | None = None) -> Reason | None:
    """Return a remark if a branch has ended, with the branch to use instead. today: for tests."""
    day = today or datetime.date.today()
    known = lifecycle(number)
    if known is None or not known.has_ended(day):
        return None
    kind = f", {known.kind}," if known.kind else ""
    when = f"ended in {_month(known.ends)}" if known.ends else "has ended"
    return known.fact.advises(
        f"driver branch R{known.branch}{kind} {when} and gets no more fixes{_instead(day)}"
    )


def _instead(today: datetime.date) -> str:
    """Return `; R580 is a long-term support branch until June 2028`, or nothing if there is none."""
    maintained = (one for one in reversed(_lifecycles()) if one.kind == _KINDS["long-term"])
    current = next((one for one in maintained if not one.has_ended(today)), None)
    return f"; R{current.branch} is {current.kind} until {_month(current.ends)}" if current else ""


def _month(text: str | None) -> str:
    return f"{datetime.date.fromisoformat(f'{text}-01'):%B %Y}"


@functools.cache
def _lifecycles() -> tuple[Lifecycle, ...]:
    return tuple(
        Lifecycle(
            branch=row["branch"],
            kind=_KINDS[row["kind"]] if "kind" in row else None,
            ends=row.get("ends"),
            by=row.get("by"),
            newest=DriverRelease.parse(row["newest"]) if "newest" in row else None,
            fact=facts.fact(row),
        )
        for row in facts.rows("drivers", "lifecycle")
    )


# Forward compatibility: does a cuda-compat package on the loader path give a driver a newer CUDA?


@dataclass(frozen=True)
class UserDriver:
    """The CUDA user-mode driver (libcuda) that a process gets.

    branch: the branch of that library. lifted_to: the CUDA version of the package if it replaces the
    driver's.
    """

    branch: int
    lifted_to: CudaVersion | None
    reasons: tuple[Reason, ...]


@functools.lru_cache(maxsize=8192)
def user_driver(driver: DriverRelease, compat: str | None, kind: str | None) -> UserDriver:
    """Return the user-mode driver of a driver with a cuda-compat package.

    compat: the package's CUDA version (`12.9`), or None if there is no package. kind: that of the GPU, as in
    `gpus.Gpu.kind`, or None if it is not known.
    """
    if compat is None:
        return UserDriver(driver.branch, None, ())
    asked = CudaVersion.parse(compat)
    branch = branch_for(asked)
    row = next((row for row in facts.rows("forward", "packages") if row["compat"] == str(asked)), None)
    if row is None or branch is None:
        text = f"no known table lists cuda-compat {asked}"
        return UserDriver(driver.branch, None, (facts.rule("forward", "compat-eligible").unknown(text),))
    if driver.branch == branch.number:
        text = f"cuda-compat {asked} is not needed: driver {driver} itself supports CUDA {asked}"
        return UserDriver(driver.branch, None, (facts.fact(row).works(text),))
    if driver.branch > branch.number:
        text = (
            f"cuda-compat {asked} is older than driver {driver} and does not support it; remove it from the"
            " loader path, because the driver itself runs older CUDA versions"
        )
        return UserDriver(driver.branch, None, (facts.fact(row).unknown(text),))
    return _lifted(driver, asked, branch.number, row, kind)


def _lifted(
    driver: DriverRelease, asked: CudaVersion, branch: int, row: facts.Row, kind: str | None
) -> UserDriver:
    """Return the result for a package that is newer than the driver, as it should be."""
    if kind == CONSUMER:
        text = (
            f"cuda-compat {asked} on a GPU that is not a data-center product: cuInit returns error 804"
            " (forward compatibility not supported on this device) and no GPU is found"
        )
        refused = facts.rule("forward", "compat-error-804").fails(text, "compat_package_unsupported")
        return UserDriver(branch, asked, (refused,))
    if row["bases"].get(str(driver.branch)) != "compatible":
        bases = ", ".join(f"R{base}" for base, answer in row["bases"].items() if answer == "compatible")
        text = (
            f"cuda-compat {asked} does not support the base driver R{driver.branch}, a branch that has ended"
            f" or is a feature branch; it supports {bases or 'no branch that is still maintained'}"
        )
        return UserDriver(branch, asked, (facts.fact(row).unknown(text),))
    if kind != DATA_CENTER:
        text = "only some professional GPUs may use cuda-compat, and it is not known whether this one may"
        return UserDriver(branch, asked, (facts.rule("forward", "compat-eligible").unknown(text),))
    text = f"cuda-compat {asked} supports the base driver R{driver.branch} on data-center GPUs"
    return UserDriver(branch, asked, (facts.fact(row).works(text),))
