"""Assigns each wheel to a layer.

Each large NVIDIA wheel is a group of its own, so that two images with the same cuDNN share that layer,
however they differ otherwise. The groups are the stages of `images/Dockerfile`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ...errors import BuildError
from ...model.lock import Lock, Wheel
from ...model.spec import Variant

#: NVIDIA's libraries of 100 MB or more, by the name in `nvidia-<name>-cu12`.
BIG_LIBRARIES = ("cublas", "cudnn", "cufft", "cusolver", "cusparse", "nccl")
#: NVIDIA's other libraries.
CUDA = "cuda"
PYTHON = "python"
TENSORFLOW = "tensorflow"

#: The groups in each target of the Dockerfile.
OF_VARIANT: Mapping[Variant, tuple[str, ...]] = {
    Variant.CPU: (PYTHON, TENSORFLOW),
    Variant.GPU: (CUDA, *BIG_LIBRARIES, PYTHON, TENSORFLOW),
    Variant.JUPYTER: (CUDA, *BIG_LIBRARIES, PYTHON, TENSORFLOW),
}

# Since CUDA 13 the names have no suffix (nvidia-cublas); before, it is the CUDA major (nvidia-cublas-cu12).
_NVIDIA = re.compile(r"^nvidia-(?P<library>[a-z0-9-]+?)(?:-cu\d+)?$")


def group_of(name: str) -> str:
    """Return the group of a distribution, given its normalized name."""
    if name in ("tensorflow", "tensorflow-cpu"):
        return TENSORFLOW
    if match := _NVIDIA.match(name):
        return match["library"] if match["library"] in BIG_LIBRARIES else CUDA
    # TensorRT's wheels are NVIDIA's too, and can be unpacked with any Python.
    return CUDA if name.startswith("tensorrt") else PYTHON


def group_wheels(lock: Lock, variant: Variant) -> dict[str, tuple[Wheel, ...]]:
    """Return the wheels of a lock by group, for the groups of its variant.

    Only TensorFlow's group can't be empty. Raises BuildError if the variant's image has no layer for some of
    the wheels, because the lock is for another variant.
    """
    groups: dict[str, list[Wheel]] = {name: [] for name in OF_VARIANT[variant]}
    stray = []
    for wheel in lock.wheels:
        group = groups.get(group_of(wheel.name))
        if group is None:
            stray.append(str(wheel))
        else:
            group.append(wheel)
    if stray:
        raise BuildError(f"{lock.identifier}: a {variant.value} image has no layer for {', '.join(stray)}")
    if not groups[TENSORFLOW]:
        raise BuildError(f"{lock.identifier}: its lock does not contain TensorFlow")
    return {name: tuple(wheels) for name, wheels in groups.items()}


def requirements(wheels: tuple[Wheel, ...]) -> str:
    """Return requirements that match exactly these files, for `uv pip install --require-hashes`."""
    return "".join(f"{wheel} --hash=sha256:{wheel.sha256}\n" for wheel in wheels)
