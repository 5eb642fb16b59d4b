"""Judge software on a host: apply every rule whose facts are known, and say which facts are missing.

Each rule looks at few facts and caches its answers, as do the judgements about the software and the host.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from ..model.prediction import JETSON, LINUX, PYPI, WSL2, Host, Outcome, Prediction, Reason, Software, decide
from ..model.spec import Variant
from ..versions import ComputeCapability, CudaVersion, major, minor_in, numbers_in, without_cuda_suffix
from . import evidence, facts, kernels, known_issues
from .evidence import Versions
from .machine import Machine, judge_host, other_build, runs_toolkit, without_cuda
from .releases import Release, build, is_inspected, nearest_inspected, release_of_any_age, releases


# Compared by identity, which is fast: equal descriptions of the software get the same one from the cache.
@dataclass(frozen=True, eq=False)
class JudgedSoftware:
    """Software as the rules see it, and the reasons that follow from it.

    from_pypi: True if the facts about PyPI's wheels hold. inspected: True if they also have its kernels.
    values: what conditions of known combinations may ask about. combinations: those that may apply to a wheel
    from PyPI, depending on the GPU. against: reasons why it fails on every machine. reasons: the others.
    missing: facts that are not known. tried: what people measured and reported with it.
    """

    versions: Versions
    on_cpu: bool
    from_pypi: bool
    inspected: bool
    nvcc: str | None
    values: Mapping[str, str]
    combinations: tuple[known_issues.Combination, ...]
    against: tuple[Reason, ...]
    reasons: tuple[Reason, ...]
    missing: tuple[str, ...]
    tried: tuple[evidence.Tried, ...]


def judge_software(software: Software, host: Host) -> JudgedSoftware:
    """Judge software on the system and the architecture of a host, whose driver and GPU don't matter here."""
    return _judge(software, host.system, host.machine)


@functools.lru_cache(maxsize=8192)
def _judge(software: Software, system: str | None, machine: str | None) -> JudgedSoftware:
    versions = _versions_of(software)
    release = versions.release.version if versions.release else software.tensorflow
    values = known_issues.of_software(
        release, versions.python, versions.cudnn, software.extra, versions.packages
    )
    from_pypi = software.wheel in (None, PYPI)
    combinations = known_issues.on_image(values) if from_pypi and versions.release is not None else ()
    found = _reasons_of(software, system, machine, versions, combinations)
    reasons = [reason for reason in found if reason is not None]
    needed: dict[str, object] = {
        "tensorflow": versions.release,
        "python": versions.python,
        "cuda": versions.cuda,
        "cudnn": versions.cudnn,
        "machine": machine,
        "wheel": software.wheel,
    }
    if any(reason.rule == "library_path_not_set" for reason in reasons):
        needed["library_path"] = software.library_path
    tried: tuple[evidence.Tried, ...] = ()
    if versions.release is not None and software.variant != Variant.CPU.value:
        # A candidate or nightly that was not inspected is judged by its release, but it was tried itself.
        stated = software.tensorflow or ""
        same = nearest_inspected(stated) is None
        version = versions.release.version if same else stated
        tried = evidence.on_software(version, software, versions, system, machine)
    return JudgedSoftware(
        versions=versions,
        on_cpu=software.variant == Variant.CPU.value,
        from_pypi=from_pypi,
        inspected=from_pypi and is_inspected(versions.release),
        nvcc=numbers_in(versions.packages.get("nvidia-cuda-nvcc")),
        values=values,
        combinations=tuple(one for one in combinations if one.by_gpu),
        against=tuple(reason for reason in reasons if reason.outcome is Outcome.FAILS),
        reasons=tuple(reason for reason in reasons if reason.outcome is not Outcome.FAILS),
        missing=tuple(name for name, value in needed.items() if value is None),
        tried=tried,
    )


def _versions_of(software: Software) -> Versions:
    """Return the versions; those of installed wheels come before those that were stated."""
    wheels = {without_cuda_suffix(name): version for name, version in software.packages}
    release = release_of_any_age(software.tensorflow or "")
    cuda, cudnn_version = software.cuda, software.cudnn
    if software.extra and release is not None and release.extra_style == "exact":
        # The extra pins the versions that TensorFlow was built with.
        cuda, cudnn_version = cuda or release.cuda, cudnn_version or release.cudnn
    loaded = wheels.get("nvidia-cudnn") or cudnn_version
    cudnn_numbers = numbers_in(loaded)
    return Versions(
        release,
        minor_in(software.python),
        CudaVersion.or_none(wheels.get("nvidia-cuda-runtime") or cuda),
        cudnn_numbers,
        None if cudnn_numbers else major(loaded or "") or None,
        wheels,
    )


def _reasons_of(
    software: Software,
    system: str | None,
    machine: str | None,
    versions: Versions,
    combinations: Iterable[known_issues.Combination],
) -> Iterator[Reason | None]:
    yield known_issues.cpu_package(versions.packages, software.variant)
    yield other_build(software.wheel)
    yield known_issues.two_cudnns(software.versions)
    for name, version in software.packages:
        yield known_issues.removed_package(name, version)
    release = versions.release
    if release is None:
        return
    yield without_cuda(release.version, system, machine, software.wheel)
    if software.wheel not in (None, PYPI):
        return
    # The wheel on PyPI and the libraries that it loads.
    if versions.python is not None:
        yield kernels.python_wheel(release, versions.python)
    if versions.cuda is not None:
        yield kernels.cuda_major(release, versions.cuda)
    measured = build(release.version)
    built_with = (measured.cudnn if measured else None) or release.cudnn
    loaded = versions.cudnn or versions.cudnn_major
    if loaded is not None:
        yield kernels.fits_build(loaded, built_with)
    wheel = numbers_in(versions.packages.get("nvidia-cudnn"))
    yield from known_issues.mixed_frameworks(release, built_with, versions.packages, wheel)
    yield from (one.reason() for one in combinations if not one.by_gpu)
    if system not in (None, LINUX, WSL2):
        return
    # Where the CUDA libraries come from, and whether TensorFlow finds them.
    has_libraries = versions.cuda is not None or versions.from_wheels
    if software.extra is False and not has_libraries and release.extra_style != "none":
        yield without_libraries(release.version)
    if software.extra:
        yield known_issues.framework_for_another_cuda(release, software.versions)
    elif software.cuda is None and versions.cuda is None:
        yield known_issues.wheels_of_another_cuda(release, software.versions)
    from_wheels = software.extra or versions.from_wheels
    yield kernels.search_path(release.version, from_wheels, software.library_path)


def without_system_libraries(release: Release) -> Reason:
    """Return why a release that has no extra fails on a system without CUDA."""
    return release.fact.fails(
        f"tensorflow {release.version} was installed without CUDA's libraries; it has no extra that installs"
        f" them, so CUDA {release.cuda} and cuDNN {release.cudnn} must be on the system",
        "cuda_libraries_not_installed",
    )


def without_libraries(version: str) -> Reason:
    """Return why a TensorFlow without the extra fails. version: empty if it is not known."""
    name, pin = (f"tensorflow {version}", f"=={version}") if version else ("tensorflow", "")
    return facts.rule("platforms", "extra-and-cuda").fails(
        f"{name} was installed without CUDA's libraries; install tensorflow[and-cuda]{pin}",
        "cuda_libraries_not_installed",
    )


#: A driver branch that compiles every PTX.
_ANY_BRANCH = 9999


def judge(software: Software, host: Host, mode: str | None = None) -> Prediction:
    """Predict from the known facts if TensorFlow can use the GPU. mode: only `eager` or `xla`; None: both.

    A value that no table has (a release, driver or GPU that does not exist) counts as not known. Where the
    source of TensorFlow, the system or the architecture is not known, it is judged as the wheel from PyPI on
    Linux x86_64, but it can't be predicted to work.
    """
    return judge_both(judge_software(software, host), judge_host(host), mode)


# Images with different bases have the same software, so that a matrix asks many times.
@functools.lru_cache(maxsize=32768)
def judge_both(software: JudgedSoftware, host: Machine, mode: str | None = None) -> Prediction:
    """Predict from what was judged about the software and about the host. mode: as for `judge`."""
    if not host.has_gpu and not software.on_cpu:
        text = "this host has no GPU: TensorFlow runs on the CPU, which proves nothing about any GPU"
        return decide((*software.against, facts.rule("tensorflow", "no-gpu").unknown(text)))
    if not host.has_gpu:
        text = "tensorflow-cpu contains no CUDA: it runs on the CPU by design, with any driver and GPU"
        by_design = facts.rule("tensorflow", "tensorflow-cpu").works(text)
        release, python = software.versions.release, software.versions.python
        if release is not None and python is not None:
            return decide((by_design, kernels.python_wheel(release, python)))
        return decide((by_design,), tuple(one for one in software.missing if one in ("tensorflow", "python")))
    missing = (*software.missing, *host.missing)
    # The reasons to fail on every machine come first, then those that need the machine, then all others.
    reasons = (*software.against, *_on_gpu(software, host), *software.reasons)
    tried = evidence.on_machine(software.tried, host) if software.tried else ()
    return evidence.weigh(reasons, tried, missing, mode) if tried else decide(reasons, missing, mode)


def judge_uninspected(
    software: Software, host: Host, nearest: Release, mode: str | None = None
) -> Prediction:
    """Predict for a candidate or nightly that was not inspected; never `works`. nearest: an inspected one."""
    judged, machine = judge_software(replace(software, tensorflow=None), host), judge_host(host)
    word = judge(replace(software, tensorflow=nearest.version), host, mode).word
    text = (
        f"it is not known what the wheel of tensorflow {software.tensorflow} needs and which GPUs it has"
        f" kernels for, because it was not inspected; the nearest inspected release is {nearest.version},"
        f" whose prediction here is: {word}"
    )
    not_known = nearest.fact.unknown(text, "no_kernels_for_gpu")
    reasons = (*judged.against, *_on_gpu(judged, machine), *judged.reasons, not_known)
    tried = evidence.on_machine(judge_software(software, host).tried, machine)
    return evidence.weigh(reasons, tried, machine.missing, mode)


def of_software(software: Software, host: Host) -> tuple[Reason, ...]:
    """Return the reasons that hold on every machine with the host's system, deciding ones first."""
    judged = judge_software(software, host)
    return decide((*judged.against, *judged.reasons)).reasons


def facts_of(software: Software, host: Host) -> Mapping[str, tuple[known_issues.Combination, bool | None]]:
    """Return known combinations and traits by id, and if they hold; None if unknown, as for other builds."""
    values = known_values(software, host)
    of_pypi = values if judge_software(software, host).from_pypi else {}
    return {
        **{issue.fact.id: (issue, issue.holds(of_pypi)) for issue in known_issues.combinations()},
        **{trait.fact.id: (trait, trait.holds(values)) for trait in known_issues.traits()},
    }


def known_values(software: Software, host: Host) -> Mapping[str, str]:
    """Return the values that conditions on known combinations ask about, by kind."""
    values, machine = judge_software(software, host).values, judge_host(host)
    if machine.capability is None:
        return values
    return {**values, **known_issues.of_gpu(machine.capability, machine.model)}


def _on_gpu(software: JudgedSoftware, host: Machine) -> Iterator[Reason]:
    """Return the reasons that need the machine, in the order in which a user would meet them."""
    toolkit, cudnn, capability = software.versions.cuda, software.versions.cudnn, host.capability
    yield from host.reasons
    if toolkit is not None and (runs := runs_toolkit(host, toolkit)):
        yield runs
    if capability is not None:
        yield from _on_capability(software, host)
        if cudnn is not None:
            yield kernels.fits_gpu(cudnn, capability)
    if cudnn and toolkit is not None and host.linux is not None and host.user is not None:
        # Windows drivers have other numbers, and `runs_toolkit` has already compared them.
        driver = None if host.user.lifted_to or host.on_windows else host.linux
        yield kernels.fits_cuda(cudnn, toolkit, driver)
    compiled = host.user_cuda and software.nvcc and kernels.xla_compiler(software.nvcc, host.user_cuda)
    if compiled:
        yield compiled


# The driver makes no difference here.
@functools.lru_cache(maxsize=8192)
def _combinations_on(
    software: JudgedSoftware, capability: ComputeCapability, model: str | None
) -> tuple[Reason, ...]:
    return known_issues.on_gpu(software.combinations, software.values, capability, model)


def _on_capability(software: JudgedSoftware, host: Machine) -> Iterator[Reason]:
    """Return the reasons about the wheel's code and the GPU."""
    release, capability = software.versions.release, host.capability
    if release is None or capability is None:
        return
    if host.is_jetson and software.from_pypi:
        wrong = without_cuda(release.version, LINUX, JETSON, PYPI)
        if wrong is not None and wrong not in software.against:
            yield wrong
    if software.combinations:
        yield from _combinations_on(software, capability, host.model)
    if software.inspected:
        runs = kernels.run_on(release.version, capability, host.user.branch if host.user else _ANY_BRANCH)
        if host.user is not None or runs.outcome is Outcome.FAILS:
            yield runs
        if target := kernels.targets_gpu(release.version, capability, software.nvcc):
            yield target
    elif not software.from_pypi:
        return
    elif release.lowest_gpu and capability < ComputeCapability.parse(release.lowest_gpu):
        text = (
            f"the package of tensorflow {release.version} is for compute capability {release.lowest_gpu} and"
            f" newer, not for {capability}"
        )
        yield release.fact.fails(text, "no_kernels_for_gpu")
    else:
        text = (
            f"it is not known which compute capabilities the wheel of tensorflow {release.version} has"
            f" kernels for, because it was not inspected; the nearest inspected release is {releases()[0].version}"
        )
        yield release.fact.unknown(text, "no_kernels_for_gpu")
