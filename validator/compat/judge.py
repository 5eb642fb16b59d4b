"""Judge software on a host: apply every rule whose facts are known, and say which facts are missing.

Rules look at few facts (release, CUDA, cuDNN, driver, GPU), so each rule caches its answers, and so do the
judgements about the software and about the host. For a cell, the answers only have to be sorted.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import replace

from ..model.prediction import Outcome, Prediction, Reason, decide
from ..model.situation import JETSON, LINUX, PYPI, Host, Software
from ..versions import ComputeCapability
from . import cudnn, evidence, facts, installation, kernels, known_issues, platforms, xla
from .machine import Machine, judge_host, runs_toolkit
from .releases import Release, releases
from .software import JudgedSoftware, judge_software

#: A driver branch that compiles every PTX.
_ANY_BRANCH = 9999
_NO_GPU_TEXT = "this host has no GPU: TensorFlow runs on the CPU, which proves nothing about any GPU"
_ON_CPU_TEXT = "tensorflow-cpu contains no CUDA: it runs on the CPU by design, with any driver and GPU"
_DOCUMENTED_TEXT = "the package of tensorflow {} is for compute capability {} and newer, not for {}"
_KERNELS_TEXT = (
    "it is not known which compute capabilities the wheel of tensorflow {} has kernels for, because it was"
    " not inspected; the nearest that was is {}"
)
_UNINSPECTED_TEXT = (
    "it is not known what the wheel of tensorflow {} needs and which GPUs it has kernels for, because it was"
    " not inspected; the nearest that was is {}, whose prediction here is: {}"
)


def judge(software: Software, host: Host, mode: str | None = None) -> Prediction:
    """Predict whether TensorFlow can use the GPU, from the facts that are known.

    mode: `eager` or `xla` to ask only about this one.

    A value that no table has (a release, driver or GPU that does not exist) counts as not known. Where the
    source of TensorFlow, the system or the architecture is not known, it is judged as the wheel from PyPI on
    Linux x86_64, but it can't be predicted to work.
    """
    return judge_both(judge_software(software, host), judge_host(host), mode)


# Images with different bases have the same software, so that a matrix asks many times.
@functools.lru_cache(maxsize=32768)
def judge_both(software: JudgedSoftware, host: Machine, mode: str | None = None) -> Prediction:
    """Predict from what was judged about the software and about the host. mode: as for `judge`."""
    if not host.has_gpu:
        return _on_cpu(software) if software.on_cpu else _without_gpu(software)
    missing = (*software.missing, *host.missing)
    # The reasons to fail on every machine come first, then those that need the machine, then all others.
    reasons = (*software.against, *_on_gpu(software, host), *software.reasons)
    tried = evidence.on_machine(software.tried, host) if software.tried else ()
    return evidence.weigh(reasons, tried, missing, mode) if tried else decide(reasons, missing, mode)


def judge_uninspected(
    software: Software, host: Host, nearest: Release, mode: str | None = None
) -> Prediction:
    """Predict for a candidate or a nightly of which no wheel was inspected. It is never predicted to work.

    What does not depend on the release can fail. nearest: the release that comes nearest and was inspected.
    """
    judged, machine = judge_software(replace(software, tensorflow=None), host), judge_host(host)
    word = judge(replace(software, tensorflow=nearest.version), host, mode).word
    text = _UNINSPECTED_TEXT.format(software.tensorflow, nearest.version, word)
    not_known = nearest.fact.unknown(text, "no_kernels_for_gpu")
    reasons = (*judged.against, *_on_gpu(judged, machine), *judged.reasons, not_known)
    tried = evidence.on_machine(judge_software(software, host).tried, machine)
    return evidence.weigh(reasons, tried, machine.missing, mode)


def of_software(software: Software, host: Host) -> tuple[Reason, ...]:
    """Return the reasons that hold on every machine of the host's system, those that decide first."""
    judged = judge_software(software, host)
    return decide((*judged.against, *judged.reasons)).reasons


def facts_of(software: Software, host: Host) -> Mapping[str, tuple[known_issues.Combination, bool | None]]:
    """Return each known combination and trait by id, and whether it holds; None if that is not known.

    Combinations are about the wheel from PyPI: of other builds, it is not known.
    """
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


def _on_cpu(software: JudgedSoftware) -> Prediction:
    by_design = facts.rule("tensorflow", "tensorflow-cpu").works(_ON_CPU_TEXT)
    if software.release is None or software.python is None:
        return decide(
            (by_design,), tuple(name for name in software.missing if name in ("tensorflow", "python"))
        )
    return decide((by_design, installation.python_wheel(software.release, software.python)))


def _without_gpu(software: JudgedSoftware) -> Prediction:
    return decide((*software.against, facts.rule("tensorflow", "no-gpu").unknown(_NO_GPU_TEXT)))


def _on_gpu(software: JudgedSoftware, host: Machine) -> Iterator[Reason]:
    """Return the reasons that need the machine, in the order in which a user would meet them."""
    toolkit, capability = software.cuda, host.capability
    yield from host.reasons
    if toolkit is not None and (runs := runs_toolkit(host, toolkit)):
        yield runs
    if capability is not None:
        yield from _on_capability(software, host)
        if software.cudnn is not None:
            yield cudnn.fits_gpu(software.cudnn, capability)
    if software.cudnn and toolkit is not None and host.linux is not None and host.user is not None:
        # Windows drivers have other numbers, and `runs_toolkit` has already compared them.
        driver = None if host.user.lifted_to or host.on_windows else host.linux
        yield cudnn.fits_cuda(software.cudnn, toolkit, driver)
    if software.nvcc is not None and host.user_cuda is not None:
        compiled = installation.xla_compiler(software.nvcc, host.user_cuda)
        if compiled is not None:
            yield compiled


def _on_capability(software: JudgedSoftware, host: Machine) -> Iterator[Reason]:
    """Return the reasons about the wheel's code and the GPU."""
    release, capability = software.release, host.capability
    if release is None or capability is None:
        return
    if host.is_jetson and software.from_pypi:
        wrong = platforms.without_cuda(release.version, LINUX, JETSON, PYPI)
        if wrong is not None and wrong not in software.against:
            yield wrong
    if software.combinations:
        yield from known_issues.on_gpu(software.combinations, software.values, capability, host.model)
    if software.inspected:
        runs = kernels.run_on(release.version, capability, host.user.branch if host.user else _ANY_BRANCH)
        if host.user is not None or runs.outcome is Outcome.FAILS:
            yield runs
        target = xla.targets_gpu(release.version, capability, software.nvcc)
        if target is not None:
            yield target
    elif not software.from_pypi:
        return
    elif release.lowest_gpu and capability < ComputeCapability.parse(release.lowest_gpu):
        text = _DOCUMENTED_TEXT.format(release.version, release.lowest_gpu, capability)
        yield release.fact.fails(text, "no_kernels_for_gpu")
    else:
        text = _KERNELS_TEXT.format(release.version, releases()[0].version)
        yield release.fact.unknown(text, "no_kernels_for_gpu")
