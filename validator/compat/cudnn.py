"""Rules about cuDNN: the CUDA versions and GPUs that a release supports, what TensorFlow requires, and
which cuDNN NVIDIA's images have.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..model.prediction import Reason
from ..versions import ComputeCapability, CudaVersion, DriverRelease, Version
from . import facts
from .facts import Fact


@dataclass(frozen=True)
class Support:
    """The CUDA versions and GPUs that the cuDNN releases of one range support.

    drivers: CUDA major version -> oldest driver, for every CUDA that has a build. capabilities: those in the
    support matrix, or with machine code. minimum: the oldest capability with kernels. ptx: the capability of
    the PTX that newer GPUs compile, or None.
    """

    first: Version
    below: Version
    drivers: Mapping[int, DriverRelease] = field(hash=False)
    capabilities: frozenset[ComputeCapability]
    minimum: ComputeCapability
    ptx: ComputeCapability | None
    fact: Fact


@functools.cache
def support(version: str) -> Support | None:
    """Return the support of a cuDNN release (`9.3.0.75`, `9.3`), or None if no table covers it."""
    asked = Version(version)
    return next((known for known in _table() if known.first <= asked < known.below), None)


@functools.lru_cache(maxsize=8192)
def fits_gpu(version: str, capability: ComputeCapability) -> Reason:
    """Decide if a cuDNN release has kernels for a GPU."""
    known = support(version)
    if known is None:
        return _table()[-1].fact.unknown(f"no known support matrix covers cuDNN {version}")
    if capability < known.minimum:
        return known.fact.fails(
            f"cuDNN {version} has kernels for compute capability {known.minimum} and newer,"
            f" not for {capability}",
            "cudnn_without_gpu",
        )
    if capability in known.capabilities:
        return known.fact.works(f"cuDNN {version} supports compute capability {capability}")
    older = [one for one in known.capabilities if one.major == capability.major and one < capability]
    if older:
        return known.fact.derived().works(
            f"cuDNN {version} has machine code for compute capability {max(older)}, which {capability} runs"
            " by binary compatibility"
        )
    if known.ptx is not None and capability > max(known.capabilities):
        return known.fact.derived().works(
            f"cuDNN {version} has no machine code for compute capability {capability}: the driver compiles"
            f" its PTX for {known.ptx}, which does not have every engine"
        )
    return known.fact.unknown(
        f"it is not known whether cuDNN {version} has kernels for compute capability {capability}"
    )


@functools.lru_cache(maxsize=8192)
def fits_cuda(version: str, cuda: CudaVersion, driver: DriverRelease | None) -> Reason:
    """Decide if a cuDNN release has a build for a CUDA major version, and the driver is new enough for it.

    driver: None if a forward compatibility package replaces it.
    """
    known = support(version)
    if known is None:
        return _table()[-1].fact.unknown(f"no known support matrix covers cuDNN {version}")
    floor = known.drivers.get(cuda.major)
    if floor is None:
        return known.fact.fails(
            f"cuDNN {version} has no build for CUDA {cuda.major}", "cudnn_without_cuda_build"
        )
    if driver is not None and driver < floor:
        return known.fact.fails(
            f"cuDNN {version} for CUDA {cuda.major} needs driver {floor} or newer; this is {driver}",
            "driver_too_old",
        )
    return known.fact.works(f"cuDNN {version} has a build for CUDA {cuda.major}, for driver {floor} or newer")


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


@functools.cache
def _table() -> tuple[Support, ...]:
    return tuple(
        Support(
            first=Version(row["from"]),
            below=Version(row["below"]),
            drivers={int(major): DriverRelease.parse(text) for major, text in row["drivers"].items()},
            capabilities=frozenset(ComputeCapability.parse(text) for text in row["compute_capabilities"]),
            minimum=ComputeCapability.parse(row["minimum"]),
            ptx=ComputeCapability.parse(row["ptx"]) if "ptx" in row else None,
            fact=facts.fact(row),
        )
        for row in facts.rows("cudnn", "cudnn")
    )


def cudnn_of_image(cuda: str, tag: str) -> str:
    """Return the version of cuDNN in an image of nvidia/cuda, or an empty string if it is not known.

    Return only the major version (`8`) if the facts don't have this image but its tag names it.
    cuda: the release of CUDA in its tag (`12.4.1`). tag: the part that asks for cuDNN (`cudnn`, `cudnn8`).
    """
    for row in facts.rows("base_images", "images"):
        if cuda in row["cuda"] and tag == row["tag"]:
            version: str = row["cudnn"]
            return version
    return tag.removeprefix("cudnn")
