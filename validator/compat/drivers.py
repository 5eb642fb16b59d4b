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
class Floor:
    """The oldest driver for a toolkit, from CUDA 11 on for its major version. It may not compile all PTX."""

    driver: DriverRelease
    fact: Fact


def parse_release(text: str) -> DriverRelease:
    """Parse the release or the branch that a person names. A branch newer than the tables is not refused.

    Raises ValueError for other text, and UnknownDriver if the number of the branch is more than twice the
    newest one, as in 5355 for 535.
    """
    release = DriverRelease.parse(text)
    newest = branches()[:-4:-1]
    if release.branch > 2 * newest[0].number:
        names = ", ".join(f"R{known.number}" for known in newest)
        raise UnknownDriver(
            f"there is no driver branch R{release.branch}; the newest are {names}",
            hint="the first lines of `nvidia-smi` show the driver, such as 535.183.01",
        )
    return release


@functools.cache
def branches() -> tuple[Branch, ...]:
    """Return every known driver branch, oldest first."""
    return tuple(
        Branch(row["branch"], CudaVersion.parse(row["cuda"]), facts.fact(row))
        for row in facts.rows("drivers", "branches")
    )


@functools.cache
def branch_of(number: int) -> Branch | None:
    """Return the branch with that number or just below it (on Windows, 581 is R580), or None."""
    below = next((known for known in reversed(branches()) if known.number <= number), None)
    return below if below is not None and number - below.number <= _WINDOWS_NUMBERS else None


@functools.cache
def branch_for(cuda: CudaVersion) -> Branch | None:
    """Return the first branch with a CUDA version, or None if the tables don't have it."""
    return next((known for known in branches() if known.cuda == cuda), None)


@functools.cache
def minor_version(cuda_major: int, *, windows: bool = False) -> Floor | None:
    """Return the oldest driver for every toolkit of a CUDA major version; None if the tables lack it."""
    for row in facts.rows("drivers", "minor_version"):
        if row["cuda_major"] == cuda_major:
            return Floor(DriverRelease.parse(row["windows" if windows else "driver"]), facts.fact(row))
    return None


@functools.lru_cache(maxsize=8192)
def runs_toolkit(toolkit: CudaVersion, driver: DriverRelease, lifted_to: CudaVersion | None) -> Reason:
    """Decide if a driver runs a toolkit's libraries. lifted_to: the CUDA of a cuda-compat package in use."""
    if lifted_to is not None:
        row = next(row for row in facts.rows("forward", "packages") if row["compat"] == str(lifted_to))
        package = f"cuda-compat {lifted_to}"
        if lifted_to.major >= toolkit.major:
            return facts.fact(row).works(f"{package} replaces the driver's CUDA and runs CUDA {toolkit}")
        return facts.fact(row).fails(
            f"{package} is too old: CUDA {toolkit} needs one of CUDA {toolkit.major}.x",
            "compat_package_unsupported",
        )
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
    for row in facts.rows("toolkits", "toolkits"):
        # The driver that came with the first release of the toolkit.
        own = row.get("driver") if CudaVersion.parse(row["release"]) == toolkit else None
        if own is not None:
            if driver >= DriverRelease.parse(own):
                text = f"driver {driver} is not older than {own}, which came with CUDA {toolkit}"
                return facts.fact(row).works(text)
            break
    return floor.fact.works(
        f"driver {driver} runs CUDA {toolkit} by minor-version compatibility ({floor.driver} or newer)"
    )


@functools.lru_cache(maxsize=8192)
def knows_gpu(kernel_branch: int, user_branch: int, capability: ComputeCapability) -> tuple[Reason, ...]:
    """Return why a driver is too old or too new for a GPU, and a remark if its branch has ended.

    kernel_branch: the branch of the installed driver. user_branch: that of the libcuda in use, which differs
    if there is a forward compatibility package.
    """
    branch, reasons = max(kernel_branch, user_branch), []
    row = _last_branch(capability)
    if row is not None and branch > row["branch"]:
        text = (
            f"R{row['branch']} is the last driver branch for {row['generation']}"
            f" (compute capability {capability}); this is R{branch}"
        )
        reasons.append(facts.fact(row).fails(text, "driver_dropped_gpu"))
    # There is no table of drivers by GPU. A branch from before the first PTX ISA with an architecture can't
    # have a compiler for it. That the driver doesn't support the GPU either is derived from this.
    for row in facts.rows("drivers", "ptx"):
        if str(capability) in row["first_targets"] and kernel_branch < row["branch"]:
            text = (
                f"PTX ISA {row['isa']}, new in R{row['branch']}, is the first with compute capability"
                f" {capability}; R{kernel_branch} is older than the GPU"
            )
            reasons.append(facts.fact(row).derived().fails(text, "driver_older_than_gpu"))
            break
    remark = ended(kernel_branch)
    return (*reasons, remark) if remark else tuple(reasons)


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


def first_toolkit_for(capability: str) -> str:
    """Return the first toolkit whose ptxas knows a compute capability; empty if that is not known."""
    known = False
    for row in facts.rows("drivers", "ptx"):
        known = known or capability in row["first_targets"]
        for cuda in row["cuda"] if known else ():
            # The table of toolkits begins with 11.0 and lacks 12.7, which was never released.
            released = [row["release"] for row in facts.rows("toolkits", "toolkits")]
            if CudaVersion.parse(cuda).major < 11 or any(one.startswith(f"{cuda}.") for one in released):
                return str(cuda)
    return ""


def ended(number: int, today: datetime.date | None = None) -> Reason | None:
    """Return a remark if a branch has ended, with the branch to use instead. today: for tests.

    A branch ends with the last day of the month `ends`. `by` is the month of a page that says that it has
    ended, but not when.
    """
    month = f"{today or datetime.date.today():%Y-%m}"
    rows, branch = facts.rows("drivers", "lifecycle"), branch_of(number)

    def has_ended(row: facts.Row) -> bool:
        return "by" in row or row.get("ends", month) < month

    row = next((row for row in rows if branch is not None and row["branch"] == branch.number), None)
    if row is None or not has_ended(row):
        return None
    kind = f", {_KINDS[row['kind']]}," if "kind" in row else ""
    when = f"ended in {_month(row['ends'])}" if "ends" in row else "has ended"
    text = f"driver branch R{row['branch']}{kind} {when} and gets no more fixes"
    maintained = (one for one in reversed(rows) if one.get("kind") == "long-term")
    current = next((one for one in maintained if not has_ended(one)), None)
    if current is not None:
        text += f"; R{current['branch']} is {_KINDS[current['kind']]} until {_month(current['ends'])}"
    return facts.fact(row).advises(text)


def _month(text: str) -> str:
    return f"{datetime.date.fromisoformat(f'{text}-01'):%B %Y}"


# Forward compatibility: does a cuda-compat package on the loader path give a driver a newer CUDA?


@dataclass(frozen=True)
class UserDriver:
    """The libcuda that a process gets: its branch, and the CUDA of a package that replaces the driver's."""

    branch: int
    lifted_to: CudaVersion | None
    reasons: tuple[Reason, ...]


def compat_packages(branch: int) -> list[str]:
    """Return the newest cuda-compat package of each CUDA major that supports a driver branch: `12.9`."""
    known = [
        row["compat"]
        for row in facts.rows("forward", "packages")
        if row["bases"].get(str(branch)) == "compatible"
    ]
    newest = {CudaVersion.parse(compat).major: compat for compat in sorted(known, key=CudaVersion.parse)}
    return list(newest.values())


@functools.lru_cache(maxsize=8192)
def user_driver(driver: DriverRelease, compat: str | None, kind: str | None) -> UserDriver:
    """Return the user-mode driver of a driver with a cuda-compat package.

    compat: the package's CUDA version (`12.9`), or None if there is no package. kind: that of the GPU, as in
    `gpus.Gpu.kind`, or None if it is not known.
    """
    if compat is None:
        return UserDriver(driver.branch, None, ())
    asked = CudaVersion.parse(compat)
    package, branch = f"cuda-compat {asked}", branch_for(asked)
    row = next((row for row in facts.rows("forward", "packages") if row["compat"] == str(asked)), None)
    may_use = facts.rule("forward", "compat-eligible")
    if row is None or branch is None:
        return UserDriver(driver.branch, None, (may_use.unknown(f"no known table lists {package}"),))
    known = facts.fact(row)
    if driver.branch == branch.number:
        text = f"{package} is not needed: driver {driver} itself supports CUDA {asked}"
        return UserDriver(driver.branch, None, (known.works(text),))
    if driver.branch > branch.number:
        text = (
            f"{package} is older than driver {driver} and does not support it; remove it from the"
            " loader path, because the driver itself runs older CUDA versions"
        )
        return UserDriver(driver.branch, None, (known.unknown(text),))
    if kind == CONSUMER:
        text = (
            f"{package} on a GPU that is not a data-center product: cuInit returns error 804"
            " (forward compatibility not supported on this device) and no GPU is found"
        )
        reason = facts.rule("forward", "compat-error-804").fails(text, "compat_package_unsupported")
    elif row["bases"].get(str(driver.branch)) != "compatible":
        bases = ", ".join(f"R{base}" for base, answer in row["bases"].items() if answer == "compatible")
        reason = known.unknown(
            f"{package} does not support the base driver R{driver.branch}, a branch that has ended"
            f" or is a feature branch; it supports {bases or 'no branch that is still maintained'}"
        )
    elif kind != DATA_CENTER:
        reason = may_use.unknown(
            "only some professional GPUs may use cuda-compat, and it is not known whether this one may"
        )
    else:
        reason = known.works(f"{package} supports the base driver R{driver.branch} on data-center GPUs")
    return UserDriver(branch.number, asked, (reason,))
