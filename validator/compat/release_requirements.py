"""What a release needs by itself: for each GPU the driver branches that run it, or why none does.

Nothing here is a fact of its own: every cell of an image with a known GPU and a known branch is predicted.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ..model.prediction import Outcome, Prediction, Reason
from ..model.spec import Cell, HostClass, ImageSpec, host_identifier
from ..versions import ComputeCapability, CudaVersion, DriverRelease
from . import drivers, gpus, policies
from .predict import of_image, predict
from .releases import release


@dataclass(frozen=True)
class GpuNeed:
    """What the GPUs of one compute capability need.

    gpus: names of models. branches: numbers of the driver branches that the facts let it work with, oldest
    first. reason: what decides where there is none.
    """

    capability: ComputeCapability
    gpus: tuple[str, ...]
    branches: tuple[int, ...]
    reason: Reason | None

    def as_json(self) -> dict[str, Any]:
        return {
            "compute_capability": str(self.capability),
            "gpus": list(self.gpus),
            "drivers": list(self.branches),
            "reason": asdict(self.reason) if self.reason else None,
        }


@dataclass(frozen=True)
class Needs:
    """An image spec on no machine in particular.

    pythons: those that the release has wheels for. driver: the oldest that runs its CUDA at all, None where
    that is not known. reasons: what the facts say of the image whatever the machine, the deciding first.
    """

    image: ImageSpec
    pythons: tuple[str, ...]
    cuda: str
    cudnn: str
    driver: DriverRelease | None
    gpus: tuple[GpuNeed, ...]
    reasons: tuple[Reason, ...]

    @property
    def fails(self) -> bool:
        """Whether it works on no machine."""
        return any(reason.outcome is Outcome.FAILS for reason in self.reasons)

    def as_json(self) -> dict[str, Any]:
        return {
            "image": self.image.identifier,
            "tensorflow": self.image.tensorflow,
            "python": self.image.python,
            "pythons": list(self.pythons),
            "cuda": self.cuda,
            "cudnn": self.cudnn,
            "driver": str(self.driver) if self.driver else None,
            "gpus": [need.as_json() for need in self.gpus],
            "reasons": [asdict(reason) for reason in self.reasons],
        }


def needs(image: ImageSpec) -> Needs:
    """What an image of the variant `gpu` needs. Raises UnknownRelease."""
    assert image.cuda is not None and image.cudnn is not None
    found = release(image.tensorflow)
    floor = drivers.minor_version(CudaVersion.parse(image.cuda.version).major)
    names: dict[ComputeCapability, list[str]] = {}
    for model in gpus.gpus():
        names.setdefault(model.compute_capability, []).append(model.name)
    return Needs(
        image=image,
        pythons=found.pythons,
        cuda=image.cuda.version,
        cudnn=policies.cudnn_version(found, image.cudnn),
        driver=floor.driver if floor else None,
        gpus=tuple(_of_gpu(image, capability, tuple(names[capability])) for capability in sorted(names)),
        reasons=of_image(image),
    )


def _of_gpu(image: ImageSpec, capability: ComputeCapability, models: tuple[str, ...]) -> GpuNeed:
    predictions = {
        branch.number: predict(Cell(image, _host(branch.number, capability))) for branch in drivers.branches()
    }
    works = tuple(number for number, found in predictions.items() if found.outcome is Outcome.WORKS)
    if works:
        return GpuNeed(capability, models, works, None)
    # The branch that comes nearest tells most: what is left against it is not the driver's age.
    nearest = min(reversed(predictions.values()), key=_against)
    return GpuNeed(capability, models, (), nearest.reasons[0])


def _against(prediction: Prediction) -> int:
    return sum(reason.outcome is Outcome.FAILS for reason in prediction.reasons)


def _host(branch: int, capability: ComputeCapability) -> HostClass:
    driver = DriverRelease.parse(str(branch))
    return HostClass(host_identifier(driver, None, capability), driver, capability)
