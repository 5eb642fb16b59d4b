"""Suggest the TensorFlow release to install on a machine: the newest one that is predicted to work there."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..model.prediction import Outcome, Prediction
from ..model.situation import LINUX, PYPI, X86_64, Situation
from ..model.spec import AS_BUILT, LATEST, Variant
from . import policies
from .errors import PolicyError
from .judge import judge
from .releases import Release, releases


@dataclass(frozen=True)
class Suggestion:
    """A release and how pip installs it with CUDA's libraries.

    requirement: `tensorflow[and-cuda]==2.20.0`; without the extra for a release that has none.
    library_path: True if the loader has to be told where NVIDIA's wheels are, because the release itself does
        not look there. eager_only: True if functions that XLA compiles fail.
    prediction: `works`, or `unknown` if facts about the machine are missing; `fails` only if `eager_only`.
    """

    release: Release
    requirement: str
    library_path: bool
    eager_only: bool
    prediction: Prediction


def newest_that_works(machine: Situation) -> Suggestion | None:
    """Return the newest stable release that pip can install on a machine and that works there.

    Everything about the machine counts (driver, GPU, system, Python); what is installed on it does not. A
    release that finds CUDA's libraries by itself is preferred to a newer one that has to be told about them,
    and both to one that only runs eagerly. Where facts are missing, it is the newest release that nothing
    speaks against. Return None if there is none.
    """
    for eager_only in (False, True):
        for library_path in (False, True):
            for release in reversed(releases()):
                if release.prerelease:
                    continue
                prediction = judge(installed(machine, release, library_path=library_path))
                outcome = prediction.eager if eager_only else prediction.outcome
                if outcome is Outcome.WORKS or (outcome is Outcome.UNKNOWN and prediction.missing):
                    return Suggestion(release, requirement(release), library_path, eager_only, prediction)
    return None


def requirement(release: Release) -> str:
    """Return what pip is asked for to install a release with CUDA's libraries."""
    extra = "[and-cuda]" if has_extra(release) else ""
    return f"tensorflow{extra}=={release.version}"


def has_extra(release: Release) -> bool:
    """Return whether a release has the extra `and-cuda`."""
    return release.extra_style != "none"


def installed(machine: Situation, release: Release, *, library_path: bool) -> Situation:
    """Return the machine with a release that was installed from PyPI, with its extra if it has one.

    library_path: True if the loader is told where NVIDIA's wheels are.
    """
    policy = LATEST if release.extra_style == "range" else AS_BUILT
    packages: dict[str, str] = {}
    cuda, cudnn = release.cuda, release.cudnn
    if release.wheels:
        try:
            choices = policies.choose(release, policy, policy)
        except PolicyError:
            choices = policies.choose(release, AS_BUILT, AS_BUILT)
        cuda, cudnn = choices[0].version, policies.cudnn_version(release, choices[1])
        packages = {"nvidia-cudnn": cudnn}
        nvcc = policies.cuda_wheels(release, choices[0]).get(f"nvidia-cuda-nvcc-{release.suffix}")
        if nvcc:
            packages["nvidia-cuda-nvcc"] = nvcc
    return replace(
        machine,
        tensorflow=release.version,
        cuda=cuda,
        cudnn=cudnn,
        variant=Variant.GPU.value,
        wheel=PYPI,
        extra=has_extra(release),
        library_path=library_path,
        packages=packages,
        # TensorFlow's wheels with CUDA are for these.
        system=machine.system or LINUX,
        machine=machine.machine or X86_64,
        mode=None,
    )
