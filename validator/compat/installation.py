"""Rules about the environment: a wheel for the Python, the CUDA version, and the path of its libraries."""

from __future__ import annotations

import functools

from ..model.prediction import Reason
from ..model.situation import XLA
from ..versions import CudaVersion, InvalidVersion, Version
from . import facts
from .builds import build
from .older_releases import known_versions
from .releases import Release, newest, releases


@functools.lru_cache(maxsize=1024)
def python_wheel(release: Release, python: str) -> Reason:
    """Decide if a release has a wheel for a Python (`3.12`)."""
    if python in release.pythons:
        return _wheels(release.fact).works(f"tensorflow {release.version} has a wheel for Python {python}")
    return _wheels(release.fact).fails(
        f"tensorflow {release.version} has no wheel for Python {python},"
        f" only for {', '.join(release.pythons)}",
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
    return facts.Fact(fact.id, "verified", facts.source_line("idx"))


@functools.lru_cache(maxsize=1024)
def search_path(version: str, from_wheels: bool, reached: bool | None) -> Reason | None:
    """Decide if the wheel's own search path reaches NVIDIA's wheels; None if the path was not read.

    If a library is not found, TensorFlow registers no GPU.

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
