"""What an image asks of its host, from the compatibility rules: in its variables, in its labels, and in the
tables that its entry point reads."""

from __future__ import annotations

from dataclasses import dataclass

from ...compat import drivers, gpus
from ...compat.kernels import kernels
from ...compat.unknown import UnknownRelease
from ...model.spec import ImageSpec, Variant
from ...versions import ComputeCapability, CudaVersion, DriverRelease


@dataclass(frozen=True)
class Needs:
    """What a gpu image needs of its host.

    cuda: the CUDA version that the driver must support at least. driver: the oldest release.
    sass, ptx: the compute capabilities that TensorFlow's wheel has machine code for, and PTX; in some of its
        kernels at least. Empty where the wheel is not known.
    """

    cuda: CudaVersion
    driver: DriverRelease | None
    sass: tuple[ComputeCapability, ...] = ()
    ptx: tuple[ComputeCapability, ...] = ()

    @property
    def constraint(self) -> str:
        """As NVIDIA_REQUIRE_CUDA has it: `cuda>=12.0`."""
        return f"cuda>={self.cuda}"

    @property
    def compute_capability(self) -> ComputeCapability | None:
        """The least that anything in the wheel runs on: older GPUs have neither machine code nor PTX."""
        return min((*self.sass, *self.ptx), default=None)


def needs(spec: ImageSpec) -> Needs | None:
    """What an image needs, or None for one without CUDA.

    Within a CUDA major, the first minor's driver is enough (minor-version compatibility), so 12.5 needs R525
    (`cuda>=12.0`) and not R555. What such a host still can't do, JIT-compile newer PTX, is the prediction's
    to say, not a reason to refuse the start.
    """
    if spec.variant is Variant.CPU or spec.cuda is None:
        return None
    major = CudaVersion.parse(spec.cuda.version).major
    floor = drivers.minor_version(major)
    branch = drivers.branch_of(floor.driver.branch) if floor else None
    return Needs(
        branch.cuda if branch else CudaVersion(major, 0),
        floor.driver if floor else None,
        *_device_code(spec.tensorflow),
    )


def _device_code(tensorflow: str) -> tuple[tuple[ComputeCapability, ...], tuple[ComputeCapability, ...]]:
    try:
        known = kernels(tensorflow)
    except UnknownRelease:
        known = None
    groups = known.groups if known else ()
    sass = frozenset[ComputeCapability]().union(*(group.sass for group in groups))
    ptx = frozenset[ComputeCapability]().union(*(group.ptx for group in groups))
    return tuple(sorted(sass)), tuple(sorted(ptx))


def tables() -> str:
    """What the entry point (`images/entrypoint/start`) knows of drivers and GPUs, one fact a line.

    Of the GPUs, the data-center products: their names are one word. The others count as unknown there.
    """
    lines = [f"branch {branch.number} {branch.cuda}" for branch in drivers.branches()]
    lines += [
        f"gpu {gpu.compute_capability} {gpu.name}"
        for gpu in gpus.gpus()
        if gpu.data_center and " " not in gpu.name
    ]
    return "".join(f"{line}\n" for line in lines)
