"""The order of images and host classes: the same for the same content, however the file lists it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from packaging.version import Version

from ..model.spec import Choice, HostClass, ImageSpec, Variant


def in_order(images: Iterable[ImageSpec]) -> tuple[ImageSpec, ...]:
    """Newest TensorFlow first; gpu before cpu, CUDA and cuDNN upwards with what floats last, then Python."""
    by_axes = sorted(images, key=_axes)
    return tuple(sorted(by_axes, key=lambda image: Version(image.tensorflow), reverse=True))


def hosts_in_order(hosts: Iterable[HostClass]) -> tuple[HostClass, ...]:
    """Machines with a GPU first; by driver, compute capability, model and cuda-compat upwards."""
    return tuple(sorted(hosts, key=_host))


def _axes(image: ImageSpec) -> tuple[Any, ...]:
    return (
        image.variant is not Variant.GPU,
        _choice(image.cuda),
        _choice(image.cudnn),
        image.base or "",
        _numbers(image.python),
    )


def _host(host: HostClass) -> tuple[Any, ...]:
    return (
        not host.has_gpu,
        host.driver,
        host.compute_capability,
        host.gpu or "",
        _numbers(host.compat or "0"),
        host.identifier,
    )


def _choice(choice: Choice | None) -> tuple[Any, ...]:
    return (choice.floats, _numbers(choice.version)) if choice else ()


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
