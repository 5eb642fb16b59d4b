"""The known facts about one environment and its machine, from a cell, from options or read in a text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# Values of `Situation.system`.
LINUX, WSL2, WINDOWS, MACOS = "linux", "wsl2", "windows", "macos"
SYSTEMS = (LINUX, WSL2, WINDOWS, MACOS)
# Values of `Situation.machine`.
X86_64, AARCH64, JETSON = "x86_64", "aarch64", "jetson"
MACHINES = (X86_64, AARCH64, JETSON)
# Values of `Situation.kernel_modules`.
OPEN, PROPRIETARY = "open", "proprietary"
KERNEL_MODULES = (OPEN, PROPRIETARY)
# Values of `Situation.wheel`.
PYPI, CONDA_FORGE, NGC, OWN = "pypi", "conda-forge", "ngc", "own"
WHEELS = (PYPI, CONDA_FORGE, NGC, OWN)
# Values of `Situation.mode`.
EAGER, XLA = "eager", "xla"
MODES = (EAGER, XLA)


@dataclass(frozen=True)
class Situation:
    """Loose facts. Any of them may be unknown: None, or empty for `packages`.

    tensorflow, python: versions. Two numbers (`2.16`) stand for the newest release of the series.
    cuda, cudnn: versions of the libraries that TensorFlow loads.
    driver: an NVIDIA driver release or branch; on Windows and in WSL2 that of Windows. driver_cuda: the CUDA
        version that nvidia-smi shows, which is the newest that the driver supports.
    gpu: a model's name, or `no-gpu` for a machine that has none. capability: `8.9`.
    system, machine, kernel_modules, wheel, mode: one of the values above. wheel: where the TensorFlow package
        comes from. mode: None asks about both.
    variant: `gpu` or `cpu` (`tensorflow-cpu`).
    extra: True if TensorFlow was installed with its extra `and-cuda`, False if without.
    compat: the CUDA version of a cuda-compat package on the loader's path.
    library_path: True if the loader is told of the directories of NVIDIA's wheels, with LD_LIBRARY_PATH or as
        the images of this project do; False if it is not.
    packages: other installed packages, normalized name -> version.
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
    library_path: bool | None = None
    packages: Mapping[str, str] = field(default_factory=dict, hash=False)
    mode: str | None = None
