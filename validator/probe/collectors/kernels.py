"""Decide how the device code in TensorFlow's wheel runs on a GPU: as machine code, from PTX, or not at all.

Machine code for X.Y runs on X.Z with Z >= Y; PTX on every later capability, compiled by the driver, which
must know its ISA version (CUDA C++ Programming Guide, binary and PTX compatibility). Both are for exactly
X.Y if the target has the suffix `a`, and for the later capabilities of its family if it has the suffix `f`
(PTX ISA, directive .target). The device code of each release's wheel was measured; for other releases the
build information gives a rough answer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ...version_numbers import leading_numbers
from .. import table

NATIVE, JIT, NONE = "native", "jit", "none"
MEASURED, LISTED = "measured", "build_information"

Capability = tuple[int, int]
#: A capability and the suffix of the target: `a`, `f` or nothing.
Target = tuple[Capability, str]


@dataclass(frozen=True)
class Coverage:
    """The way the kernels of a wheel reach a GPU.

    kernels: `native` (all of TensorFlow's own by machine code), `jit` (some by PTX), `none` (some have no
        code).
    isa: the newest PTX ISA among those that must be compiled; None where none must, or it is not known.
    cuda: the CUDA version that a driver must support to compile it for certain.
    compiled, without, units: how many translation units the driver must compile, how many have no code for
        the GPU, and how many there are. None if the wheel was not measured. NCCL's code counts here, but not
        in `kernels`, because only several GPUs that work together need it.
    has_ptx: whether there is PTX that the GPU can run.
    source: `measured` or `build_information`.
    """

    kernels: str
    isa: str | None
    cuda: str | None
    compiled: int | None
    without: int | None
    units: int | None
    has_ptx: bool
    source: str


@dataclass(frozen=True)
class _Group:
    """Translation units with the same device code. units, isa: None where not measured."""

    units: int | None
    sass: tuple[Target, ...]
    ptx: dict[Target, str | None]
    library: str | None = None

    def native(self, gpu: Capability) -> bool:
        return any(
            _specific(target, gpu) if target[1] else target[0][0] == gpu[0] and target[0][1] <= gpu[1]
            for target in self.sass
        )

    def source(self, gpu: Capability) -> Target | None:
        fitting = (
            target for target in self.ptx if (_specific(target, gpu) if target[1] else target[0] <= gpu)
        )
        return max(fitting, default=None)


def coverage(version: str | None, build: dict[str, Any] | None, capability: str) -> Coverage | None:
    """Return how the kernels of a TensorFlow release reach a GPU; None where neither table nor build say.

    build: its build information. capability: of the GPU, such as `9.0`.
    """
    rows = table("kernels")["tensorflow"].get(version, [])
    groups = [
        _Group(
            row["units"],
            tuple(map(_target, row["sass"])),
            {_target(target): isa for target, isa in row["ptx"].items()},
            row.get("library"),
        )
        for row in rows
    ]
    names = [str(entry) for entry in (build or {}).get("cuda_compute_capabilities") or []]
    if not groups and names:
        # `compute_90` means machine code for 9.0 and PTX. Kernels that the compiler generates have only PTX,
        # so the newest capability counts as compiled by the driver.
        sass = tuple(_target(name[len("sm_") :]) for name in names if name.startswith("sm_"))
        ptx = (_target(name[len("compute_") :]) for name in names if name.startswith("compute_"))
        groups = [_Group(None, sass, dict.fromkeys(ptx))]
    if not groups:
        return None
    gpu = _pair(capability)
    by_driver = [(group, at) for group in groups if not group.native(gpu) and (at := group.source(gpu))]
    without = [group for group in groups if not group.native(gpu) and group.source(gpu) is None]
    complete = all(group.library for group in without)
    isas = [isa for group, at in by_driver if (isa := group.ptx[at]) is not None]
    newest = max(isas, key=_pair, default=None)
    bound = (
        table("kernels")["ptx"].get(newest, {}).get("cuda") if newest else (build or {}).get("cuda_version")
    )

    def total(counted: list[_Group]) -> int | None:
        counts = [group.units for group in counted]
        return None if None in counts else sum(filter(None, counts))

    return Coverage(
        kernels=NONE if not complete else JIT if by_driver else NATIVE,
        isa=newest,
        cuda=bound if by_driver else None,
        compiled=total([group for group, _ in by_driver]),
        without=total(without),
        units=total(groups),
        has_ptx=any(group.source(gpu) for group in groups),
        source=MEASURED if rows else LISTED,
    )


def cudnn_minimum(version: str) -> str | None:
    """Return the oldest compute capability that a cuDNN release has kernels for; None where no table says."""
    asked = leading_numbers(version)
    for row in table("kernels")["cudnn"]:
        if leading_numbers(row["from"]) <= asked < leading_numbers(row["below"]):
            return str(row["minimum"])
    return None


def older(one: str, other: str) -> bool:
    """Return whether a version comes before another, by their first two numbers."""
    return _pair(one) < _pair(other)


def _pair(text: str) -> tuple[int, int]:
    major, minor = leading_numbers(text)[:2]
    return major, minor


def _specific(target: Target, gpu: Capability) -> bool:
    """Return whether code for a target with a suffix is for a GPU."""
    capability, suffix = target
    families = ([_pair(member) for member in row] for row in table("kernels")["families"])
    related = suffix == "f" and any(capability in family and gpu in family for family in families)
    return capability <= gpu if related else capability == gpu


def _target(text: str) -> Target:
    """Read a target that is written as `9.0a` or `90a`."""
    match = re.fullmatch(r"(\d+)\.?(\d)([af]*)", text)
    if match is None:
        raise ValueError(f"{text} is not a compute capability")
    return (int(match[1]), int(match[2])), match[3]
