"""Whether the environment can be put together at all: a wheel for the Python, and one CUDA major version."""

from __future__ import annotations

import functools

from ..model.prediction import Reason
from ..versions import CudaVersion
from . import facts
from .builds import build
from .releases import release as find_release


@functools.lru_cache(maxsize=1024)
def python_wheel(version: str, python: str) -> Reason:
    """Whether a release has a wheel for a Python (`3.12`)."""
    release = find_release(version)
    like = "" if release.listed else f", going by {release.facts_of}"
    if python in release.pythons:
        return _wheels(release.fact).works(f"tensorflow {version} has a wheel for Python {python}{like}")
    return _wheels(release.fact).fails(
        f"tensorflow {version} has no wheel for Python {python}, only for {', '.join(release.pythons)}{like}"
    )


@functools.lru_cache(maxsize=1024)
def cuda_major(version: str, cuda: CudaVersion) -> Reason | None:
    """Against a CUDA of another major version, or an older minor one, than TensorFlow was built with."""
    release = find_release(version)
    built = CudaVersion.parse(release.cuda)
    text = f"tensorflow {version} was built with CUDA {built}"
    if cuda.major != built.major:
        return release.fact.fails(f"{text} and opens libraries of CUDA {built.major}, not of CUDA {cuda}")
    if cuda < built:
        return release.fact.unknown(f"{text}; whether it runs with those of CUDA {cuda} is not known")
    return None


def _wheels(fact: facts.Fact) -> facts.Fact:
    """The release's own fact is about its tested build; that its wheels are listed was read on the index."""
    return facts.Fact(fact.id, "verified", facts.source_line("idx"))


# Whether TensorFlow finds NVIDIA's libraries where their wheels put them, and XLA's compiler among them.


@functools.lru_cache(maxsize=1024)
def search_path(version: str) -> Reason | None:
    """Whether the wheel's own search path reaches the libraries of NVIDIA's wheels.

    None when that was not read. Without any one of them TensorFlow registers no GPU. What the wheel does not
    search is a remark and no more, for those who install it by itself: images name NVIDIA's folders to the
    loader, and so does the venv engine for what it runs (images/build/configure-loader, engines/venv.py).
    """
    known = build(version)
    if known is None:
        return None
    if not known.not_found:
        return known.fact.works("the wheel searches NVIDIA's wheels for every library it needs")
    names = ", ".join(known.not_found)
    missed = f"the folder of {names}" if known.folders else f"any of NVIDIA's wheels ({names})"
    return known.fact.advises(
        f"the wheel by itself does not search {missed}, without which it registers no GPU;"
        " images made here name NVIDIA's folders to the loader, and so does the venv engine for what it"
        " runs; elsewhere LD_LIBRARY_PATH must"
    )


@functools.lru_cache(maxsize=1024)
def xla_compiler(nvcc: str, user_cuda: CudaVersion) -> Reason | None:
    """Why XLA does not need the driver to compile PTX, where its ptxas is newer than the driver's CUDA.

    nvcc: version of the nvidia-cuda-nvcc wheel, which brings ptxas. user_cuda: the newest CUDA that the
    libcuda in use supports.
    """
    if CudaVersion.parse(nvcc) <= user_cuda:
        return None
    return facts.rule("tensorflow", "xla-uses-ptxas").works(
        f"XLA compiles its kernels to machine code with ptxas {nvcc}, so that they don't need the PTX"
        f" compiler of a driver for CUDA {user_cuda}"
    )
