"""Read values as people and programs write them. They return None for any other text."""

from __future__ import annotations

from ..versions import ComputeCapability, CudaVersion, DriverRelease, leading_numbers

#: Suffixes of NVIDIA's wheels, which name the CUDA that they belong to.
_SUFFIXES = ("-cu11", "-cu12", "-cu13")


def cuda(text: str | None) -> CudaVersion | None:
    """Return the CUDA version that a text names: 12.5 for `12.5.1`."""
    numbers = leading_numbers(text or "")
    return CudaVersion(numbers[0], numbers[1]) if len(numbers) > 1 else None


def driver(text: str | None) -> DriverRelease | None:
    """Return the driver that a text names: a release for `535.183.01`, a branch for `R535`."""
    try:
        return DriverRelease.parse(text or "")
    except ValueError:
        return None


def capability(text: str | None) -> ComputeCapability | None:
    """Return the compute capability that a text names: 9.0 for `9.0` or `sm_90`."""
    try:
        return ComputeCapability.parse(text or "")
    except ValueError:
        return None


def minor(text: str | None) -> str | None:
    """Return the major and minor version that a text begins with: `3.12` for `3.12.4`."""
    numbers = leading_numbers(text or "")
    return f"{numbers[0]}.{numbers[1]}" if len(numbers) > 1 else None


def numbers(text: str | None) -> str | None:
    """Return the numbers that a version begins with: `9.3.0.75` for `9.3.0.75-1+cuda12.5`."""
    found = leading_numbers(text or "")
    return ".".join(map(str, found)) if len(found) > 1 else None


def without_suffix(name: str) -> str:
    """Return a wheel's name without its CUDA suffix: `nvidia-cudnn` for `nvidia-cudnn-cu12`."""
    return next((name.removesuffix(suffix) for suffix in _SUFFIXES if name.endswith(suffix)), name)
