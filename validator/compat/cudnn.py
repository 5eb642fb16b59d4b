"""cuDNN: the CUDA major versions and GPUs that a release supports, and what TensorFlow asks of it."""

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
    """What one range of cuDNN releases supports.

    drivers: CUDA major versions that have a build -> the oldest driver. capabilities: those that its table
    lists. minimum: below it there are no kernels.
    """

    first: Version
    below: Version
    drivers: Mapping[int, DriverRelease] = field(hash=False)
    capabilities: frozenset[ComputeCapability]
    minimum: ComputeCapability
    fact: Fact


@functools.cache
def support(version: str) -> Support | None:
    """The support of a cuDNN release (`9.3.0.75`, or less of it), or None when no table covers it."""
    asked = Version(version)
    return next((known for known in _table() if known.first <= asked < known.below), None)


@functools.lru_cache(maxsize=8192)
def fits_gpu(version: str, capability: ComputeCapability) -> Reason:
    """Whether a cuDNN release has kernels for a GPU."""
    known = support(version)
    if known is None:
        return _table()[-1].fact.unknown(f"no table read covers cuDNN {version}")
    if capability < known.minimum:
        return known.fact.fails(
            f"cuDNN {version} has kernels from compute capability {known.minimum} on, none for {capability}"
        )
    if capability in known.capabilities:
        return known.fact.works(f"cuDNN {version} supports compute capability {capability}")
    return known.fact.unknown(f"the table of cuDNN {version} does not name compute capability {capability}")


@functools.lru_cache(maxsize=8192)
def fits_cuda(version: str, cuda: CudaVersion, driver: DriverRelease | None) -> Reason:
    """Whether a cuDNN release has a build for a CUDA major version, and the driver is new enough for it.

    driver: None where a forward compatibility package stands in for it.
    """
    known = support(version)
    if known is None:
        return _table()[-1].fact.unknown(f"no table read covers cuDNN {version}")
    floor = known.drivers.get(cuda.major)
    if floor is None:
        return known.fact.fails(f"cuDNN {version} has no build for CUDA {cuda.major}")
    if driver is not None and driver < floor:
        return known.fact.fails(
            f"cuDNN {version} for CUDA {cuda.major} needs driver {floor} or newer; this is {driver}"
        )
    return known.fact.works(f"cuDNN {version} has a build for CUDA {cuda.major}, for driver {floor} or newer")


@functools.lru_cache(maxsize=1024)
def fits_build(version: str, built_with: str) -> Reason:
    """Whether TensorFlow, compiled with one cuDNN, takes another at run time.

    It compares major and minor only: the major must be the same and the minor not older.
    """
    rule = facts.rule("cudnn", "cudnn-same-major-newer-minor")
    runtime, compiled = Version(version), Version(built_with)
    text = f"TensorFlow was compiled with cuDNN {built_with} and loads {version}"
    if runtime.major != compiled.major:
        return rule.fails(f"{text}: another major version")
    if runtime.minor < compiled.minor:
        return rule.fails(f"{text}: an older minor version, which it refuses")
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
            fact=facts.fact(row),
        )
        for row in facts.rows("cudnn", "cudnn")
    )
