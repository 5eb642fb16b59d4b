"""Whether the environment can be put together at all: a wheel for the Python, and one CUDA major version."""

from __future__ import annotations

import functools

from ..model.prediction import Reason
from ..model.versions import CudaVersion
from . import facts
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
