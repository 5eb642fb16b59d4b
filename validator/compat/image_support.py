"""Find the machines that an image supports: for each GPU the driver branches that run it, or why none does.

This summarises predictions: every cell of the image with a known GPU and a known driver branch is predicted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, TypedDict

from ..model.prediction import Outcome, Prediction, Reason
from ..model.situation import EAGER, XLA
from ..model.spec import Cell, HostClass, ImageSpec, host_identifier
from ..versions import ComputeCapability, CudaVersion, DriverRelease
from . import drivers, gpus, policies
from .predict import of_image, on_some_gpus, predict
from .releases import release


class GpuSupportDocument(TypedDict):
    """The drivers for the GPUs of one compute capability, as JSON."""

    compute_capability: Annotated[str, "Such as `9.0`."]
    gpus: Annotated[list[str], "Names of models."]
    drivers: Annotated[
        list[int],
        "The driver branches, oldest first, for which the facts predict that both eager operations and XLA"
        " work, or the one mode that was asked about.",
    ]
    eager_drivers: Annotated[
        list[int],
        "The driver branches for which eager operations are predicted to work, with or without XLA; empty if"
        " only XLA was asked about.",
    ]
    reason: Annotated[
        dict[str, Any] | None,
        "If `drivers` is empty, the deciding reason, in the same form as in a prediction.",
    ]


class SupportDocument(TypedDict):
    """What a release needs, as JSON."""

    image: Annotated[str, "The identifier of the image spec."]
    tensorflow: Annotated[str, "The release."]
    python: Annotated[str, "The version."]
    pythons: Annotated[list[str], "The Pythons that the release has wheels for."]
    cuda: Annotated[str, "The major and minor version."]
    cudnn: Annotated[str, "The full version."]
    driver: Annotated[str | None, "The oldest release that runs that CUDA at all; null if it is not known."]
    gpus: Annotated[
        list[GpuSupportDocument],
        "One entry for each compute capability; the fields of each are below.",
    ]
    mode: Annotated[str | None, "`eager` or `xla` if only that one was asked about; null for both."]
    reasons: Annotated[
        list[dict[str, Any]],
        "The reasons that hold on every machine, as in a prediction.",
    ]


@dataclass(frozen=True)
class GpuSupport:
    """The drivers for the GPUs of one compute capability.

    gpus: names of models. branches: numbers of the driver branches for which `works` is predicted, oldest
    first. eager: those for which it is predicted at least for eager operations, if these were asked about.
    reason: the deciding reason if `branches` is empty.
    """

    capability: ComputeCapability
    gpus: tuple[str, ...]
    branches: tuple[int, ...]
    eager: tuple[int, ...]
    reason: Reason | None

    def as_json(self) -> GpuSupportDocument:
        return {
            "compute_capability": str(self.capability),
            "gpus": list(self.gpus),
            "drivers": list(self.branches),
            "eager_drivers": list(self.eager),
            "reason": asdict(self.reason) if self.reason else None,
        }


@dataclass(frozen=True)
class ImageSupport:
    """The machines that an image supports.

    pythons: those that the release has wheels for. driver: the oldest that runs its CUDA, None if that is not
    known.
    mode: `eager` or `xla` if only one of them was asked about. reasons: those that hold on every machine, the
    deciding ones first.
    """

    image: ImageSpec
    pythons: tuple[str, ...]
    cuda: str
    cudnn: str
    driver: DriverRelease | None
    gpus: tuple[GpuSupport, ...]
    mode: str | None
    reasons: tuple[Reason, ...]

    @property
    def fails(self) -> bool:
        """True if it works on no machine."""
        return any(reason.outcome is Outcome.FAILS for reason in self.reasons)

    def as_json(self) -> SupportDocument:
        return {
            "image": self.image.identifier,
            "tensorflow": self.image.tensorflow,
            "python": self.image.python,
            "pythons": list(self.pythons),
            "cuda": self.cuda,
            "cudnn": self.cudnn,
            "driver": str(self.driver) if self.driver else None,
            "gpus": [gpu.as_json() for gpu in self.gpus],
            "mode": self.mode,
            "reasons": [asdict(reason) for reason in self.reasons],
        }


def image_support(image: ImageSpec, mode: str | None = None) -> ImageSupport:
    """Return the machines that an image of the variant `gpu` supports. Raises UnknownRelease.

    mode: `eager` or `xla` to ask only about this one.
    """
    assert image.cuda is not None and image.cudnn is not None
    found = release(image.tensorflow)
    floor = drivers.minor_version(CudaVersion.parse(image.cuda.version).major)
    names: dict[ComputeCapability, list[str]] = {}
    for model in gpus.gpus():
        # Jetson needs another build of TensorFlow.
        if model.kind == gpus.EMBEDDED:
            continue
        names.setdefault(model.compute_capability, []).append(model.name)
    return ImageSupport(
        image=image,
        pythons=found.pythons,
        cuda=image.cuda.version,
        cudnn=policies.cudnn_version(found, image.cudnn),
        driver=floor.driver if floor else None,
        gpus=tuple(
            _gpu_support(image, capability, tuple(names[capability]), mode) for capability in sorted(names)
        ),
        mode=mode,
        reasons=tuple(_about(mode, (*of_image(image), *on_some_gpus(image)))),
    )


def _gpu_support(
    image: ImageSpec, capability: ComputeCapability, models: tuple[str, ...], mode: str | None
) -> GpuSupport:
    predictions = {
        branch.number: predict(Cell(image, _host(branch.number, capability))) for branch in drivers.branches()
    }
    works = _working(predictions, mode)
    eager = () if mode == XLA else _working(predictions, EAGER)
    if works:
        return GpuSupport(capability, models, works, eager, None)
    assert image.cuda is not None
    impossible = drivers.no_branch_for(capability, CudaVersion.parse(image.cuda.version))
    if impossible is not None:
        return GpuSupport(capability, models, (), eager, impossible)
    # The branch with the fewest failing reasons explains most, because its driver is not too old.
    about = [tuple(_about(mode, found.reasons)) for found in reversed(predictions.values())]
    return GpuSupport(capability, models, (), eager, min(about, key=_failing_reasons)[0])


def _working(predictions: Mapping[int, Prediction], mode: str | None) -> tuple[int, ...]:
    """Return the branches for which `works` is predicted. mode: None for both together."""
    return tuple(
        number
        for number, found in predictions.items()
        if (found.outcome if mode is None else getattr(found, mode)) is Outcome.WORKS
    )


def _about(mode: str | None, reasons: Iterable[Reason]) -> Iterator[Reason]:
    """Yield the reasons without those that are only about the other mode."""
    return (reason for reason in reasons if mode is None or reason.mode in (None, mode))


def _failing_reasons(reasons: Sequence[Reason]) -> int:
    return sum(reason.outcome is Outcome.FAILS for reason in reasons)


def _host(branch: int, capability: ComputeCapability) -> HostClass:
    driver = DriverRelease.parse(str(branch))
    return HostClass(host_identifier(driver, None, capability), driver, capability)
