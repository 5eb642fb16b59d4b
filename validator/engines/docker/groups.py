"""Which wheel goes into which layer.

Each big NVIDIA wheel is a group of its own, since images share them one by one: two images with the same
cuDNN share that layer whatever else differs. The groups are the stages of `images/Dockerfile`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ...errors import BuildError
from ...model.lock import Lock, Wheel
from ...model.spec import Variant

#: NVIDIA's libraries of 100 MB and more, by the name in `nvidia-<name>-cu12`.
BIG_LIBRARIES = ("cublas", "cudnn", "cufft", "cusolver", "cusparse", "nccl")
#: The rest of NVIDIA's.
CUDA = "cuda"
PYTHON = "python"
TENSORFLOW = "tensorflow"

#: The groups that each target of the Dockerfile copies in.
OF_VARIANT: Mapping[Variant, tuple[str, ...]] = {
    Variant.CPU: (PYTHON, TENSORFLOW),
    Variant.GPU: (CUDA, *BIG_LIBRARIES, PYTHON, TENSORFLOW),
}

# Since CUDA 13 the names carry no suffix (nvidia-cublas); before, it is the CUDA major (nvidia-cublas-cu12).
_NVIDIA = re.compile(r"^nvidia-(?P<library>[a-z0-9-]+?)(?:-cu\d+)?$")


def group_of(name: str) -> str:
    """The group of a distribution, by its normalized name."""
    if name in ("tensorflow", "tensorflow-cpu"):
        return TENSORFLOW
    if match := _NVIDIA.match(name):
        return match["library"] if match["library"] in BIG_LIBRARIES else CUDA
    # TensorRT's wheels are NVIDIA's too, and need no Python of the image's version to be unpacked.
    return CUDA if name.startswith("tensorrt") else PYTHON


def group_wheels(lock: Lock, variant: Variant) -> dict[str, tuple[Wheel, ...]]:
    """The wheels of a lock by group, in the groups of its variant.

    A group may be empty, except TensorFlow's. Raises BuildError when the lock holds wheels that the variant's
    image has no layer for, which a lock of another variant does.
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
        raise BuildError(f"{lock.identifier}: a {variant.value} image can't hold {', '.join(stray)}")
    if not groups[TENSORFLOW]:
        raise BuildError(f"{lock.identifier}: its lock holds no TensorFlow")
    return {name: tuple(wheels) for name, wheels in groups.items()}


def requirements(wheels: tuple[Wheel, ...]) -> str:
    """Requirements that admit these very files and no other, for `uv pip install --require-hashes`."""
    return "".join(f"{wheel} --hash=sha256:{wheel.sha256}\n" for wheel in wheels)
