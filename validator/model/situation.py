"""Everything that is known of a machine and the TensorFlow on it, as far as it decides whether the GPU can
work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Situation:
    """Loose facts. None, or empty, where a fact is not known.

    tensorflow, python, cuda, cudnn: versions as text. driver: a release or a branch. driver_cuda: the CUDA
    version that nvidia-smi shows. gpu: a name. capability: `8.6`. system: `linux`, `wsl2`, `windows` or
    `macos`. machine: `x86_64`, `aarch64` or `jetson`. kernel_modules: `open` or `proprietary`.
    wheel: `pypi`, `conda-forge`, `ngc` or `own`. variant: `gpu` or `cpu`. extra: TensorFlow was installed
    with the extra `and-cuda`. compat: the version of cuda-compat. packages: normalized name -> version.
    mode: `eager` or `xla`; None stands for both.
    """

    tensorflow: str | None = None
    python: str | None = None
    cuda: str | None = None
    cudnn: str | None = None
    driver: str | None = None
    driver_cuda: str | None = None
    gpu: str | None = None
    capability: str | None = None
    system: str | None = None
    machine: str | None = None
    kernel_modules: str | None = None
    wheel: str | None = None
    variant: str | None = None
    extra: bool | None = None
    compat: str | None = None
    packages: Mapping[str, str] = field(default_factory=dict)
    mode: str | None = None
