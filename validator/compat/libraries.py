"""Whether TensorFlow finds NVIDIA's libraries where their wheels put them, and XLA's compiler among them."""

from __future__ import annotations

import functools

from ..model.prediction import Reason
from ..model.versions import CudaVersion
from . import facts
from .builds import build


@functools.lru_cache(maxsize=1024)
def search_path(version: str) -> Reason | None:
    """Whether the wheel's own search path reaches the libraries of NVIDIA's wheels.

    None when that was not read. Without any one of them TensorFlow registers no GPU. What the wheel does not
    search is a remark and no more, for those who install it by itself: images name NVIDIA's folders to the
    loader, and so does the venv engine for what it runs (images/build/configure-loader, engines/venv.py).
    """
    known = build(version)
    if known is None:
        return None
    if not known.not_found:
        return known.fact.works("the wheel searches NVIDIA's wheels for every library it needs")
    names = ", ".join(known.not_found)
    missed = f"the folder of {names}" if known.folders else f"any of NVIDIA's wheels ({names})"
    return known.fact.advises(
        f"the wheel by itself does not search {missed}, without which it registers no GPU;"
        " images made here name NVIDIA's folders to the loader, and so does the venv engine for what it"
        " runs; elsewhere LD_LIBRARY_PATH must"
    )


@functools.lru_cache(maxsize=1024)
def xla_compiler(nvcc: str, user_cuda: CudaVersion) -> Reason | None:
    """Why XLA does not need the driver to compile PTX, where its ptxas is newer than the driver's CUDA.

    nvcc: version of the nvidia-cuda-nvcc wheel, which brings ptxas. user_cuda: the newest CUDA that the
    libcuda in use supports.
    """
    if CudaVersion.parse(nvcc) <= user_cuda:
        return None
    return facts.rule("tensorflow", "xla-uses-ptxas").works(
        f"XLA compiles its kernels to machine code with ptxas {nvcc}, so that they don't need the PTX"
        f" compiler of a driver for CUDA {user_cuda}"
    )
