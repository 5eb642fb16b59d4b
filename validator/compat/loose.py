"""Read values as people and programs write them: None for text that is not such a value."""

from __future__ import annotations

from ..versions import ComputeCapability, CudaVersion, DriverRelease, leading_numbers

#: Suffixes of NVIDIA's wheels, which name the CUDA that they belong to.
_SUFFIXES = ("-cu11", "-cu12", "-cu13")


def cuda(text: str | None) -> CudaVersion | None:
    """Return 12.5 of `12.5.1`."""
    numbers = leading_numbers(text or "")
    return CudaVersion(numbers[0], numbers[1]) if len(numbers) > 1 else None


def driver(text: str | None) -> DriverRelease | None:
    """Return the release of `535.183.01`, or the branch of `R535`."""
    try:
        return DriverRelease.parse(text or "")
    except ValueError:
        return None


def capability(text: str | None) -> ComputeCapability | None:
    """Return 9.0 of `9.0` or `sm_90`."""
    try:
        return ComputeCapability.parse(text or "")
    except ValueError:
        return None


def minor(text: str | None) -> str | None:
    """Return `3.12` of `3.12.4`."""
    numbers = leading_numbers(text or "")
    return f"{numbers[0]}.{numbers[1]}" if len(numbers) > 1 else None


def numbers(text: str | None) -> str | None:
    """Return `9.3.0.75` of `9.3.0.75-1+cuda12.5`."""
    found = leading_numbers(text or "")
    return ".".join(map(str, found)) if len(found) > 1 else None


def without_suffix(name: str) -> str:
    """Return `nvidia-cudnn` of `nvidia-cudnn-cu12`."""
    return next((name.removesuffix(suffix) for suffix in _SUFFIXES if name.endswith(suffix)), name)
