"""Predict a cell: read the software of its image and its host class as facts, and judge them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace

from ..model.prediction import Prediction, Reason
from ..model.situation import LINUX, PYPI, X86_64, Host, Software
from ..model.spec import NO_GPU, Cell, Choice, HostClass, ImageSpec, Variant
from ..versions import CudaVersion
from . import judge, packages, policies
from .machine import judge_host
from .releases import release as find_release
from .software import judge_software

#: The wheels of a lock whose versions the rules use, without the -cuNN suffix.
_USED_WHEELS = ("numpy", "nvidia-cuda-nvcc", "nvidia-cuda-runtime", "nvidia-cudnn")
#: The host of an image for which no machine is chosen: images of this project are for Linux x86_64.
ANY_HOST = Host(system=LINUX, machine=X86_64)
_WITHOUT_GPU = replace(ANY_HOST, gpu=NO_GPU)


def predict(cell: Cell, wheels: Mapping[str, str] | None = None) -> Prediction:
    """Predict a cell. A cpu image is meant for the CPU, whatever the host has.

    wheels: the versions in its lock by wheel name, so that a floating choice is predicted for these versions.
    Without a lock, it is predicted for the newest versions that the facts know. Raises UnknownRelease for a
    TensorFlow that the facts do not know, and ValueError for a CUDA that is not a version.
    """
    image = cell.image
    software = judge_software(software_of(image, wheels), ANY_HOST)
    return judge.judge_both(software, judge_host(host_of(cell.host) if image.cuda else _WITHOUT_GPU))


def software_of(image: ImageSpec, wheels: Mapping[str, str] | None = None) -> Software:
    """Return the software of an image, with TensorFlow from PyPI. Raises UnknownRelease.

    wheels: as for `predict`.
    """
    return _software_of(
        image.tensorflow, image.python, image.cuda, image.cudnn, image.variant, _used_wheels(wheels)
    )


@functools.lru_cache(maxsize=8192)
def host_of(host: HostClass) -> Host:
    """Return the machine that a host class describes."""
    if not host.has_gpu:
        return _WITHOUT_GPU
    return Host(
        driver=str(host.driver),
        gpu=host.gpu,
        capability=str(host.compute_capability),
        system=LINUX,
        machine=X86_64,
        compat=host.compat,
    )


def of_image(image: ImageSpec, wheels: Mapping[str, str] | None = None) -> tuple[Reason, ...]:
    """Return the reasons that hold for an image on every host, those that decide first."""
    return judge.of_software(software_of(image, wheels), ANY_HOST)


# Images with different bases and host classes have the same software.
@functools.lru_cache(maxsize=8192)
def _software_of(
    tensorflow: str,
    python: str,
    cuda: Choice | None,
    cudnn: Choice | None,
    variant: Variant,
    locked: tuple[tuple[str, str], ...],
) -> Software:
    release = find_release(tensorflow)
    image = Software(
        tensorflow, python, wheel=PYPI, variant=variant.value, extra=False, library_path=True
    )  # fmt: skip
    if cuda is None or cudnn is None:
        return image
    installed = dict(locked)
    nvcc = policies.cuda_wheels(release, cuda).get(f"nvidia-cuda-nvcc-{release.suffix}")
    if nvcc:
        installed.setdefault("nvidia-cuda-nvcc", nvcc)
    return replace(
        image,
        cuda=str(CudaVersion.parse(installed.get("nvidia-cuda-runtime") or cuda.version)),
        cudnn=installed.setdefault("nvidia-cudnn", policies.cudnn_version(release, cudnn)),
        extra=cuda.floats or cudnn.floats,
        packages=tuple(installed.items()),
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
