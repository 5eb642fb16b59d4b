"""Cells from a few words, for tests."""

from __future__ import annotations

from validator.compat import hardware, policies, releases
from validator.model.spec import AS_BUILT, LATEST, Cell, HostClass, ImageSpec, Variant
from validator.versions import ComputeCapability, DriverRelease


def cell(
    tensorflow: str,
    gpu: str,
    driver: str,
    policy: str = AS_BUILT,
    *,
    cudnn: str | None = None,
    python: str | None = None,
    compat: str | None = None,
) -> Cell:
    """Return a cell of the gpu variant.

    gpu: a model, or a compute capability. policy: for CUDA, and for cuDNN unless it is a version. python:
    None for the newest that the release has a wheel for.
    """
    release = releases.release(tensorflow)
    chosen = policies.choose(
        release,
        policy,
        cudnn or (policy if policy in (AS_BUILT, LATEST) else AS_BUILT),
        within_metadata=False,
    )
    image = ImageSpec(release.version, python or release.pythons[-1], Variant.GPU, *chosen)
    return Cell(image, host(gpu, driver, compat))


def host(gpu: str, driver: str, compat: str | None = None) -> HostClass:
    """A host class of a GPU model, or of a compute capability."""
    if gpu[0].isdigit():
        return HostClass("host", DriverRelease.parse(driver), ComputeCapability.parse(gpu), compat=compat)
    model = hardware.gpu(gpu)
    return HostClass("host", DriverRelease.parse(driver), model.compute_capability, model.name, compat=compat)
