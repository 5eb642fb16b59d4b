"""Predict a cell: make the situation that its image and its host class describe, and judge it."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from ..model.prediction import Prediction, Reason
from ..model.situation import LINUX, PYPI, X86_64, Situation
from ..model.spec import NO_GPU, Cell, Choice, HostClass, ImageSpec
from ..versions import CudaVersion
from . import judge, policies
from .releases import release as find_release

#: The wheels of a lock whose versions the rules use, without the -cuNN suffix.
_USED_WHEELS = ("numpy", "nvidia-cuda-nvcc", "nvidia-cuda-runtime", "nvidia-cudnn")


def predict(cell: Cell, wheels: Mapping[str, str] | None = None) -> Prediction:
    """Predict a cell.

    wheels: the versions in its lock by wheel name, so that a floating choice is predicted for these versions.
    Without a lock, it is predicted for the newest versions that the facts know. Raises UnknownRelease for a
    TensorFlow that the facts do not know, and ValueError for a CUDA that is not a version.
    """
    return judge.judge(situation_of(cell, wheels))


def situation_of(cell: Cell, wheels: Mapping[str, str] | None = None) -> Situation:
    """Return the facts of a cell. Its image is one for Linux x86_64, with TensorFlow from PyPI.

    A cpu image is meant for the CPU, whatever the host has. Raises UnknownRelease.
    """
    image, host = cell.image, cell.host
    cuda, cudnn, packages = _libraries(image.tensorflow, image.cuda, image.cudnn, _used_wheels(wheels))
    floats = image.cuda is not None and image.cudnn is not None and (image.cuda.floats or image.cudnn.floats)
    has_gpu = host.has_gpu and image.cuda is not None
    return Situation(
        tensorflow=image.tensorflow,
        python=image.python,
        cuda=cuda,
        cudnn=cudnn,
        driver=str(host.driver) if has_gpu else None,
        gpu=host.gpu if has_gpu else NO_GPU,
        capability=str(host.compute_capability) if has_gpu else None,
        system=LINUX,
        machine=X86_64,
        wheel=PYPI,
        variant=image.variant.value,
        extra=floats,
        compat=host.compat,
        library_path=True,
        packages=packages,
    )


def of_image(image: ImageSpec) -> tuple[Reason, ...]:
    """Return the reasons that hold for an image on every host, those that decide first."""
    return judge.of_software(situation_of(Cell(image, HostClass.without_gpu())))


@functools.lru_cache(maxsize=8192)
def _libraries(
    tensorflow: str, cuda: Choice | None, cudnn: Choice | None, locked: tuple[tuple[str, str], ...]
) -> tuple[str | None, str | None, Mapping[str, str]]:
    """Return the CUDA and cuDNN of an image, and the packages that matter, as versions."""
    release = find_release(tensorflow)
    if cuda is None or cudnn is None:
        return None, None, {}
    packages = dict(locked)
    nvcc = policies.cuda_wheels(release, cuda).get(f"nvidia-cuda-nvcc-{release.suffix}")
    if nvcc:
        packages.setdefault("nvidia-cuda-nvcc", nvcc)
    return (
        str(CudaVersion.parse(packages.get("nvidia-cuda-runtime") or cuda.version)),
        packages.setdefault("nvidia-cudnn", policies.cudnn_version(release, cudnn)),
        packages,
    )


def _used_wheels(wheels: Mapping[str, str] | None) -> tuple[tuple[str, str], ...]:
    """Return the wheels that the rules use: (name without suffix, version)."""
    if not wheels:
        return ()
    return tuple(
        (name, version)
        for name in _USED_WHEELS
        for spelled in (name, f"{name}-cu11", f"{name}-cu12")
        if (version := wheels.get(spelled))
    )
