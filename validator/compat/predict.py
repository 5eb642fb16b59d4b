"""Predict a cell: make the situation that its image and its host class describe, and judge it."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace

from ..model.prediction import Prediction, Reason
from ..model.situation import LINUX, PYPI, X86_64, Situation
from ..model.spec import NO_GPU, Cell, Choice, HostClass, ImageSpec, Variant
from ..versions import CudaVersion
from . import judge, packages, policies
from .machine import Machine, machine
from .releases import release as find_release
from .software import Software, software

#: The wheels of a lock whose versions the rules use, without the -cuNN suffix.
_USED_WHEELS = ("numpy", "nvidia-cuda-nvcc", "nvidia-cuda-runtime", "nvidia-cudnn")


def predict(cell: Cell, wheels: Mapping[str, str] | None = None) -> Prediction:
    """Predict a cell.

    wheels: the versions in its lock by wheel name, so that a floating choice is predicted for these versions.
    Without a lock, it is predicted for the newest versions that the facts know. Raises UnknownRelease for a
    TensorFlow that the facts do not know, and ValueError for a CUDA that is not a version.
    """
    image = cell.image
    installed = _software(
        image.tensorflow, image.python, image.cuda, image.cudnn, image.variant, _used_wheels(wheels)
    )
    return judge.judge_halves(installed, _machine(cell.host, image.cuda is not None))


def situation_of(cell: Cell, wheels: Mapping[str, str] | None = None) -> Situation:
    """Return the facts of a cell. Its image is one for Linux x86_64, with TensorFlow from PyPI.

    A cpu image is meant for the CPU, whatever the host has. Raises UnknownRelease.
    """
    image = cell.image
    installed = _image_situation(
        image.tensorflow, image.python, image.cuda, image.cudnn, image.variant, _used_wheels(wheels)
    )
    host = _host_situation(cell.host, image.cuda is not None)
    return replace(
        installed, driver=host.driver, gpu=host.gpu, capability=host.capability, compat=host.compat
    )


def of_image(image: ImageSpec, wheels: Mapping[str, str] | None = None) -> tuple[Reason, ...]:
    """Return the reasons that hold for an image on every host, those that decide first."""
    return judge.of_software(situation_of(Cell(image, HostClass.without_gpu()), wheels))


@functools.lru_cache(maxsize=8192)
def _software(
    tensorflow: str,
    python: str,
    cuda: Choice | None,
    cudnn: Choice | None,
    variant: Variant,
    locked: tuple[tuple[str, str], ...],
) -> Software:
    return software(_image_situation(tensorflow, python, cuda, cudnn, variant, locked))


@functools.lru_cache(maxsize=8192)
def _machine(host: HostClass, uses_gpu: bool) -> Machine:
    return machine(_host_situation(host, uses_gpu))


def _image_situation(
    tensorflow: str,
    python: str,
    cuda: Choice | None,
    cudnn: Choice | None,
    variant: Variant,
    locked: tuple[tuple[str, str], ...],
) -> Situation:
    toolkit, cudnn_version, installed = _libraries(tensorflow, cuda, cudnn, locked)
    return Situation(
        tensorflow=tensorflow,
        python=python,
        cuda=toolkit,
        cudnn=cudnn_version,
        system=LINUX,
        machine=X86_64,
        wheel=PYPI,
        variant=variant.value,
        extra=cuda is not None and cudnn is not None and (cuda.floats or cudnn.floats),
        library_path=True,
        packages=installed,
    )


def _host_situation(host: HostClass, uses_gpu: bool) -> Situation:
    if not (host.has_gpu and uses_gpu):
        return Situation(gpu=NO_GPU, system=LINUX)
    return Situation(
        driver=str(host.driver),
        gpu=host.gpu,
        capability=str(host.compute_capability),
        system=LINUX,
        compat=host.compat,
    )


def _libraries(
    tensorflow: str, cuda: Choice | None, cudnn: Choice | None, locked: tuple[tuple[str, str], ...]
) -> tuple[str | None, str | None, Mapping[str, str]]:
    """Return the CUDA and cuDNN of an image, and the packages that matter, as versions."""
    release = find_release(tensorflow)
    if cuda is None or cudnn is None:
        return None, None, {}
    installed = dict(locked)
    nvcc = policies.cuda_wheels(release, cuda).get(f"nvidia-cuda-nvcc-{release.suffix}")
    if nvcc:
        installed.setdefault("nvidia-cuda-nvcc", nvcc)
    return (
        str(CudaVersion.parse(installed.get("nvidia-cuda-runtime") or cuda.version)),
        installed.setdefault("nvidia-cudnn", policies.cudnn_version(release, cudnn)),
        installed,
    )


def _used_wheels(wheels: Mapping[str, str] | None) -> tuple[tuple[str, str], ...]:
    """Return the wheels that the rules use: (name without suffix, version).

    If there are several wheels of cuDNN, they come first, with their suffixes.
    """
    if not wheels:
        return ()
    cudnns = [(name, version) for name, version in wheels.items() if name.startswith("nvidia-cudnn-cu")]
    return (
        *(cudnns if len(cudnns) > 1 else ()),
        *(
            (name, version)
            for name in (*_USED_WHEELS, *packages.framework_packages())
            for spelled in (name, f"{name}-cu11", f"{name}-cu12")
            if (version := wheels.get(spelled))
        ),
    )
