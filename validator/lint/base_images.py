"""Read from the tag of a base image which software the image contains, if the tag says so."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..compat.cudnn import cudnn_of_image
from ..compat.older_releases import release_of_any_age

_REFERENCE = re.compile(r"(?:(?P<registry>(?=[^/]*[.:])[^/]*)/)?(?P<name>[^:@]+)(?::(?P<tag>[^@]+))?(?:@.*)?")
_CUDA_TAG = re.compile(
    r"(?P<release>(?P<cuda>\d+\.\d+)(?:\.\d+)?)(?:-(?P<cudnn>cudnn\d*))?-(?:base|runtime|devel)(?:-\S+)?"
)
_TENSORFLOW_TAG = re.compile(r"(?P<version>\d+\.\d+\.\d+)(?P<gpu>-gpu)?(?:-(?:jupyter|py3))*")
_PYTHON_TAG = re.compile(r"(?P<python>\d\.\d+)(?:\.\d+)?(?:[-.]\S+)?")
#: Images of distributions, which have no CUDA.
_WITHOUT_CUDA = re.compile(
    r"(?:library/)?(?:ubuntu|debian|buildpack-deps|alpine|fedora|rockylinux|almalinux)"
)


@dataclass(frozen=True)
class BaseImage:
    """The software of a base image, as far as it is known. An empty value is not known.

    without_cuda: True if it has no CUDA. for_gpu: True if it makes sense only with a GPU.
    """

    cuda: str = ""
    cudnn: str = ""
    python: str = ""
    without_cuda: bool = False
    for_gpu: bool = False


def base_image(reference: str) -> BaseImage:
    """Return what the name of an image says: `nvidia/cuda:12.5.1-cudnn-runtime-ubuntu22.04`."""
    match = _REFERENCE.fullmatch(reference)
    if match is None:
        return BaseImage()
    name, tag = match["name"], match["tag"] or ""
    if name == "nvidia/cuda" or name.endswith("/nvidia/cuda"):
        return _cuda(tag)
    if name == "tensorflow/tensorflow" or name.endswith("/tensorflow/tensorflow"):
        return _tensorflow(tag)
    if name in ("python", "library/python"):
        python = _PYTHON_TAG.fullmatch(tag)
        return BaseImage(python=python["python"] if python else "", without_cuda=True)
    return BaseImage(without_cuda=_WITHOUT_CUDA.fullmatch(name) is not None)


def _cuda(tag: str) -> BaseImage:
    match = _CUDA_TAG.fullmatch(tag)
    if match is None:
        return BaseImage(for_gpu=True)
    return BaseImage(
        cuda=match["cuda"], cudnn=cudnn_of_image(match["release"], match["cudnn"] or ""), for_gpu=True
    )


def _tensorflow(tag: str) -> BaseImage:
    match = _TENSORFLOW_TAG.fullmatch(tag)
    release = release_of_any_age(match["version"]) if match else None
    if match is None or release is None or not match["gpu"]:
        return BaseImage(for_gpu="gpu" in tag.split("-"))
    return BaseImage(cuda=release.cuda, cudnn=release.cudnn, for_gpu=True)
