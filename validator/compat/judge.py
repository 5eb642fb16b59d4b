"""Judge loose facts: apply every rule whose facts are known, and say which facts are missing.

Rules look at few facts (release, CUDA, cuDNN, driver, GPU), so each rule caches its answers, and so do the
two halves of a situation, the software and the machine. For a cell, the answers only have to be sorted.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

from ..model.prediction import Outcome, Prediction, Reason, decide
from ..model.situation import Situation
from ..model.spec import NO_GPU, Variant
from ..versions import ComputeCapability, CudaVersion, DriverRelease, leading_numbers
from . import cudnn, drivers, facts, gpus, installation, kernels, known_issues, older
from .builds import build
from .drivers import UserDriver, user_driver
from .errors import UnknownGpu
from .releases import Release, releases

_NO_GPU_TEXT = "this host has no GPU: TensorFlow runs on the CPU, which proves nothing about any GPU"
_ON_CPU_TEXT = "tensorflow-cpu contains no CUDA: it runs on the CPU by design, with any driver and GPU"

_KERNELS_TEXT = "it is not known which compute capabilities the wheel of tensorflow {} has kernels for"

#: Names of packages that the rules know without the suffix of their CUDA.
_SUFFIXES = ("-cu11", "-cu12", "-cu13")


@dataclass(frozen=True)
class _Software:
    """What is installed as the rules see it: the versions that matter for a GPU, and the reasons without one.

    listed: False for a release of which only CUDA, cuDNN and the Pythons are known.
    combinations: ids of the known combinations that apply and have a condition on the GPU.
    against: reasons why it fails on every machine. reasons: the others. missing: facts that are not known.
    """

    release: Release | None
    listed: bool
    cuda: CudaVersion | None
    cudnn: str | None
    nvcc: str | None
    combinations: tuple[str, ...]
    against: tuple[Reason, ...]
    reasons: tuple[Reason, ...]
    missing: tuple[str, ...]


@dataclass(frozen=True)
class _Machine:
    """The machine as the rules see it: the driver, the libcuda in use, and the reasons from them.

    user_cuda: the newest CUDA that the libcuda supports, None if it is not known.
    """

    driver: DriverRelease | None
    capability: ComputeCapability | None
    user: UserDriver | None
    user_cuda: CudaVersion | None
    reasons: tuple[Reason, ...]
    missing: tuple[str, ...]


def judge(situation: Situation) -> Prediction:
    """Predict whether TensorFlow can use the GPU, from the facts that are known.

    A value that no table has (a release, driver or GPU that does not exist) counts as not known. A situation
    without a source of TensorFlow, system or architecture is judged as the wheel from PyPI on Linux x86_64,
    but it can't be predicted to work.
    """
    if situation.variant == Variant.CPU.value and situation.gpu == NO_GPU:
        return _on_cpu(situation)
    software = _software(situation)
    if situation.gpu == NO_GPU:
        return decide((*software.against, _rule("no-gpu").unknown(_NO_GPU_TEXT)))
    machine = _machine(situation)
    missing = (*software.missing, *machine.missing)
    # Why it fails on every machine comes before what the driver changes; its other reasons come after that.
    reasons = (*software.against, *_together(software, machine), *software.reasons)
    return decide(reasons, missing, situation.mode)


def of_software(situation: Situation) -> tuple[Reason, ...]:
    """Return the reasons that hold on every machine, those that decide first."""
    software = _software(situation)
    return decide((*software.against, *software.reasons)).reasons


def _on_cpu(situation: Situation) -> Prediction:
    by_design = _rule("tensorflow-cpu").works(_ON_CPU_TEXT)
    release = older.release_of_any_age(situation.tensorflow or "")
    python = _minor(situation.python)
    if release is not None and python is not None:
        return decide((by_design, installation.python_wheel(release, python)))
    return decide((by_design,), ("python",) if release else ("tensorflow",))


def _together(software: _Software, machine: _Machine) -> Iterator[Reason]:
    """Return the reasons that need the machine, in the order in which a user would meet them."""
    release, toolkit, driver, capability = software.release, software.cuda, machine.driver, machine.capability
    lifted_to = machine.user.lifted_to if machine.user else None
    yield from machine.reasons
    if toolkit is not None and driver is not None:
        yield drivers.runs_toolkit(toolkit, driver, lifted_to)
    if capability is not None:
        if software.combinations:
            yield from known_issues.on_gpu(software.combinations, capability)
        if release is not None and machine.user is not None:
            if software.listed:
                yield kernels.run_on(release.version, capability, machine.user.branch)
            else:
                yield release.fact.unknown(_KERNELS_TEXT.format(release.version), "no_kernels_for_gpu")
        if software.cudnn is not None:
            yield cudnn.fits_gpu(software.cudnn, capability)
    if software.cudnn is not None and toolkit is not None and driver is not None:
        yield cudnn.fits_cuda(software.cudnn, toolkit, None if lifted_to else driver)
    if software.nvcc is not None and machine.user_cuda is not None:
        compiled = installation.xla_compiler(software.nvcc, machine.user_cuda)
        if compiled is not None:
            yield compiled


def _software(situation: Situation) -> _Software:
    return _judged_software(
        situation.tensorflow,
        situation.python,
        situation.cuda,
        situation.cudnn,
        situation.extra,
        tuple(situation.packages.items()),
    )


@functools.lru_cache(maxsize=8192)
def _judged_software(
    tensorflow: str | None,
    python: str | None,
    cuda: str | None,
    cudnn_version: str | None,
    extra: bool | None,
    installed: tuple[tuple[str, str], ...],
) -> _Software:
    release = older.release_of_any_age(tensorflow or "")
    packages = {_without_suffix(name): version for name, version in installed}
    python = _minor(python)
    toolkit = _cuda(packages.get("nvidia-cuda-runtime") or cuda)
    cudnn_version = _numbers(packages.get("nvidia-cudnn") or cudnn_version)
    found: list[Reason | None] = []
    combinations: tuple[known_issues.Combination, ...] = ()
    if release is not None:
        combinations = known_issues.on_image(release.version, python, extra, packages)
        if python is not None:
            found.append(installation.python_wheel(release, python))
        found += [one.reason() for one in combinations if one.capabilities is None]
        if toolkit is not None:
            found.append(installation.cuda_major(release, toolkit))
        if cudnn_version is not None:
            measured = build(release.version)
            found.append(cudnn.fits_build(cudnn_version, (measured and measured.cudnn) or release.cudnn))
        found.append(installation.search_path(release.version))
    reasons = [reason for reason in found if reason is not None]
    known = {"tensorflow": release, "python": python, "cuda": toolkit, "cudnn": cudnn_version}
    return _Software(
        release=release,
        listed=release in releases(),
        cuda=toolkit,
        cudnn=cudnn_version,
        nvcc=_numbers(packages.get("nvidia-cuda-nvcc")),
        combinations=tuple(one.fact.id for one in combinations if one.capabilities is not None),
        against=tuple(reason for reason in reasons if reason.outcome is Outcome.FAILS),
        reasons=tuple(reason for reason in reasons if reason.outcome is not Outcome.FAILS),
        missing=tuple(name for name, value in known.items() if value is None),
    )


def _machine(situation: Situation) -> _Machine:
    return _judged_machine(
        situation.driver,
        situation.driver_cuda,
        situation.gpu,
        situation.capability,
        situation.system,
        situation.compat,
    )


@functools.lru_cache(maxsize=8192)
def _judged_machine(
    driver_text: str | None,
    driver_cuda: str | None,
    gpu: str | None,
    capability_text: str | None,
    system: str | None,
    compat: str | None,
) -> _Machine:
    capability, kind = _gpu(gpu, capability_text)
    driver = _driver(driver_text, driver_cuda)
    missing = tuple(name for name, value in {"driver": driver, "gpu": capability}.items() if value is None)
    if driver is None:
        return _Machine(None, capability, None, None, (), missing)
    user = user_driver(driver, compat if _cuda(compat) else None, kind)
    branch = drivers.branch_of(user.branch)
    known_gpu = drivers.knows_gpu(driver.branch, user.branch, capability) if capability else ()
    reasons = (*known_gpu, *user.reasons)
    return _Machine(driver, capability, user, branch.cuda if branch else None, reasons, missing)


def _gpu(name: str | None, capability: str | None) -> tuple[ComputeCapability | None, str | None]:
    """Return the capability and the kind of a GPU by its name, or by its capability.

    A capability alone tells the kind if all GPUs with it are of one kind.
    """
    given = _capability(capability)
    if name is not None:
        try:
            known = gpus.gpu(name)
        except UnknownGpu:
            return given, None
        return given or known.compute_capability, known.kind
    kinds = {one.kind for one in gpus.gpus() if one.compute_capability == given}
    return given, kinds.pop() if len(kinds) == 1 else None


def _driver(release: str | None, cuda: str | None) -> DriverRelease | None:
    """Return the driver, by its release or by the newest CUDA that it supports; None if no text says it."""
    try:
        return DriverRelease.parse(release or "")
    except ValueError:
        pass
    newest = _cuda(cuda)
    branch = drivers.branch_for(newest) if newest else None
    return DriverRelease(branch.number) if branch else None


# Values as people and programs write them; None for text that is not such a value.


def _cuda(text: str | None) -> CudaVersion | None:
    major, *minor = leading_numbers(text or "") or (None,)
    return CudaVersion(major, minor[0]) if major is not None and minor else None


def _capability(text: str | None) -> ComputeCapability | None:
    try:
        return ComputeCapability.parse(text or "")
    except ValueError:
        return None


def _minor(python: str | None) -> str | None:
    numbers = leading_numbers(python or "")
    return f"{numbers[0]}.{numbers[1]}" if len(numbers) > 1 else None


def _numbers(text: str | None) -> str | None:
    numbers = leading_numbers(text or "")
    return ".".join(map(str, numbers)) if len(numbers) > 1 else None


def _without_suffix(name: str) -> str:
    return next((name.removesuffix(suffix) for suffix in _SUFFIXES if name.endswith(suffix)), name)


def _rule(identifier: str) -> facts.Fact:
    return facts.rule("tensorflow", identifier)
