"""The rule about the device code in TensorFlow's wheel: which GPUs run it, and with which drivers.

Machine code (SASS) runs on the GPUs of its target. Other GPUs need PTX whose target can be compiled for them,
which the driver does when it loads the code. `targets` says which GPUs these are.
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
from .targets import Target


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
    for row in facts.rows("tensorflow", "kernels"):
        if row["tensorflow"] == version:
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
    PTX. TensorFlow's own code must be complete. NCCL's may be missing: only several GPUs together need it.
    """
    own = tuple(group for group in known.groups if group.library is None)
    lacking = [group for group in own if not _reaches(group, capability)]
    if lacking:
        return known.fact.fails(_lacking_text(own, lacking, capability), "no_kernels_for_gpu")
    note = _libraries_text(known, capability)
    compiled = [group for group in own if _native(group, capability) is None]
    if not compiled:
        return known.fact.works(_native_text(own, capability) + note)
    what = f"for compute capability {capability}, {_share(own, compiled)} of the wheel are only PTX"
    isas = [group.ptx[source] for group in compiled if (source := _source(group, capability))]
    read = [one for one in isas if one is not None]
    if len(read) == len(isas):
        return _compile(known, what, note, max(read), user_branch)
    return _compile_unread(known, what, note, cuda, user_branch)


def _compile(known: Kernels, what: str, note: str, newest: Isa, user_branch: int) -> Reason:
    """Decide if the driver's compiler reads the PTX ISA of kernels that are only PTX."""
    row = next((row for row in facts.rows("drivers", "ptx") if isa(row["isa"]) == newest), None)
    if row is None:
        missing = ".".join(map(str, newest))
        return known.fact.unknown(f"{what}, and it is not known which driver compiles PTX ISA {missing}")
    rests_on = facts.fact(row).with_(known.fact).derived()
    text = f"{what}, in PTX ISA {row['isa']}, which drivers from R{row['branch']} on compile"
    if user_branch >= row["branch"]:
        return rests_on.works(text + note)
    return rests_on.fails(
        f"{text}; R{user_branch} returns CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "ptx_not_compiled_by_driver"
    )


def _compile_unread(known: Kernels, what: str, note: str, cuda: CudaVersion, user_branch: int) -> Reason:
    """Decide without the PTX ISA, which is at most that of the CUDA that the wheel was built with."""
    branch = drivers.branch_for(cuda)
    bound = known.fact.derived()
    if branch is not None and user_branch >= branch.number:
        return bound.works(f"{what}; R{user_branch} compiles all PTX of CUDA {cuda}{note}")
    return bound.unknown(f"{what}; it is not known whether R{user_branch} compiles that of CUDA {cuda}")


def _native(group: KernelGroup, capability: ComputeCapability) -> Target | None:
    """Return the target of the machine code that the GPU runs, or None if the group has none for it."""
    return max((one for one in group.sass if one.runs_on(capability)), default=None)


def _source(group: KernelGroup, capability: ComputeCapability) -> Target | None:
    """Return the target of the PTX that the driver compiles for the GPU, or None if there is none."""
    return max((one for one in group.ptx if one.compiles_for(capability)), default=None)


def _reaches(group: KernelGroup, capability: ComputeCapability) -> bool:
    return _native(group, capability) is not None or _source(group, capability) is not None


def _native_text(groups: tuple[KernelGroup, ...], capability: ComputeCapability) -> str:
    used = sorted({one for group in groups if (one := _native(group, capability))})
    text = f"the wheel has machine code for compute capability {' and '.join(map(str, used))}"
    exact = all(one.capability == capability for one in used)
    return text if exact else f"{text}, which {capability} runs by binary compatibility"


def _lacking_text(
    own: tuple[KernelGroup, ...], lacking: list[KernelGroup], capability: ComputeCapability
) -> str:
    machine_code = sorted(frozenset[Target]().union(*(group.sass for group in lacking)))
    ptx = sorted(frozenset[Target]().union(*(group.ptx for group in lacking)))
    share = "the wheel has" if len(lacking) == len(own) else f"{_share(own, lacking)} of the wheel have"
    return (
        f"{share} no kernels for compute capability {capability}: the machine code is for"
        f" {', '.join(map(str, machine_code))}, and the PTX {_ptx_text(ptx, capability)}"
    )


def _ptx_text(ptx: list[Target], capability: ComputeCapability) -> str:
    """Describe PTX that can't be compiled for a GPU: `is for 9.0a, which ...`."""
    if not ptx:
        return "is missing"
    specific = [str(one) for one in ptx if one.suffix]
    if specific:
        return f"is for {', '.join(specific)} only, which can't be compiled for any other GPU generation"
    return f"is for {', '.join(map(str, ptx))}, which is newer than {capability}"


def _libraries_text(known: Kernels, capability: ComputeCapability) -> str:
    """Return a remark on libraries in the wheel that have no code for the GPU, or nothing."""
    missing = {one.library for one in known.groups if one.library and not _reaches(one, capability)}
    if not missing:
        return ""
    return (
        f"; the {' and '.join(name.upper() for name in sorted(missing) if name)} inside it has none for"
        f" {capability}, so several GPUs can't train together through it"
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
        sass=frozenset(Target.parse(name) for name in names if name.startswith("sm_")),
        ptx={Target.parse(name): None for name in names if name.startswith("compute_")},
    )
