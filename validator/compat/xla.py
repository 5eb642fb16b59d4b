"""The rule about XLA's own compiler: it must have a target for the GPU."""

from __future__ import annotations

import functools

from ..model.prediction import Reason
from ..model.situation import XLA
from ..versions import ComputeCapability, CudaVersion, Range, release_comparer
from . import facts
from .builds import Isa, isa


@functools.lru_cache(maxsize=8192)
def targets_gpu(release: str, capability: ComputeCapability, ptxas: str | None) -> Reason | None:
    """Return why XLA of a release can't compile for a GPU; None if it can, or if it is not known.

    XLA writes PTX of one ISA version, and of an older one for an older ptxas. If the GPU is not a target of
    that version, the process ends. ptxas: the version that XLA uses (`12.5.82`), None if it is not known.
    """
    first = _first_isa(capability)
    row = next((row for row in facts.rows("xla", "ptx") if _range(row["releases"]).contains(release)), None)
    if first is None or row is None:
        return None
    text = f"compute capability {capability} is a target from PTX ISA {_text(first)} on"
    if isa(row["isa"]) < first:
        return facts.fact(row).fails(
            f"tensorflow {release} writes PTX ISA {row['isa']}, and {text}, so the process crashes",
            "xla_without_gpu_target",
            mode=XLA,
        )
    assembled = _isa_of(CudaVersion.parse(ptxas)) if ptxas else None
    if assembled is not None and assembled < first:
        return facts.fact(row).fails(
            f"ptxas {ptxas} assembles PTX up to ISA {_text(assembled)}, and {text}; use a newer CUDA",
            "xla_without_gpu_target",
            mode=XLA,
        )
    return None


@functools.cache
def _first_isa(capability: ComputeCapability) -> Isa | None:
    """Return the first PTX ISA with a GPU as a target, if the table has it."""
    for row in facts.rows("drivers", "ptx"):
        if str(capability) in row["first_targets"]:
            return isa(row["isa"])
    return None


@functools.cache
def _isa_of(cuda: CudaVersion) -> Isa | None:
    for row in facts.rows("drivers", "ptx"):
        if str(cuda) in row["cuda"]:
            return isa(row["isa"])
    return None


def _text(version: Isa) -> str:
    return f"{version[0]}.{version[1]}"


@functools.cache
def _range(text: str) -> Range:
    return Range.parse(text, release_comparer)
