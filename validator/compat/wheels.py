"""NVIDIA's wheels: the component versions of each CUDA release, and the cuDNN releases there are."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

from . import facts
from .facts import Fact


@dataclass(frozen=True)
class CudaRelease:
    """One CUDA release as wheels.

    version: `12.8.1`. suffix: `cu11` or `cu12`. components: wheel -> version.
    """

    version: str
    suffix: str
    fact: Fact
    components: Mapping[str, str] = field(hash=False)

    @property
    def minor(self) -> str:
        """`12.8`"""
        return two_parts(self.version)


@functools.cache
def cuda_releases(suffix: str | None = None) -> tuple[CudaRelease, ...]:
    """Every CUDA release that has wheels (of one suffix, or of all), oldest first."""
    return tuple(
        CudaRelease(
            version=row["release"],
            suffix=row["suffix"],
            fact=facts.fact(row),
            components={f"nvidia-{name}-{row['suffix']}": pin for name, pin in row["components"].items()},
        )
        for row in facts.rows("wheels", "cuda")
        if suffix in (None, row["suffix"])
    )


@functools.cache
def cudnn_releases(suffix: str) -> tuple[str, ...]:
    """Every cuDNN wheel version of one suffix, oldest first; empty for an unknown suffix."""
    for row in facts.rows("wheels", "cudnn"):
        if row["suffix"] == suffix:
            return tuple(row["releases"])
    return ()


def starts_with(version: str, pin: str) -> bool:
    """Whether a version is the pin or one of its releases: 12.8.1 of 12.8, but not 12.10 of 12.1."""
    return version == pin or version.startswith(f"{pin}.")


def two_parts(version: str) -> str:
    """`9.10.2.21` -> `9.10`"""
    return ".".join(version.split(".")[:2])
