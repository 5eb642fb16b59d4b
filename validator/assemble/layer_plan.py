"""Decide which wheel is in which layer.

A large wheel has a layer of its own, so that images that have it in common share that layer, however they
differ otherwise. Layers that more images share come first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from ..errors import BuildError
from ..model.lock import Lock, Wheel
from ..model.spec import Variant

#: Wheels of this many bytes and more have a layer of their own.
LARGE_WHEEL = 5_000_000
#: Files of TensorFlow's wheel with this many bytes and more have a layer of their own. The wheels of several
#: Pythons contain the same large library.
LARGE_FILE = 100_000_000

# Since CUDA 13 the names have no suffix (nvidia-cublas); before, it is the CUDA major (nvidia-cublas-cu12).
# TensorRT's wheels are NVIDIA's too.
_NVIDIA = re.compile(r"nvidia-|tensorrt")
_TENSORFLOW = ("tensorflow", "tensorflow-cpu")


class Group(str, Enum):
    """The groups of wheels, in the order of their layers.

    NVIDIA: libraries, the same for every Python. TENSORFLOW: only TensorFlow's own wheel.
    """

    NVIDIA = "NVIDIA"
    PYTHON = "Python"
    TENSORFLOW = "TensorFlow"


@dataclass(frozen=True)
class WheelLayer:
    """The wheels of one layer, sorted by name. name: for people, such as `nvidia-cudnn-cu12 9.3.0.75`."""

    name: str
    group: Group
    wheels: tuple[Wheel, ...]


def group_of(name: str) -> Group:
    """Return the group of a distribution, given its normalized name."""
    if name in _TENSORFLOW:
        return Group.TENSORFLOW
    return Group.NVIDIA if _NVIDIA.match(name) else Group.PYTHON


def wheel_layers(lock: Lock, variant: Variant) -> tuple[WheelLayer, ...]:
    """Return the layers for the wheels of a lock, lowest first.

    A wheel whose size the lock does not say counts as small. Raises BuildError if the lock has NVIDIA's
    wheels for a cpu image (added packages may need them), or does not have exactly one wheel of TensorFlow.
    """
    groups: dict[Group, list[Wheel]] = {group: [] for group in Group}
    for wheel in lock.wheels:
        groups[group_of(wheel.name)].append(wheel)
    if variant is Variant.CPU and not lock.additions and (stray := groups[Group.NVIDIA]):
        names = ", ".join(map(str, stray))
        raise BuildError(f"{lock.identifier}: its lock is for a gpu image, because it contains {names}")
    if len(groups[Group.TENSORFLOW]) != 1:
        found = " and ".join(map(str, groups[Group.TENSORFLOW])) or "none"
        raise BuildError(f"{lock.identifier}: its lock must contain one wheel of TensorFlow, not {found}")
    return tuple(layer for group in Group for layer in _layers(group, groups[group]))


def wheels_of(layers: Iterable[WheelLayer], group: Group) -> tuple[Wheel, ...]:
    """Return the wheels of a group, in the order of their layers."""
    return tuple(wheel for layer in layers if layer.group is group for wheel in layer.wheels)


def _layers(group: Group, wheels: list[Wheel]) -> Iterator[WheelLayer]:
    ordered = sorted(wheels, key=lambda wheel: wheel.name)
    small = tuple(wheel for wheel in ordered if (wheel.size or 0) < LARGE_WHEEL)
    for wheel in ordered:
        if wheel not in small:
            yield WheelLayer(f"{wheel.name} {wheel.version}", group, (wheel,))
    if group is Group.TENSORFLOW and small:
        yield WheelLayer(f"{small[0].name} {small[0].version}", group, small)
    elif small:
        yield WheelLayer(f"{len(small)} small wheels ({group.value})", group, small)
