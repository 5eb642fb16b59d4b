"""Judge loose facts: apply every rule whose facts are known, and say which facts are missing.

Rules look at few facts (release, CUDA, cuDNN, driver, GPU), so each rule caches its answers, and so do the
two halves of a situation, the software and the machine. For a cell, the answers only have to be sorted.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import replace

from ..model.prediction import Outcome, Prediction, Reason, decide
from ..model.situation import JETSON, LINUX, PYPI, Situation
from ..versions import ComputeCapability
from . import cudnn, evidence, facts, installation, kernels, known_issues, platforms, xla
from .machine import Machine, machine, runs_toolkit
from .releases import Release, releases
from .software import Software, software

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


def judge(situation: Situation) -> Prediction:
    """Predict whether TensorFlow can use the GPU, from the facts that are known.

    A value that no table has (a release, driver or GPU that does not exist) counts as not known. Where the
    source of TensorFlow, the system or the architecture is not known, it is judged as the wheel from PyPI on
    Linux x86_64, but it can't be predicted to work.
    """
    return judge_halves(software(situation), machine(situation), situation.mode)


# Images with different bases have the same software, so that a matrix asks many times.
@functools.lru_cache(maxsize=32768)
def judge_halves(found: Software, host: Machine, mode: str | None = None) -> Prediction:
    """Predict for software on a machine. mode: `eager` or `xla` to ask only about this one."""
    if not host.has_gpu:
        return _on_cpu(found) if found.on_cpu else _without_gpu(found)
    missing = (*found.missing, *host.missing)
    # The reasons to fail on every machine come first, then those that need the machine, then all others.
    reasons = (*found.against, *_on_gpu(found, host), *found.reasons)
    tried = evidence.on_machine(found.tried, host) if found.tried else ()
    return evidence.weigh(reasons, tried, missing, mode) if tried else decide(reasons, missing, mode)


def judge_uninspected(situation: Situation, nearest: Release) -> Prediction:
    """Predict for a candidate or a nightly of which no wheel was inspected. It is never predicted to work.

    What does not depend on the release can fail. nearest: the release that comes nearest and was inspected.
    """
    found, host = software(replace(situation, tensorflow=None)), machine(situation)
    word = judge(replace(situation, tensorflow=nearest.version)).word
    text = _UNINSPECTED_TEXT.format(situation.tensorflow, nearest.version, word)
    not_known = nearest.fact.unknown(text, "no_kernels_for_gpu")
    reasons = (*found.against, *_on_gpu(found, host), *found.reasons, not_known)
    tried = evidence.on_machine(software(situation).tried, host)
    return evidence.weigh(reasons, tried, host.missing, situation.mode)


def of_software(situation: Situation) -> tuple[Reason, ...]:
    """Return the reasons that hold on every machine, those that decide first."""
    found = software(situation)
    return decide((*found.against, *found.reasons)).reasons


def facts_of(situation: Situation) -> Mapping[str, tuple[known_issues.Combination, bool | None]]:
    """Return each known combination and trait by id, and whether it holds; None if that is not known.

    Combinations are about the wheel from PyPI: of other builds, it is not known.
    """
    known = known_values(situation)
    issues = known if software(situation).from_pypi else {}
    found = {one.fact.id: (one, one.holds(issues)) for one in known_issues.combinations()}
    return found | {one.fact.id: (one, one.holds(known)) for one in known_issues.traits()}


def known_values(situation: Situation) -> Mapping[str, str]:
    """Return the values of a situation that conditions on known combinations ask about, by kind."""
    found, host = software(situation), machine(situation)
    if host.capability is None:
        return found.known
    return {**found.known, **known_issues.of_gpu(host.capability, host.model)}


def _on_cpu(found: Software) -> Prediction:
    by_design = facts.rule("tensorflow", "tensorflow-cpu").works(_ON_CPU_TEXT)
    if found.release is None or found.python is None:
        return decide((by_design,), tuple(name for name in found.missing if name in ("tensorflow", "python")))
    return decide((by_design, installation.python_wheel(found.release, found.python)))


def _without_gpu(found: Software) -> Prediction:
    return decide((*found.against, facts.rule("tensorflow", "no-gpu").unknown(_NO_GPU_TEXT)))


def _on_gpu(found: Software, host: Machine) -> Iterator[Reason]:
    """Return the reasons that need the machine, in the order in which a user would meet them."""
    toolkit, capability = found.cuda, host.capability
    yield from host.reasons
    if toolkit is not None and (runs := runs_toolkit(host, toolkit)):
        yield runs
    if capability is not None:
        yield from _on_capability(found, host)
        if found.cudnn is not None:
            yield cudnn.fits_gpu(found.cudnn, capability)
    if found.cudnn is not None and toolkit is not None and host.linux is not None and host.user is not None:
        # Windows drivers have other numbers, and `runs_toolkit` has already compared them.
        driver = None if host.user.lifted_to or host.on_windows else host.linux
        yield cudnn.fits_cuda(found.cudnn, toolkit, driver)
    if found.nvcc is not None and host.user_cuda is not None:
        compiled = installation.xla_compiler(found.nvcc, host.user_cuda)
        if compiled is not None:
            yield compiled


def _on_capability(found: Software, host: Machine) -> Iterator[Reason]:
    """Return the reasons about the wheel's code and the GPU."""
    release, capability = found.release, host.capability
    if release is None or capability is None:
        return
    if host.is_jetson and found.from_pypi:
        wrong = platforms.without_cuda(release.version, LINUX, JETSON, PYPI)
        if wrong is not None and wrong not in found.against:
            yield wrong
    if found.combinations:
        yield from known_issues.on_gpu(found.combinations, found.known, capability, host.model)
    if found.inspected:
        runs = kernels.run_on(release.version, capability, host.user.branch if host.user else _ANY_BRANCH)
        if host.user is not None or runs.outcome is Outcome.FAILS:
            yield runs
        target = xla.targets_gpu(release.version, capability, found.nvcc)
        if target is not None:
            yield target
    elif found.from_pypi and release.lowest_gpu and capability < ComputeCapability.parse(release.lowest_gpu):
        text = _DOCUMENTED_TEXT.format(release.version, release.lowest_gpu, capability)
        yield release.fact.fails(text, "no_kernels_for_gpu")
    elif found.from_pypi:
        yield release.fact.unknown(
            _KERNELS_TEXT.format(release.version, releases()[0].version), "no_kernels_for_gpu"
        )
