"""Rules about the wheel: its device code, XLA's compiler, cuDNN, and the environment.

Machine code (SASS) runs on the GPUs of its target. Other GPUs need PTX whose target can be compiled for them,
which the driver does when it loads the code. `releases.Target` says which GPUs these are.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from ..model.prediction import XLA, Reason, Rule
from ..versions import ComputeCapability, CudaVersion, DriverRelease, InvalidVersion, Version, release_range
from . import facts, hardware
from .facts import Fact
from .releases import Isa, KernelGroup, Release, Target, build, isa, known_versions, newest, releases
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
    for row in facts.rows("tensorflow", "kernels"):
        if row["tensorflow"] == version:
            # In a build's list of compute capabilities, sm_XY is machine code, and compute_XY is PTX. The
            # kernels that nvcc compiles also have machine code for compute_XY. Those that TensorFlow
            # generates don't, in every wheel that was inspected. The list doesn't say which is which, so
            # this assumes the worse.
            sass = frozenset(Target.parse(name) for name in row["list"] if name.startswith("sm_"))
            ptx = {Target.parse(name): None for name in row["list"] if name.startswith("compute_")}
            return Kernels((KernelGroup(None, sass, ptx),), facts.fact(row))
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
    missing = {one.library for one in known.groups if one.library and not _reaches(one, capability)}
    note = ""
    if missing:
        note = (
            f"; the {' and '.join(name.upper() for name in sorted(missing) if name)} inside it has none for"
            f" {capability}, so several GPUs can't train together through it"
        )
    compiled = [group for group in own if _native(group, capability) is None]
    if not compiled:
        used = sorted({one for group in own if (one := _native(group, capability))})
        text = f"the wheel has machine code for compute capability {' and '.join(map(str, used))}"
        if any(one.capability != capability for one in used):
            text += f", which {capability} runs by binary compatibility"
        return known.fact.works(text + note)
    what = f"for compute capability {capability}, {_share(own, compiled)} of the wheel are only PTX"
    isas = [group.ptx[source] for group in compiled if (source := _source(group, capability))]
    read = [one for one in isas if one is not None]
    if len(read) < len(isas):
        # The PTX ISA is at most that of the CUDA that the wheel was built with.
        branch, bound = hardware.branch_for(cuda), known.fact.derived()
        if branch is not None and user_branch >= branch.number:
            return bound.works(f"{what}; R{user_branch} compiles all PTX of CUDA {cuda}{note}")
        return bound.unknown(f"{what}; it is not known whether R{user_branch} compiles that of CUDA {cuda}")
    needed = max(read)
    row = next((row for row in facts.rows("drivers", "ptx") if isa(row["isa"]) == needed), None)
    if row is None:
        return known.fact.unknown(
            f"{what}, and it is not known which driver compiles PTX ISA {_text(needed)}"
        )
    rests_on = facts.fact(row).with_(known.fact).derived()
    text = f"{what}, in PTX ISA {row['isa']}, which drivers from R{row['branch']} on compile"
    if user_branch >= row["branch"]:
        return rests_on.works(text + note)
    return rests_on.fails(
        f"{text}; R{user_branch} returns CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "ptx_not_compiled_by_driver"
    )


def _native(group: KernelGroup, capability: ComputeCapability) -> Target | None:
    """Return the target of the machine code that the GPU runs, or None if the group has none for it."""
    return max((one for one in group.sass if one.runs_on(capability)), default=None)


def _source(group: KernelGroup, capability: ComputeCapability) -> Target | None:
    """Return the target of the PTX that the driver compiles for the GPU, or None if there is none."""
    return max((one for one in group.ptx if one.compiles_for(capability)), default=None)


def _reaches(group: KernelGroup, capability: ComputeCapability) -> bool:
    return _native(group, capability) is not None or _source(group, capability) is not None


def _lacking_text(
    own: tuple[KernelGroup, ...], lacking: list[KernelGroup], capability: ComputeCapability
) -> str:
    sass = sorted(frozenset[Target]().union(*(group.sass for group in lacking)))
    ptx = sorted(frozenset[Target]().union(*(group.ptx for group in lacking)))
    specific = [str(one) for one in ptx if one.suffix]
    if specific:
        only = f"is for {', '.join(specific)} only, which can't be compiled for any other GPU generation"
    elif ptx:
        only = f"is for {', '.join(map(str, ptx))}, which is newer than {capability}"
    else:
        only = "is missing"
    share = "the wheel has" if len(lacking) == len(own) else f"{_share(own, lacking)} of the wheel have"
    return (
        f"{share} no kernels for compute capability {capability}: the machine code is for"
        f" {', '.join(map(str, sass))}, and the PTX {only}"
    )


def _share(groups: tuple[KernelGroup, ...], some: list[KernelGroup]) -> str:
    """Return `1149 of 1479 translation units`, or `some kernels` if they were not counted."""
    counts = [group.count for group in groups if group.count is not None]
    if len(counts) < len(groups):
        return "all kernels" if len(some) == len(groups) and not some[0].sass else "some kernels"
    return f"{sum(group.count or 0 for group in some)} of {sum(counts)} translation units"


# The rule about XLA's own compiler: it must have a target for the GPU.


@functools.lru_cache(maxsize=8192)
def targets_gpu(release: str, capability: ComputeCapability, ptxas: str | None) -> Reason | None:
    """Return why XLA of a release can't compile for a GPU; None if it can, or if it is not known.

    XLA writes PTX of one ISA version, and of an older one for an older ptxas. If the GPU is not a target of
    that version, the process ends. ptxas: the version that XLA uses (`12.5.82`), None if it is not known.
    """
    table = facts.rows("drivers", "ptx")
    first = next((isa(one["isa"]) for one in table if str(capability) in one["first_targets"]), None)
    row = next(
        (row for row in facts.rows("xla", "ptx") if release_range(row["releases"]).contains(release)), None
    )
    if first is None or row is None:
        return None
    text = f"compute capability {capability} is a target from PTX ISA {_text(first)} on"
    known, who = facts.fact(row), f"tensorflow {release}"
    code: Rule = "xla_without_gpu_target"
    writes, reaches = isa(row["isa"]), isa(row.get("reaches") or row["isa"])
    own = build(release)
    if own is not None and own.llvm_ptx is not None:
        # What XLA takes of it is in no table.
        known, who = own.fact, "this series of TensorFlow"
        writes, reaches = min(writes, own.llvm_ptx), own.llvm_ptx
    if writes < first <= reaches:
        said = (
            f"{who} was seen to write PTX ISA {_text(writes)}, and the LLVM in its wheel can write up to"
            f" {_text(reaches)}; {text}, so it may work; nobody has measured it"
        )
        return known.unknown(said, code, mode=XLA)
    if writes < first:
        said = f"tensorflow {release} writes PTX ISA {_text(writes)}, and {text}, so the process crashes"
        return known.fails(said, code, mode=XLA)
    cuda = str(CudaVersion.parse(ptxas)) if ptxas else ""
    assembled = next((isa(one["isa"]) for one in table if cuda in one["cuda"]), None)
    if assembled is not None and assembled < first:
        said = f"ptxas {ptxas} assembles PTX up to ISA {_text(assembled)}, and {text}; use a newer CUDA"
        return facts.fact(row).fails(said, code, mode=XLA)
    return None


def _text(version: Isa) -> str:
    return f"{version[0]}.{version[1]}"


# Rules about cuDNN: the CUDA versions and GPUs that a release supports, and what TensorFlow requires.

#: The first cuDNN whose PTX NVIDIA supports on newer GPUs (support matrix of 9.0).
_PTX_SUPPORTED = Version("9.0")


@functools.cache
def support(version: str) -> facts.Row | None:
    """Return the row about a cuDNN release (`9.3.0.75`, `9.3`), or None if no table covers it."""
    asked, rows = Version(version), facts.rows("cudnn", "cudnn")
    return next((row for row in rows if Version(row["from"]) <= asked < Version(row["below"])), None)


def _not_covered(version: str) -> Reason:
    last = facts.fact(facts.rows("cudnn", "cudnn")[-1])
    return last.unknown(f"no known support matrix covers cuDNN {version}")


@functools.lru_cache(maxsize=8192)
def fits_gpu(version: str, capability: ComputeCapability) -> Reason:
    """Decide if a cuDNN release has kernels for a GPU."""
    row = support(version)
    if row is None:
        return _not_covered(version)
    known, minimum = facts.fact(row), ComputeCapability.parse(row["minimum"])
    if capability < minimum:
        text = f"cuDNN {version} has kernels for compute capability {minimum} and newer, not for {capability}"
        return known.fails(text, "cudnn_without_gpu")
    # Those in the support matrix, or with machine code.
    capabilities = [ComputeCapability.parse(text) for text in row["compute_capabilities"]]
    if capability in capabilities:
        return known.works(f"cuDNN {version} supports compute capability {capability}")
    older = [one for one in capabilities if one.major == capability.major and one < capability]
    if older:
        return known.derived().works(
            f"cuDNN {version} has machine code for compute capability {max(older)}, which {capability} runs"
            " by binary compatibility"
        )
    if "ptx" in row and capability > max(capabilities):
        text = (
            f"cuDNN {version} has no machine code for compute capability {capability}: the driver compiles"
            f" its PTX for {row['ptx']}, which does not have every engine"
        )
        if Version(row["from"]) < _PTX_SUPPORTED:
            return known.unknown(
                f"{text}, and it is not known which ones TensorFlow needs; NVIDIA supports it from"
                f" {_PTX_SUPPORTED} on"
            )
        return known.derived().works(text)
    return known.unknown(
        f"it is not known whether cuDNN {version} has kernels for compute capability {capability}"
    )


@functools.lru_cache(maxsize=8192)
def fits_cuda(version: str, cuda: CudaVersion, driver: DriverRelease | None) -> Reason:
    """Decide if a cuDNN has a build for a CUDA and a driver, which is None if cuda-compat replaces it."""
    row = support(version)
    if row is None:
        return _not_covered(version)
    known, floor = facts.fact(row), DriverRelease.or_none(row["drivers"].get(str(cuda.major)))
    if floor is None:
        return known.fails(f"cuDNN {version} has no build for CUDA {cuda.major}", "cudnn_without_cuda_build")
    if driver is not None and driver < floor:
        text = f"cuDNN {version} for CUDA {cuda.major} needs driver {floor} or newer; this is {driver}"
        return known.fails(text, "driver_too_old")
    return known.works(f"cuDNN {version} has a build for CUDA {cuda.major}, for driver {floor} or newer")


@functools.lru_cache(maxsize=1024)
def fits_build(version: str, built_with: str) -> Reason | None:
    """Decide if TensorFlow, compiled with one cuDNN, accepts another at run time.

    TensorFlow compares only major and minor: the major must be the same, and the minor not older. Return None
    if the major versions match and the minor is not known (`8`).
    """
    rule = facts.rule("cudnn", "cudnn-same-major-newer-minor")
    runtime, compiled = Version(version), Version(built_with)
    text = f"TensorFlow was compiled with cuDNN {built_with}, and cuDNN {version} is loaded"
    if runtime.major != compiled.major:
        return rule.fails(f"{text}: a different major version", "cudnn_of_another_major")
    if len(runtime.release) == 1:
        return None
    if runtime.minor < compiled.minor:
        return rule.fails(f"{text}: an older minor version, which it rejects", "cudnn_older_than_built")
    return rule.works(f"{text}, which is not older")


# Rules about the environment: a wheel for the Python, the CUDA version, and the path of its libraries.


@functools.lru_cache(maxsize=1024)
def python_wheel(release: Release, python: str) -> Reason:
    """Decide if a release has a wheel for a Python (`3.12`)."""
    if python in release.pythons:
        return _wheels(release.fact).works(f"tensorflow {release.version} has a wheel for Python {python}")
    return no_wheel_for(release, f"Python {python}")


def no_wheel_for(release: Release, pythons: str) -> Reason:
    """Return the reason that a release has no wheel for some Pythons, named as in a sentence."""
    return _wheels(release.fact).fails(
        f"tensorflow {release.version} has no wheel for {pythons}, only for {', '.join(release.pythons)}",
        "python_without_wheel",
    )


@functools.lru_cache(maxsize=1024)
def no_such_release(version: str) -> Reason | None:
    """Return why a stable release can't be installed, if it does not exist. Return None if it may exist.

    A release may exist although the facts don't have it if it is newer than all of them, or than those of its
    minor version. Candidates, builds with a local version and releases before 1.0 are in no list.
    """
    try:
        asked = Version(version)
    except InvalidVersion:
        return None
    known = [Version(one) for one in known_versions()]
    if asked.is_prerelease or asked.is_postrelease or asked.local or not known[0] <= asked < known[-1]:
        return None
    same = [one for one in known if one.release[:2] == asked.release[:2]]
    if asked in known or (same and asked > same[-1]):
        return None
    before, after = max(one for one in known if one < asked), min(one for one in known if one > asked)
    listed = next((one for one in releases() if Version(one.version) == after), newest())
    return _wheels(listed.fact).fails(
        f"tensorflow {version} does not exist; the releases before and after it are {before} and {after}",
        "release_missing",
    )


@functools.lru_cache(maxsize=1024)
def cuda_major(release: Release, cuda: CudaVersion) -> Reason | None:
    """Return a reason against a CUDA of a different major or older minor version than TensorFlow's."""
    built = CudaVersion.parse(release.cuda)
    text = f"tensorflow {release.version} was built with CUDA {built}"
    # Up to CUDA 10 the names of the libraries hold the minor version too.
    if cuda.major != built.major or (cuda != built and built.major < 11):
        return release.fact.fails(
            f"{text} and loads the libraries of CUDA {built if built.major < 11 else built.major},"
            f" not of CUDA {cuda}",
            "cuda_of_another_version",
        )
    if cuda < built:
        return release.fact.unknown(
            f"{text}; it is not known whether it runs with CUDA {cuda}", "cuda_of_another_version"
        )
    return None


def _wheels(fact: facts.Fact) -> facts.Fact:
    """Return the fact with the index as its source. The release's own source is about its tested build."""
    if fact.id.startswith("wheel-"):
        return fact
    return facts.Fact(fact.id, "verified", facts.source_line("idx"))


@functools.lru_cache(maxsize=1024)
def search_path(version: str, from_wheels: bool, reached: bool | None) -> Reason | None:
    """Decide if the wheel's own search path reaches NVIDIA's wheels; None if the path was not read.

    from_wheels: True if CUDA comes from NVIDIA's wheels. reached: True if something tells the loader about
    their folders, as images and the venv engine do (assemble/loader_cache.py, engines/venv.py). The
    reason is then only an advisory, for people who install the wheel by itself. None if that is not known.
    """
    known = build(version)
    if known is None:
        return None
    if not known.not_found:
        return known.fact.works("the wheel searches NVIDIA's wheels for every library it needs")
    names = ", ".join(known.not_found)
    missed = names if known.folders else f"NVIDIA's wheels ({names})"
    text = f"on its own, the wheel does not find {missed}, without which TensorFlow uses no GPU"
    if from_wheels and reached is False:
        return known.fact.fails(f"{text}; set LD_LIBRARY_PATH", "library_path_not_set")
    if from_wheels and reached is None:
        return known.fact.unknown(f"{text}; LD_LIBRARY_PATH must contain it", "library_path_not_set")
    return known.fact.advises(
        f"{text}; images and environments made by this project tell the loader about NVIDIA's folders;"
        " elsewhere, set LD_LIBRARY_PATH"
    )


@functools.lru_cache(maxsize=1024)
def xla_compiler(nvcc: str, user_cuda: CudaVersion) -> Reason | None:
    """Say why XLA does not need the driver to compile PTX, if its ptxas is newer than the driver's CUDA.

    nvcc: the version of the nvidia-cuda-nvcc wheel, which contains ptxas. user_cuda: the newest CUDA that the
    libcuda in use supports.
    """
    if CudaVersion.parse(nvcc) <= user_cuda:
        return None
    return facts.rule("tensorflow", "xla-uses-ptxas").works(
        f"XLA compiles its kernels to machine code with ptxas {nvcc}, so they don't need the PTX"
        f" compiler of a driver for CUDA {user_cuda}",
        mode=XLA,
    )
