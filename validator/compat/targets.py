"""The targets that device code is compiled for, as compilers name them: `sm_90`, `sm_90a`, `sm_100f`.

Without a suffix, machine code runs on the same major compute capability with the same or a higher minor one,
and PTX can be compiled for every capability that is not lower. Code for `a` (architecture-specific) is for
exactly that capability, and code for `f` (family-specific) for the capabilities of the same family that are
not lower. Source: PTX ISA, directive `.target`.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from ..versions import ComputeCapability
from . import facts

SPECIFIC, FAMILY = "a", "f"

_NAME = re.compile(r"(?:sm_|compute_)?(\d{2,}|\d+\.\d)([af]?)")


@dataclass(frozen=True, order=True)
class Target:
    """A target of device code. suffix: `a`, `f` or empty."""

    capability: ComputeCapability
    suffix: str = ""

    @classmethod
    def parse(cls, text: str) -> Target:
        """Read `9.0a`, `90a`, `sm_90a` or `compute_90a`. Raises ValueError for other text."""
        match = _NAME.fullmatch(text.strip().lower())
        if not match:
            raise ValueError(f'"{text}" is not a target of device code (expected something like sm_90a)')
        return cls(ComputeCapability.parse(match[1]), match[2])

    @property
    def number(self) -> str:
        """The name without `sm_`: `90a`."""
        return self.capability.sm.removeprefix("sm_") + self.suffix

    def runs_on(self, gpu: ComputeCapability) -> bool:
        """Return True if machine code for this target runs on a GPU."""
        if self.suffix:
            return self._specific_to(gpu)
        return self.capability.major == gpu.major and self.capability.minor <= gpu.minor

    def compiles_for(self, gpu: ComputeCapability) -> bool:
        """Return True if PTX for this target can be compiled for a GPU."""
        return self._specific_to(gpu) if self.suffix else self.capability <= gpu

    def _specific_to(self, gpu: ComputeCapability) -> bool:
        if self.suffix == FAMILY and gpu in _family(self.capability):
            return self.capability <= gpu
        return self.capability == gpu

    def __str__(self) -> str:
        return f"{self.capability}{self.suffix}"


@functools.cache
def _family(capability: ComputeCapability) -> frozenset[ComputeCapability]:
    for row in facts.rows("drivers", "families"):
        members = frozenset(map(ComputeCapability.parse, row["compute_capabilities"]))
        if capability in members:
            return members
    return frozenset((capability,))
