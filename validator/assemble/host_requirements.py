"""The requirements of an image on its host, taken from the compatibility rules.

They are used for the image's variables, its labels, and the tables that its entry point reads.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..compat import drivers, gpus
from ..compat.errors import UnknownRelease
from ..compat.kernels import kernels
from ..compat.targets import Target
from ..model.spec import ImageSpec, Variant
from ..versions import ComputeCapability, CudaVersion, DriverRelease


@dataclass(frozen=True)
class HostRequirements:
    """The requirements of a gpu image on its host.

    cuda: the minimum CUDA version that the driver must support. driver: the minimum driver release.
    sass, ptx: the targets for which at least some kernels in TensorFlow's wheel have machine code, and PTX:
        9.0, 9.0a. Empty if the wheel is unknown.
    """

    cuda: CudaVersion
    driver: DriverRelease | None
    sass: tuple[Target, ...] = ()
    ptx: tuple[Target, ...] = ()

    @property
    def constraint(self) -> str:
        """The requirement in the syntax of NVIDIA_REQUIRE_CUDA: `cuda>=12.0`."""
        return f"cuda>={self.cuda}"

    @property
    def compute_capability(self) -> ComputeCapability | None:
        """The minimum compute capability: for older GPUs, the wheel has neither machine code nor PTX."""
        return min((target.capability for target in (*self.sass, *self.ptx)), default=None)


def host_requirements(spec: ImageSpec) -> HostRequirements | None:
    """Return the requirements of an image, or None if it has no CUDA.

    Within a major version of CUDA, the driver of the first minor version is enough (minor-version
    compatibility): 12.5 needs R525 (`cuda>=12.0`), not R555. Such a host can't JIT-compile newer PTX; that is
    a matter for the prediction, not a reason to refuse to start.
    """
    if spec.variant is Variant.CPU or spec.cuda is None:
        return None
    major = CudaVersion.parse(spec.cuda.version).major
    floor = drivers.minor_version(major)
    branch = drivers.branch_of(floor.driver.branch) if floor else None
    return HostRequirements(
        branch.cuda if branch else CudaVersion(major, 0),
        floor.driver if floor else None,
        *_device_code(spec.tensorflow),
    )


def _device_code(tensorflow: str) -> tuple[tuple[Target, ...], tuple[Target, ...]]:
    try:
        known = kernels(tensorflow)
    except UnknownRelease:
        known = None
    groups = known.groups if known else ()
    sass = frozenset[Target]().union(*(group.sass for group in groups))
    ptx = frozenset[Target]().union(*(group.ptx for group in groups))
    return tuple(sorted(sass)), tuple(sorted(ptx))


def tables() -> str:
    """Return the facts about drivers and GPUs for the entry point (`images/entrypoint/start`), one per line.

    Of the GPUs, only data-center products with one-word names are included; the entry point treats all others
    as unknown.
    """
    lines = [f"branch {branch.number} {branch.cuda}" for branch in drivers.branches()]
    lines += [
        f"gpu {gpu.compute_capability} {gpu.name}"
        for gpu in gpus.gpus()
        if gpu.data_center and " " not in gpu.name
    ]
    return "".join(f"{line}\n" for line in lines)
