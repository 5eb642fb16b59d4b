"""What is known about a machine and about the software on it, as far as predictions depend on it.

Both values are read from options (`cli/combination`), from a text or a report (`diagnosis/situation`), from
files that pin software (`lint/blame`), from cells (`compat/predict`) and from this machine
(`engines/host_situation`). Any fact may be unknown, which is None.
"""

from __future__ import annotations

from dataclasses import dataclass

# Values of `Host.system`.
LINUX, WSL2, WINDOWS, MACOS = "linux", "wsl2", "windows", "macos"
SYSTEMS = (LINUX, WSL2, WINDOWS, MACOS)
# Values of `Host.machine`.
X86_64, AARCH64, JETSON = "x86_64", "aarch64", "jetson"
MACHINES = (X86_64, AARCH64, JETSON)
# Values of `Host.kernel_modules`.
OPEN, PROPRIETARY = "open", "proprietary"
KERNEL_MODULES = (OPEN, PROPRIETARY)
# Values of `Software.wheel`.
PYPI, CONDA_FORGE, NGC, OWN = "pypi", "conda-forge", "ngc", "own"
WHEELS = (PYPI, CONDA_FORGE, NGC, OWN)
# The modes that a prediction can be about.
EAGER, XLA = "eager", "xla"
MODES = (EAGER, XLA)


@dataclass(frozen=True)
class Host:
    """A machine.

    driver: an NVIDIA driver release or branch; on Windows and in WSL2 that of Windows. driver_cuda: the CUDA
        version that nvidia-smi shows, which is the newest that the driver supports.
    gpu: a model's name, or `no-gpu` for a machine that has none. capability: `8.9`.
    system, machine, kernel_modules: one of the values above.
    compat: the CUDA version of a cuda-compat package on the loader's path.
    """

    driver: str | None = None
    driver_cuda: str | None = None
    gpu: str | None = None
    capability: str | None = None
    system: str | None = None
    machine: str | None = None
    kernel_modules: str | None = None
    compat: str | None = None

    @property
    def names_gpu(self) -> bool:
        return bool(self.gpu or self.capability)

    @property
    def names_driver(self) -> bool:
        return bool(self.driver or self.driver_cuda)

    @property
    def on_windows(self) -> bool:
        """True if the driver is that of Windows."""
        return self.system in (WINDOWS, WSL2)


@dataclass(frozen=True)
class Software:
    """TensorFlow and what is installed with it.

    tensorflow, python: versions. Two numbers (`2.16`) stand for the newest release of the series.
    cuda, cudnn: versions of the libraries that TensorFlow loads.
    wheel: where the TensorFlow package comes from, one of the values above.
    variant: `gpu` or `cpu` (`tensorflow-cpu`).
    extra: True if TensorFlow was installed with its extra `and-cuda`, False if without.
    library_path: True if the loader is told of the directories of NVIDIA's wheels, with LD_LIBRARY_PATH or as
        the images of this project do; False if it is not.
    packages: other installed packages: normalized names and versions, each name once.
    """

    tensorflow: str | None = None
    python: str | None = None
    cuda: str | None = None
    cudnn: str | None = None
    wheel: str | None = None
    variant: str | None = None
    extra: bool | None = None
    library_path: bool | None = None
    packages: tuple[tuple[str, str], ...] = ()

    @property
    def versions(self) -> dict[str, str]:
        """The versions of the packages, by name."""
        return dict(self.packages)
