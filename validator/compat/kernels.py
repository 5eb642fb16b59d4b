"""The rule about the device code in TensorFlow's wheel: which GPUs run it, and with which drivers.

CUDA runs machine code (SASS) on GPUs of the same major compute capability and the same or a higher minor one.
Other GPUs need PTX of an equal or lower compute capability, which the driver compiles when it loads it.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from ..model.prediction import Reason
from ..versions import ComputeCapability, CudaVersion
from . import drivers, facts
from .builds import Isa, KernelGroup, build, isa
from .facts import Fact
from .releases import release as find_release


@dataclass(frozen=True)
class Kernels:
    """The device code of one release, as groups of translation units."""

    groups: tuple[KernelGroup, ...]
    fact: Fact


@functools.cache
def kernels(version: str) -> Kernels | None:
    """Return the device code of a release: as measured, otherwise as in the tables, otherwise None."""
    measured = build(version)
    if measured is not None and measured.kernels:
        return Kernels(measured.kernels, measured.fact)
    release = find_release(version)
    for row in facts.rows("tensorflow", "kernels"):
        if row["tensorflow"] == release.facts_of:
            return Kernels((_listed(row),), facts.fact(row))
    return None


@functools.lru_cache(maxsize=8192)
def run_on(version: str, capability: ComputeCapability, user_branch: int) -> Reason:
    """Decide if the kernels of a release's wheel run on a GPU with a driver. See `fit`."""
    release = find_release(version)
    known = kernels(version)
    if known is None:
        return release.fact.unknown(
            f"it is not known which compute capabilities the wheel of tensorflow {version} has kernels for"
        )
    return fit(known, CudaVersion.parse(release.cuda), capability, user_branch)


def fit(known: Kernels, cuda: CudaVersion, capability: ComputeCapability, user_branch: int) -> Reason:
    """Decide if device code runs on a GPU with a driver.

    cuda: the version that it was compiled with. user_branch: the branch of the libcuda in use, which compiles
    PTX.
    """
    without = [group for group in known.groups if _native(group, capability) is None]
    if not without:
        return known.fact.works(_native_text(known, capability))
    nowhere = [group for group in without if _source(group, capability) is None]
    if len(nowhere) == len(known.groups):
        return known.fact.fails(_nothing_text(known, capability))
    if nowhere:
        return known.fact.unknown(
            f"no code for compute capability {capability} in {_share(known.groups, nowhere)} of the wheel;"
            " operations that need this code fail, and it is not known which operations these are"
        )
    what = f"for compute capability {capability}, {_share(known.groups, without)} of the wheel are only PTX"
    isas = [group.ptx[source] for group in without if (source := _source(group, capability))]
    read = [one for one in isas if one is not None]
    if len(read) == len(isas):
        return _compile(known, what, max(read), user_branch)
    return _compile_unread(known, what, cuda, user_branch)


def _compile(known: Kernels, what: str, newest: Isa, user_branch: int) -> Reason:
    """Decide if the driver's compiler reads the PTX ISA of kernels that are only PTX."""
    row = next((row for row in facts.rows("drivers", "ptx") if isa(row["isa"]) == newest), None)
    if row is None:
        missing = ".".join(map(str, newest))
        return known.fact.unknown(f"{what}, and it is not known which driver compiles PTX ISA {missing}")
    rests_on = facts.fact(row).with_(known.fact).derived()
    text = f"{what}, in PTX ISA {row['isa']}, which drivers from R{row['branch']} on compile"
    if user_branch >= row["branch"]:
        return rests_on.works(text)
    return rests_on.fails(f"{text}; R{user_branch} returns CUDA_ERROR_UNSUPPORTED_PTX_VERSION")


def _compile_unread(known: Kernels, what: str, cuda: CudaVersion, user_branch: int) -> Reason:
    """Decide without the PTX ISA, which is at most that of the CUDA that the wheel was built with."""
    branch = drivers.branch_for(cuda)
    bound = known.fact.derived()
    if branch is not None and user_branch >= branch.number:
        return bound.works(f"{what}; R{user_branch} compiles all PTX of CUDA {cuda}")
    return bound.unknown(f"{what}; it is not known whether R{user_branch} compiles that of CUDA {cuda}")


def _native(group: KernelGroup, capability: ComputeCapability) -> ComputeCapability | None:
    """Return the capability of the machine code that the GPU runs, or None if the group has none for it."""
    fitting = [one for one in group.sass if one.major == capability.major and one.minor <= capability.minor]
    return max(fitting, default=None)


def _source(group: KernelGroup, capability: ComputeCapability) -> ComputeCapability | None:
    """Return the capability of the PTX that the driver compiles for the GPU, or None if there is none."""
    return max((one for one in group.ptx if one <= capability), default=None)


def _native_text(known: Kernels, capability: ComputeCapability) -> str:
    used = sorted({one for group in known.groups if (one := _native(group, capability))})
    text = f"the wheel has machine code for compute capability {' and '.join(map(str, used))}"
    return text if used == [capability] else f"{text}, which {capability} runs by binary compatibility"


def _nothing_text(known: Kernels, capability: ComputeCapability) -> str:
    machine_code = sorted(frozenset[ComputeCapability]().union(*(group.sass for group in known.groups)))
    return (
        f"the wheel has no kernels for compute capability {capability}: it has machine code for"
        f" {', '.join(map(str, machine_code))}, and no PTX for an older capability"
    )


def _share(groups: tuple[KernelGroup, ...], some: list[KernelGroup]) -> str:
    """Return `1149 of 1479 translation units`, or `some kernels` if they were not counted."""
    counts = [group.count for group in groups if group.count is not None]
    if len(counts) < len(groups):
        return "all kernels" if len(some) == len(groups) and not some[0].sass else "some kernels"
    return f"{sum(group.count or 0 for group in some)} of {sum(counts)} translation units"


def _listed(row: facts.Row) -> KernelGroup:
    """Return the kernels of a build's list of compute capabilities: sm_XY is machine code, compute_XY is PTX.

    The kernels that nvcc compiles also have machine code for compute_XY. Those that TensorFlow generates
    don't, in every wheel that was inspected. The list doesn't say which is which, so this assumes the worse.
    """
    names: list[str] = row["list"]
    return KernelGroup(
        count=None,
        sass=frozenset(ComputeCapability.parse(name) for name in names if name.startswith("sm_")),
        ptx={ComputeCapability.parse(name): None for name in names if name.startswith("compute_")},
    )
