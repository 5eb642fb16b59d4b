"""Versions that must not be mistaken for one another.

A *driver release* (`535.183.01`, what NVML calls the driver version) and a *CUDA version* (`12.2`: of a
toolkit, or the newest that a driver supports) are different types here, since most published confusion
about "the CUDA version" comes from mixing them.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

_DRIVER = re.compile(r"^[Rr]?(\d{3,4})(?:\.(\d{1,4}))?(?:\.(\d{1,4}))?$")
_CUDA = re.compile(r"^(\d{1,2})\.(\d{1,2})(?:\.(\d{1,4}))?$")
_CAPABILITY = re.compile(r"^(?:sm_|compute_)?(?:(\d{1,2})\.(\d)|(\d{1,2})(\d))[af]?$")


@functools.total_ordering
@dataclass(frozen=True, eq=False)
class DriverRelease:
    """An NVIDIA driver release, such as `535.183.01`, or a whole branch, such as `535`.

    `point` is empty when only the branch is known; a bare branch stands for its newest release, so it
    compares above every point release of the branch.
    """

    branch: int
    point: tuple[int, ...] = ()
    text: str = ""

    @classmethod
    def parse(cls, text: str) -> DriverRelease:
        """Read `535`, `R535`, `535.183` or `535.183.01`. Raises ValueError otherwise."""
        match = _DRIVER.match(text.strip())
        if not match:
            raise ValueError(f'"{text}" is not a driver release (expected something like 535.183.01 or 535)')
        branch, *point = (group for group in match.groups() if group is not None)
        return cls(int(branch), tuple(int(part) for part in point), text.strip().lstrip("Rr"))

    @property
    def is_branch(self) -> bool:
        """True when only the branch is known."""
        return not self.point

    def _key(self) -> tuple[float, ...]:
        return (self.branch, *(self.point or (float("inf"),)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DriverRelease) and self._key() == other._key()

    def __lt__(self, other: DriverRelease) -> bool:
        return self._key() < other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __str__(self) -> str:
        return self.text or ".".join(str(part) for part in (self.branch, *self.point))


@dataclass(frozen=True, order=True)
class CudaVersion:
    """A CUDA version by major and minor: a toolkit's, or the newest that a driver supports."""

    major: int
    minor: int

    @classmethod
    def parse(cls, text: str) -> CudaVersion:
        """Read `12.5` or `12.5.1`. Raises ValueError otherwise."""
        match = _CUDA.match(text.strip())
        if not match:
            raise ValueError(f'"{text}" is not a CUDA version (expected something like 12.5)')
        return cls(int(match[1]), int(match[2]))

    @classmethod
    def from_driver_api(cls, number: int) -> CudaVersion:
        """From `cuDriverGetVersion`, which answers 1000 * major + 10 * minor (CUDA Driver API)."""
        return cls(number // 1000, number % 1000 // 10)

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


@dataclass(frozen=True, order=True)
class ComputeCapability:
    """A GPU's compute capability, such as 9.0."""

    major: int
    minor: int

    @classmethod
    def parse(cls, text: str) -> ComputeCapability:
        """Read `9.0`, `90`, `sm_90` or `compute_90`. Raises ValueError otherwise."""
        match = _CAPABILITY.match(text.strip().lower())
        if not match:
            raise ValueError(f'"{text}" is not a compute capability (expected something like 9.0)')
        dotted_major, dotted_minor, major, minor = match.groups()
        return cls(int(dotted_major or major), int(dotted_minor or minor))

    @property
    def sm(self) -> str:
        """As compilers write it: `sm_90`."""
        return f"sm_{self.major}{self.minor}"

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


def decode_cudnn(number: int) -> str:
    """The version that `cudnnGetVersion` answers, as text.

    Up to 8.x it is 1000 * major + 100 * minor + patch (8907 is 8.9.7); from 9.0 on it is
    10000 * major + 100 * minor + patch (90300 is 9.3.0). Source: cudnn_version.h of either series.
    """
    base = 10000 if number >= 90000 else 1000
    return f"{number // base}.{number % base // 100}.{number % 100}"
