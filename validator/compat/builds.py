"""What was read in TensorFlow's own wheels (`data/builds.yaml`); it takes precedence over published tables.

Not every patch release was opened. One that was not takes the row of the nearest one of its minor version,
and what follows from that is derived, not measured.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..versions import ComputeCapability, Version, major_minor
from . import facts
from .facts import Fact

#: PTX ISA version: (8, 5).
Isa = tuple[int, int]


@dataclass(frozen=True)
class KernelGroup:
    """Translation units that hold the same device code.

    count: how many, None where the wheel was not opened. sass: architectures with machine code. ptx: the
    architectures that there is PTX for, with its ISA version where that was read.
    """

    count: int | None
    sass: frozenset[ComputeCapability]
    ptx: Mapping[ComputeCapability, Isa | None] = field(hash=False)


@dataclass(frozen=True)
class Build:
    """One wheel as it was found.

    cudnn: version of the cuDNN headers that it was compiled with, None where it can't be told.
    folders: of NVIDIA's wheels that its own search path reaches. not_found: sonames that it needs and that
    are in none of them.
    """

    version: str
    cudnn: str | None
    kernels: tuple[KernelGroup, ...]
    folders: tuple[str, ...]
    not_found: tuple[str, ...]
    fact: Fact


@functools.cache
def build(version: str) -> Build | None:
    """The build of a release, or of the nearest opened patch release of its minor version, or None."""
    opened = _opened()
    if version in opened:
        return _build(opened[version], version)
    asked = Version(version)
    siblings = [
        other
        for other in opened
        if major_minor(other) == major_minor(version) and Version(other).is_prerelease == asked.is_prerelease
    ]
    if not siblings:
        return None
    nearest = min(siblings, key=lambda other: abs(Version(other).micro - asked.micro))
    return _build(opened[nearest], version)


def _opened() -> dict[str, facts.Row]:
    return {row["tensorflow"]: row for row in facts.rows("builds", "builds")}


def _build(row: facts.Row, version: str) -> Build:
    libraries = row.get("pip_libraries", {})
    measured = Fact(
        f"build-{row['tensorflow']}",
        row["status"],
        f"inspection of {row['wheel']['file']} on {row['date']}",
    )
    return Build(
        version=row["tensorflow"],
        cudnn=row["build"]["cudnn_headers"],
        kernels=tuple(_group(group) for group in row["kernels"]),
        folders=tuple(libraries.get("folders", ())),
        not_found=tuple(libraries.get("missing_required", ())),
        fact=measured if row["tensorflow"] == version else measured.derived(),
    )


def _group(group: facts.Row) -> KernelGroup:
    return KernelGroup(
        count=group["fatbins"],
        sass=frozenset(ComputeCapability.parse(str(number)) for number in group["sass"]),
        ptx={ComputeCapability.parse(str(number)): isa(text) for number, text in group["ptx"].items()},
    )


def isa(text: str) -> Isa:
    """`8.5` -> (8, 5)"""
    major, minor = text.split(".")
    return int(major), int(minor)
