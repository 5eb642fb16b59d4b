"""Find the machines that an image supports: for each GPU the driver branches that run it, or why none does.

This summarises predictions: every cell of the image with a known GPU and a known driver branch is predicted.
GPUs of one compute capability are one row, except models about which a fact says something else by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, TypedDict

from ..model.prediction import Outcome, Prediction, Reason
from ..model.situation import EAGER, XLA
from ..model.spec import Cell, HostClass, ImageSpec, host_identifier
from ..versions import ComputeCapability, CudaVersion, DriverRelease
from . import drivers, gpus, known_issues, policies
from .predict import ANY_HOST, of_image, predict, software_of
from .releases import release
from .software import judge_software


class GpuSupportDocument(TypedDict):
    """The drivers for GPUs of one compute capability, as JSON."""

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
        "One entry for each compute capability, and more for models about which a fact says something else;"
        " the fields of each are below.",
    ]
    mode: Annotated[str | None, "`eager` or `xla` if only that one was asked about; null for both."]
    reasons: Annotated[
        list[dict[str, Any]],
        "The reasons that hold on every machine, as in a prediction.",
    ]


@dataclass(frozen=True)
class GpuSupport:
    """The drivers for GPUs of one compute capability.

    label: the compute capability, with more if models of one differ. gpus: names of models. branches: numbers
    of the driver branches for which `works` is predicted, oldest first. eager: those for which it is
    predicted at least for eager operations, if these were asked about. reason: the deciding reason if
    `branches` is empty.
    """

    capability: ComputeCapability
    label: str
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
    return ImageSupport(
        image=image,
        pythons=found.pythons,
        cuda=image.cuda.version,
        cudnn=policies.cudnn_version(found, image.cudnn),
        driver=floor.driver if floor else None,
        gpus=tuple(_rows(image, mode)),
        mode=mode,
        reasons=tuple(_about(mode, of_image(image))),
    )


def _rows(image: ImageSpec, mode: str | None) -> Iterator[GpuSupport]:
    """Yield the support of each compute capability, followed by that of models that a fact names."""
    installed = judge_software(software_of(image), ANY_HOST)

    def known(capability: ComputeCapability, slug: str | None) -> tuple[Reason, ...]:
        found = known_issues.on_gpu(installed.combinations, installed.values, capability, slug)
        return tuple(_about(mode, found))

    groups: dict[ComputeCapability, dict[tuple[Reason, ...], list[gpus.Gpu]]] = {}
    for model in gpus.gpus():
        # Jetson needs another build of TensorFlow.
        if model.kind != gpus.EMBEDDED:
            capability = model.compute_capability
            group = groups.setdefault(capability, {known(capability, None): []})
            group.setdefault(known(capability, model.slug), []).append(model)
    for capability, group in sorted(groups.items(), key=lambda one: one[0]):
        usual = known(capability, None)
        for reasons, models in group.items():
            if models:
                names = tuple(model.name for model in models)
                others = "other GPUs" if reasons == usual else ", ".join(names)
                label = f"{capability}, {others}" if len(group) > 1 else str(capability)
                slug = None if reasons == usual else models[0].slug
                yield _gpu_support(image, capability, slug, label, names, mode)


def _gpu_support(
    image: ImageSpec,
    capability: ComputeCapability,
    slug: str | None,
    label: str,
    models: tuple[str, ...],
    mode: str | None,
) -> GpuSupport:
    predictions = {
        branch.number: predict(Cell(image, _host(branch.number, capability, slug)))
        for branch in drivers.branches()
    }
    works = _working(predictions, mode)
    eager = () if mode == XLA else _working(predictions, EAGER)
    if works:
        return GpuSupport(capability, label, models, works, eager, None)
    assert image.cuda is not None
    impossible = drivers.no_branch_for(capability, CudaVersion.parse(image.cuda.version))
    if impossible is not None:
        return GpuSupport(capability, label, models, (), eager, impossible)
    # The branch with the fewest failing reasons explains most, because its driver is not too old.
    about = [tuple(_about(mode, found.reasons)) for found in reversed(predictions.values())]
    fewest = min(about, key=lambda reasons: sum(reason.outcome is Outcome.FAILS for reason in reasons))
    return GpuSupport(capability, label, models, (), eager, fewest[0])


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


def _host(branch: int, capability: ComputeCapability, slug: str | None) -> HostClass:
    driver = DriverRelease.parse(str(branch))
    return HostClass(host_identifier(driver, slug, capability), driver, capability, slug)
