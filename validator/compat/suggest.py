"""Suggest the TensorFlow release to install on a machine: the newest one that is predicted to work there."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..model.prediction import Outcome, Prediction
from ..model.situation import LINUX, PYPI, X86_64, XLA, Situation
from ..model.spec import AS_BUILT, LATEST, Variant
from . import loose_values, policies
from .errors import PolicyError
from .judge import judge
from .older_releases import release_of_any_age
from .releases import Release, is_candidate, newest, releases


@dataclass(frozen=True)
class Suggestion:
    """A release and how pip installs it with CUDA's libraries.

    requirement: `tensorflow[and-cuda]==2.20.0`; without the extra for a release that has none.
    python: the Python to install it with: the machine's if the release works with that, else the newest that
        works.
    library_path: True if the loader has to be told where NVIDIA's wheels are, because the release itself does
        not look there. eager_only: True if functions that XLA compiles fail.
    prediction: `works`, or `unknown` if facts about the machine are missing; `fails` only if `eager_only`.
    """

    release: Release
    requirement: str
    python: str
    library_path: bool
    eager_only: bool
    prediction: Prediction


def newest_that_works(machine: Situation) -> Suggestion | None:
    """Return the newest stable release that pip can install on a machine and that works there.

    The machine's driver, GPU, system and Python count; its packages do not. A release that finds CUDA's
    libraries by itself is preferred to a newer one that does not. A release for the machine's Python is
    preferred to one that needs another Python. A release that works only for eager operations comes last.
    If facts about the machine are missing, return the newest release that nothing speaks against. Return
    None if there is none.
    """
    # The fields that `installed` replaces don't change the answer, so they are not part of the cache's key.
    return _newest_that_works(
        replace(
            machine,
            tensorflow=None,
            cuda=None,
            cudnn=None,
            variant=None,
            wheel=None,
            extra=None,
            library_path=None,
            packages={},
            mode=None,
        )
    )


# A diagnosis asks for it once for each remedy.
@functools.lru_cache(maxsize=1024)
def _newest_that_works(machine: Situation) -> Suggestion | None:
    newest_first = [release for release in reversed(releases()) if not release.prerelease]
    for python in dict.fromkeys((_minor(machine.python), None)):
        for library_path in (False, True):
            for release in newest_first:
                found = _works(machine, release, python, library_path=library_path)
                if found is not None:
                    return found
    for python in dict.fromkeys((_minor(machine.python), None)):
        for release in newest_first:
            for library_path in (False, True):
                found = _works(machine, release, python, library_path=library_path, eager_only=True)
                if found is not None:
                    return found
    return None


def candidate_that_works(machine: Situation) -> Suggestion | None:
    """Return the newest release candidate if pip can install it on a machine and it works there.

    None if it does not, or if a stable release is newer.
    """
    for release in reversed(releases()):
        if is_candidate(release.version):
            for library_path in (False, True):
                found = _works(machine, release, _minor(machine.python), library_path=library_path)
                if found is not None and found.prediction.outcome is Outcome.WORKS:
                    return found
            return None
    return None


def same_or_newest(machine: Situation) -> Suggestion | None:
    """Return the machine's own release if it works there with the libraries it was built for.

    Otherwise return the newest that does, or None if there is none.
    """
    own = release_of_any_age(machine.tensorflow or "")
    if own in releases() and not own.prerelease:
        for library_path in (False, True):
            found = _works(machine, own, _minor(machine.python), library_path=library_path)
            if found is not None:
                return found
    return newest_that_works(machine)


def why_nothing_works(machine: Situation) -> str:
    """Return the reason why the newest release does not work on a machine, as a sentence without a full stop.

    Empty if it works.
    """
    return _why_not(machine, newest())


def why_not_same(machine: Situation) -> str:
    """Return the reason why the machine's own release does not work there, as `why_nothing_works` does.

    Empty if it works, or if it is not one of the releases that can be suggested.
    """
    own = release_of_any_age(machine.tensorflow or "")
    return _why_not(machine, own) if own in releases() else ""


def _why_not(machine: Situation, release: Release) -> str:
    python = pythons_to_try(release, _minor(machine.python))[0]
    reasons = judge(replace(installed(machine, release, library_path=True), python=python)).reasons
    return next((reason.text for reason in reasons if reason.outcome is Outcome.FAILS), "")


#: The directories of NVIDIA's wheels, in Python.
NVIDIA_DIRECTORIES = 'glob.glob(sysconfig.get_path("purelib") + "/nvidia/*/lib")'


def export_library_path(python: str) -> str:
    """Return the command that tells the loader about the directories of NVIDIA's wheels.

    It must run before Python starts. python: the Python of the environment, as the shell finds it.
    """
    code = f'import glob, sysconfig; print(":".join({NVIDIA_DIRECTORIES}))'
    return f"export LD_LIBRARY_PATH=$({python} -c '{code}')"


def needs_another_python(found: Suggestion, python: str | None) -> bool:
    """Return True if a suggestion needs another Python than the machine's.

    python: the machine's; if it is None, the newest one that the release has a wheel for counts.
    """
    return found.python != (_minor(python) or found.release.pythons[-1])


def suggestion_notes(found: Suggestion, *, has_cuda: bool = False) -> list[str]:
    """Return what to know about a suggested release, as sentences.

    has_cuda: CUDA's libraries are installed too.
    """
    release = found.release
    notes = []
    if not has_extra(release) and not has_cuda:
        notes.append(
            f"TensorFlow {release.version} does not bring CUDA's libraries: install CUDA {release.cuda} and"
            f" cuDNN {release.cudnn} too."
        )
    if found.library_path:
        notes.append(
            f"TensorFlow {release.version} does not search all directories of NVIDIA's wheels: tell the"
            " loader about them before Python starts."
        )
    if found.eager_only:
        notes.append(
            f"With TensorFlow {release.version} only eager execution and graphs work on this GPU. XLA fails:"
            " leave jit_compile=True out."
        )
    return notes


def _works(
    machine: Situation,
    release: Release,
    python: str | None,
    *,
    library_path: bool,
    eager_only: bool = False,
) -> Suggestion | None:
    """Return the suggestion of a release if nothing speaks against it.

    python: the one to install it with; None for the newest with which nothing speaks against it.
    """
    situation = installed(machine, release, library_path=library_path)
    for one in pythons_to_try(release, python):
        prediction = judge(replace(situation, python=one))
        outcome = prediction.eager if eager_only else prediction.outcome
        doubts = any(
            reason.outcome is Outcome.UNKNOWN and not (eager_only and reason.mode == XLA)
            for reason in prediction.reasons
        )
        if outcome is Outcome.WORKS or (outcome is Outcome.UNKNOWN and prediction.missing and not doubts):
            return Suggestion(release, requirement(release), one, library_path, eager_only, prediction)
    return None


def pythons_to_try(release: Release, python: str | None) -> tuple[str, ...]:
    """Return the Pythons to install a release with, the preferred one first.

    python: the machine's, which is then the only one; None for every Python that the release has a wheel for.
    """
    return (python,) if python else release.pythons[::-1]


def _minor(python: str | None) -> str | None:
    return loose_values.minor(python)


def requirement(release: Release) -> str:
    """Return what pip is asked for to install a release with CUDA's libraries.

    For a release that is known only by its minor version, this is the newest of the series.
    """
    extra = "[and-cuda]" if has_extra(release) else ""
    version = release.version if release.version.count(".") > 1 else f"{release.version}.*"
    return f"{release.package}{extra}=={version}"


def has_extra(release: Release) -> bool:
    """Return whether a release has the extra `and-cuda`."""
    return release.extra_style != "none"


def installed(machine: Situation, release: Release, *, library_path: bool) -> Situation:
    """Return the machine with a release that was installed from PyPI, with its extra if it has one.

    library_path: True if the loader is told where NVIDIA's wheels are.
    """
    cuda, cudnn, packages = _libraries(release)
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
        # TensorFlow's wheels with CUDA exist only for this system and architecture.
        system=machine.system or LINUX,
        machine=machine.machine or X86_64,
        mode=None,
    )


@functools.cache
def _libraries(release: Release) -> tuple[str, str, Mapping[str, str]]:
    """Return the versions of CUDA and cuDNN that pip installs with a release, and those of its packages."""
    if not release.wheels:
        return release.cuda, release.cudnn, {}
    policy = LATEST if release.extra_style == "range" else AS_BUILT
    try:
        choices = policies.choose(release, policy, policy)
    except PolicyError:
        choices = policies.choose(release, AS_BUILT, AS_BUILT)
    cudnn = policies.cudnn_version(release, choices[1])
    packages = {"nvidia-cudnn": cudnn}
    nvcc = policies.cuda_wheels(release, choices[0]).get(f"nvidia-cuda-nvcc-{release.suffix}")
    if nvcc:
        packages["nvidia-cuda-nvcc"] = nvcc
    return choices[0].version, cudnn, packages
