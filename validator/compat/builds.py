"""Facts read from TensorFlow's own wheels (`data/builds.yaml`). They take precedence over published tables.

Not every patch release was inspected. For the others, the nearest one of the same minor version is used, and
the fact is derived, not measured.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..versions import Version, leading_numbers, major_minor
from . import facts
from .facts import Fact
from .targets import Target

#: PTX ISA version: (8, 5).
Isa = tuple[int, int]


@dataclass(frozen=True)
class KernelGroup:
    """Translation units with the same device code.

    count: the number of units, None if the wheel was not opened. sass: targets with machine code. ptx:
    targets with PTX, each with the ISA version if that was read. library: `nccl` if they are that library's.
    """

    count: int | None
    sass: frozenset[Target]
    ptx: Mapping[Target, Isa | None] = field(hash=False)
    library: str | None = None


@dataclass(frozen=True)
class Build:
    """The facts read from one wheel.

    cudnn: the version of the cuDNN headers that it was compiled with, None if unknown.
    folders: the folders of NVIDIA's wheels in its own search path. not_found: sonames of libraries that it
    needs and that are in none of these folders.
    """

    version: str
    cudnn: str | None
    kernels: tuple[KernelGroup, ...]
    folders: tuple[str, ...]
    not_found: tuple[str, ...]
    fact: Fact


@functools.cache
def build(version: str) -> Build | None:
    """Return the build of a release, or of the nearest patch release that was opened, or None."""
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


def fact_of(row: facts.Row) -> Fact:
    """Return the identifier, status and source of a row of builds.yaml, which names no sources."""
    return Fact(
        f"build-{row['tensorflow']}",
        row["status"],
        f"inspection of {row['wheel']['file']} on {row['date']}",
    )


def _build(row: facts.Row, version: str) -> Build:
    libraries = row.get("pip_libraries", {})
    measured = fact_of(row)
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
        sass=frozenset(Target.parse(str(number)) for number in group["sass"]),
        ptx={Target.parse(str(number)): isa(text) for number, text in group["ptx"].items()},
        library=group.get("library"),
    )


def isa(text: str) -> Isa:
    """Return (8, 5) for `8.5`."""
    major, minor = leading_numbers(text)
    return major, minor
