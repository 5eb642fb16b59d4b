"""Predict a cell: read the software of its image and its host class as facts, and judge them."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

from ..errors import InputError
from ..model.prediction import (
    EAGER,
    LINUX,
    NGC,
    PYPI,
    X86_64,
    XLA,
    Host,
    Outcome,
    Prediction,
    Reason,
    Software,
)
from ..model.spec import NO_GPU, Cell, HostClass, ImageSpec, host_identifier
from ..versions import ComputeCapability, CudaVersion, DriverRelease, leading_numbers, release_range
from . import facts, hardware, judge, known_issues, policies
from .judge import judge_host, judge_software
from .releases import Release, newest, release_of_any_age
from .releases import release as find_release

#: The wheels of a lock whose versions the rules use, without the -cuNN suffix.
_USED_WHEELS = ("numpy", "nvidia-cuda-nvcc", "nvidia-cuda-runtime", "nvidia-cudnn")
#: The host of an image for which no machine is chosen: images of this project are for Linux x86_64.
ANY_HOST = Host(system=LINUX, machine=X86_64)
_WITHOUT_GPU = replace(ANY_HOST, gpu=NO_GPU)


def predict(cell: Cell, wheels: Mapping[str, str] | None = None) -> Prediction:
    """Predict a cell. A cpu image is meant for the CPU, whatever the host has.

    wheels: the versions in its lock by wheel name, so that a floating choice is predicted for these versions.
    Without a lock, it is predicted for the newest versions that the facts know. Raises UnknownRelease for a
    TensorFlow that the facts do not know, and ValueError for a CUDA that is not a version.
    """
    image = cell.image
    software = judge_software(software_of(image, wheels), ANY_HOST)
    return judge.judge_both(software, judge_host(host_of(cell.host) if image.cuda else _WITHOUT_GPU))


def software_of(image: ImageSpec, wheels: Mapping[str, str] | None = None) -> Software:
    """Return the software of an image. wheels: as for `predict`. Raises UnknownRelease."""
    # Images with different bases and additions have the same software.
    plain = ImageSpec(image.tensorflow, image.python, image.variant, image.cuda, image.cudnn)
    return _software_of(plain, _used_wheels(wheels))


@functools.lru_cache(maxsize=8192)
def host_of(host: HostClass) -> Host:
    if not host.has_gpu:
        return _WITHOUT_GPU
    return Host(
        driver=str(host.driver),
        gpu=host.gpu,
        capability=str(host.compute_capability),
        system=LINUX,
        machine=X86_64,
        compat=host.compat,
    )


def of_image(image: ImageSpec, wheels: Mapping[str, str] | None = None) -> tuple[Reason, ...]:
    """Return the reasons that hold for an image on every host, those that decide first."""
    return judge.of_software(software_of(image, wheels), ANY_HOST)


@functools.lru_cache(maxsize=8192)
def _software_of(image: ImageSpec, locked: tuple[tuple[str, str], ...]) -> Software:
    release, cuda, cudnn = find_release(image.tensorflow), image.cuda, image.cudnn
    software = Software(
        image.tensorflow,
        image.python,
        wheel=PYPI,
        variant=image.variant.value,
        extra=False,
        library_path=True,
    )
    if cuda is None or cudnn is None:
        return software
    installed = dict(locked)
    for name, version in policies.loaded_packages(release, cudnn, cuda).items():
        installed.setdefault(name, version)
    return replace(
        software,
        cuda=str(CudaVersion.parse(installed.get("nvidia-cuda-runtime") or cuda.version)),
        cudnn=installed["nvidia-cudnn"],
        extra=cuda.floats or cudnn.floats,
        packages=tuple(installed.items()),
    )


def beside(usual: Software, given: Mapping[str, str]) -> Software:
    """Return software with these versions by full name. A framework among them decides which cuDNN pip
    installs, if it pins one that the release's extra allows.
    """
    packages, cudnn = usual.versions, usual.cudnn
    if any(name in given for name in known_issues.with_cudnn()):
        packages.pop("nvidia-cudnn", None)
        release = release_of_any_age(usual.tensorflow or "")
        if usual.extra and release is not None and release.extra_style == "range":
            cudnn = known_issues.required_cudnn(release, given) or cudnn
    return replace(usual, cudnn=cudnn, packages=tuple({**packages, **given}.items()))


def newest_python(release: Release, extra: bool | None) -> str:
    """Return the newest Python for which pip can install a release, or else the newest with a wheel."""
    for python in reversed(release.pythons):
        reasons = judge.of_software(Software(release.version, python, extra=extra, wheel=PYPI), ANY_HOST)
        if all(reason.outcome is not Outcome.FAILS for reason in reasons):
            return python
    return release.pythons[-1]


def _used_wheels(wheels: Mapping[str, str] | None) -> tuple[tuple[str, str], ...]:
    """Return (name without suffix, version) of wheels that rules use; several cuDNNs with suffix first."""
    if not wheels:
        return ()
    cudnns = [(name, version) for name, version in wheels.items() if name.startswith("nvidia-cudnn-cu")]
    return (
        *(cudnns if len(cudnns) > 1 else ()),
        *(
            (name, version)
            for name in (*_USED_WHEELS, *known_issues.framework_packages())
            for spelled in (name, f"{name}-cu11", f"{name}-cu12")
            if (version := wheels.get(spelled))
        ),
    )


# What is in official images with TensorFlow or CUDA, by their names.

_REFERENCE = re.compile(
    r"(?:docker\.io/|index\.docker\.io/)?(?P<name>tensorflow/tensorflow|nvcr\.io/nvidia/tensorflow)"
    r"(?::(?P<tag>[\w.-]+))?(?:@[\w.+-]+:[0-9a-f]+)?"
)
_TAG = re.compile(
    r"(?P<version>[0-9]{1,4}(?:\.[0-9]{1,4}){2}(?:(?:a|b|rc)[0-9]{1,4})?(?:\.post[0-9]{1,4})?|latest)"
    r"(?P<variants>(?:-(?:gpu|jupyter|py3))*)"
)


def software_in(reference: str) -> Software | None:
    """Return the software of an official TensorFlow image; None for the name of any other image.

    Raises InputError for an official image without CUDA, and for a tag whose contents the facts don't have.
    """
    match = _REFERENCE.fullmatch(reference)
    if match is None:
        return None
    if match["name"].startswith("nvcr.io/"):
        rows, wanted = facts.rows("base_images", "ngc"), match["tag"] or ""
        row = next((row for row in rows if row["tag"] == wanted), None)
        if row is None:
            raise InputError(
                f"it is not known what is in nvcr.io/nvidia/tensorflow:{wanted or 'latest'}",
                hint=f"the facts have {', '.join(row['tag'] for row in rows)}; for another tag, give"
                " --tensorflow, --cuda, --cudnn and --wheel ngc, as its release notes say",
            )
        contents = (row["tensorflow"], row["python"], row["cuda"], row.get("cudnn"))
        return Software(*contents, wheel=NGC, library_path=True)
    tag = _TAG.fullmatch(match["tag"] or "latest")
    if tag is None:
        raise InputError(
            f"it is not known which TensorFlow is in {reference}",
            hint="name a tag with a release, such as 2.17.0-gpu, or give --tensorflow, --cuda and --cudnn",
        )
    if "-gpu" not in tag["variants"]:
        raise InputError(
            f"{reference} has no CUDA, so it uses no GPU",
            hint=f"its variant for GPUs is {match['name']}:{tag['version']}-gpu{tag['variants']}",
        )
    version = newest().version if tag["version"] == "latest" else tag["version"]
    for row in facts.rows("base_images", "tensorflow"):
        if release_range(row["releases"]).contains(version):
            return Software(version, row["python"], row["cuda"], row["cudnn"], PYPI, library_path=True)
    # The Dockerfiles of older releases install what the release was tested with.
    built = release_of_any_age(version)
    cuda, cudnn = (built.cuda, built.cudnn) if built else (None, None)
    return Software(version, None, cuda, cudnn, PYPI, library_path=True)


def cudnn_of_image(cuda: str, tag: str) -> str:
    """Return the version of cuDNN in an image of nvidia/cuda, or an empty string if it is not known.

    Return only the major version (`8`) if the facts don't have this image but its tag names it.
    cuda: the release of CUDA in its tag (`12.4.1`). tag: the part that asks for cuDNN (`cudnn`, `cudnn8`).
    """
    for row in facts.rows("base_images", "images"):
        if cuda in row["cuda"] and tag == row["tag"]:
            version: str = row["cudnn"]
            return version
    return tag.removeprefix("cudnn")


def image_with(cuda: str, cudnn: str) -> str:
    """Return the oldest known image of nvidia/cuda with these versions, or newer ones of the same majors.

    Return an empty string if the facts have none.
    """
    for row in facts.rows("base_images", "images"):
        last = row["cuda"][-1]
        if all(
            leading_numbers(has)[:1] == leading_numbers(needs)[:1]
            and leading_numbers(has) >= leading_numbers(needs)
            for has, needs in ((last, cuda), (row["cudnn"], cudnn))
        ):
            return f"nvidia/cuda:{last}-{row['tag']}-runtime-ubuntu22.04"
    return ""


# Find the machines that an image supports: for each GPU the driver branches that run it, or why none does.
# GPUs of one compute capability are one row, except models about which a fact says something else by name.


@dataclass(frozen=True)
class GpuSupport:
    """The drivers for GPUs of one compute capability.

    label: the compute capability, with more if models of one differ; not in the JSON.
    """

    label: str
    compute_capability: Annotated[str, "Such as `9.0`."]
    gpus: Annotated[tuple[str, ...], "Names of models."]
    drivers: Annotated[
        tuple[int, ...],
        "The driver branches, oldest first, for which the facts predict that both eager operations and XLA"
        " work, or the one mode that was asked about.",
    ]
    eager_drivers: Annotated[
        tuple[int, ...],
        "The driver branches for which eager operations are predicted to work, with or without XLA; empty if"
        " only XLA was asked about.",
    ]
    reason: Annotated[
        Reason | None, "If `drivers` is empty, the deciding reason, in the same form as in a prediction."
    ]
    instead: Annotated[
        str | None, "The CUDA and cuDNN for the drivers if none works with those of `image`; otherwise null."
    ] = None


@dataclass(frozen=True)
class ImageSupport:
    """The machines that an image supports: what a release needs."""

    image: Annotated[str, "The identifier of the image spec."]
    tensorflow: Annotated[str, "The release."]
    python: Annotated[str, "The version."]
    pythons: Annotated[tuple[str, ...], "The Pythons that the release has wheels for."]
    cuda: Annotated[str, "The major and minor version."]
    cudnn: Annotated[str, "The full version."]
    driver: Annotated[str | None, "The oldest release that runs that CUDA at all; null if it is not known."]
    gpus: Annotated[
        tuple[GpuSupport, ...],
        "One entry for each compute capability, and more for models to which a special fact applies; the"
        " fields of each are below.",
    ]
    mode: Annotated[str | None, "`eager` or `xla` if only that one was asked about; null for both."]
    reasons: Annotated[tuple[Reason, ...], "The reasons that hold on every machine, as in a prediction."]

    @property
    def fails(self) -> bool:
        return any(reason.outcome is Outcome.FAILS for reason in self.reasons)

    def as_json(self) -> dict[str, Any]:
        found = asdict(self)
        for gpu in found["gpus"]:
            del gpu["label"]
        return found


def image_support(
    image: ImageSpec, mode: str | None = None, instead: ImageSpec | None = None
) -> ImageSupport:
    """Return what a `gpu` image supports. mode: only `eager` or `xla`; None: both. Raises UnknownRelease.

    instead: another image of the release, for GPUs on which only that one works.
    """
    assert image.cuda is not None and image.cudnn is not None
    found = find_release(image.tensorflow)
    floor = hardware.minor_version(CudaVersion.parse(image.cuda.version).major)
    return ImageSupport(
        image=image.identifier,
        tensorflow=image.tensorflow,
        python=image.python,
        pythons=found.pythons,
        cuda=image.cuda.version,
        cudnn=policies.cudnn_version(found, image.cudnn),
        driver=str(floor.driver) if floor else None,
        gpus=tuple(_rows(image, mode, instead)),
        mode=mode,
        reasons=tuple(_about(mode, of_image(image))),
    )


def _rows(image: ImageSpec, mode: str | None, instead: ImageSpec | None) -> Iterator[GpuSupport]:
    """Yield the support of each compute capability, followed by that of models that a fact names."""
    installed = judge_software(software_of(image), ANY_HOST)

    def known(capability: ComputeCapability, slug: str | None) -> tuple[Reason, ...]:
        found = known_issues.on_gpu(installed.combinations, installed.values, capability, slug)
        return tuple(_about(mode, found))

    groups: dict[ComputeCapability, dict[tuple[Reason, ...], list[hardware.Gpu]]] = {}
    for model in hardware.gpus():
        # A processor of another architecture needs another build of TensorFlow.
        if model.machine is None:
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
                found = _gpu_support(image, capability, slug, label, names, mode)
                if found.reason is not None and instead is not None and instead.cuda and instead.cudnn:
                    other = _gpu_support(instead, capability, slug, label, names, mode)
                    if other.drivers or (other.eager_drivers and not found.eager_drivers):
                        versions = f"CUDA {instead.cuda.version} and cuDNN {instead.cudnn.version}"
                        found = replace(other, instead=versions)
                yield found


def _gpu_support(
    image: ImageSpec,
    capability: ComputeCapability,
    slug: str | None,
    label: str,
    models: tuple[str, ...],
    mode: str | None,
) -> GpuSupport:
    predictions = {}
    for branch in hardware.branches():
        driver = DriverRelease.parse(str(branch.number))
        host = HostClass(host_identifier(driver, slug, capability), driver, capability, slug)
        predictions[branch.number] = predict(Cell(image, host))
    works = _working(predictions, mode)
    eager = () if mode == XLA else _working(predictions, EAGER)
    reason = None
    if not works:
        assert image.cuda is not None
        # The branch with the fewest failing reasons explains most, because its driver is not too old.
        about = [tuple(_about(mode, found.reasons)) for found in reversed(predictions.values())]
        fewest = min(about, key=lambda reasons: sum(one.outcome is Outcome.FAILS for one in reasons))
        toolkit = CudaVersion.parse(image.cuda.version)
        reason = hardware.no_branch_for(capability, toolkit) or fewest[0]
    return GpuSupport(label, str(capability), models, works, eager, reason)


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
