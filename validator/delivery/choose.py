"""Decide which images fit a host, which of two is better, and why. Pure functions.

A certificate covers a host when it was measured on the same driver branch and the same compute capability.
Releases of one branch differ only by fixes. Another branch has another compiler and another CUDA, and
another capability runs other machine code, so a measurement says nothing about them. A host with several
kinds of GPU is covered when each kind is covered. A certificate that was measured on such a host covers none
of them: the probe trains on one GPU, and the certificate does not say which.

A failure makes the image unfit for hosts with the same driver branch and GPU model, unless there is a newer
certificate for that host class, even if the image is certified on another model of the same capability.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from ..compat import policies
from ..compat.gpus import model_of
from ..compat.predict import predict
from ..compat.releases import Release
from ..compat.releases import release as find_release
from ..model.certificate import Certificate, Failure
from ..model.prediction import Limit, Outcome
from ..model.spec import AS_BUILT, LATEST, Cell, ImageSpec, Variant
from ..registry.names import identifier_of
from ..versions import ComputeCapability, DriverRelease, is_release_of, version_or_oldest
from .host import Host


class Standing(str, Enum):
    """The standing of an image on a host. Only `certified` rests on evidence."""

    CERTIFIED = "certified"
    PREDICTED = "predicted"
    UNFIT = "unfit"


@dataclass(frozen=True)
class TaggedImage:
    """An image as described by its tag.

    tensorflow, python: versions, such as `2.21.0` and `3.12`. cuda, cudnn: major.minor or `latest`; None for
    an image without CUDA. base: the base image, None for the default. additions: their name, None without.
    """

    tag: str
    tensorflow: str
    python: str
    cuda: str | None
    cudnn: str | None
    base: str | None = None
    additions: str | None = None

    @classmethod
    def of_tag(cls, tag: str) -> TaggedImage | None:
        """Parse a tag. Returns None for an alias and for a tag that this project did not set."""
        if identifier_of(tag) is None:
            return None
        described, _, additions = tag.partition("_")
        tensorflow, *rest = described.split("-")
        cuda = cudnn = None
        if rest[0] == "cpu":
            rest = rest[1:]
        else:
            cuda, cudnn, rest = rest[0].removeprefix("cuda"), rest[1].removeprefix("cudnn"), rest[2:]
        base = "-".join(rest[1:]) or None
        return cls(tag, tensorflow, rest[0].removeprefix("py"), cuda, cudnn, base, additions or None)

    @property
    def identifier(self) -> str:
        """The identifier of the image spec."""
        return str(identifier_of(self.tag))

    @property
    def floats(self) -> bool:
        """True if its CUDA or cuDNN depends on the day it was locked."""
        return LATEST in (self.cuda, self.cudnn)

    @property
    def kind(self) -> tuple[object, ...]:
        """Return the part of `preference` that comes before its limits: what people choose an image by."""
        tensorflow = version_or_oldest(self.tensorflow)
        return (
            not tensorflow.is_prerelease,
            tensorflow,
            self.base is None,
            not self.floats,
            version_or_oldest(self.python),
        )

    @property
    def preference(self) -> tuple[object, ...]:
        """Return a sort key; the better image has the greater one. `promote` orders `latest` the same way.

        If two images have one `kind`, one without limits on the host is better, whatever its preference.
        """
        return (
            *self.kind,
            version_or_oldest(self.cuda),
            version_or_oldest(self.cudnn),
            self.tag,
        )

    def is_of(self, tensorflow: str | None, python: str | None) -> bool:
        """Return True if it has this TensorFlow (`2.20`, `2.20.0`) and Python (`3.12`). None means any."""
        fits = tensorflow is None or is_release_of(self.tensorflow, tensorflow)
        return fits and python in (None, self.python)


@dataclass(frozen=True)
class Forecast:
    """The prediction for an image on a host, with the reason that decides it."""

    outcome: Outcome
    why: str


@dataclass(frozen=True)
class Candidate:
    """An image in a registry, with its certificates.

    digest: None if the image could not be read. certificates: the trusted ones, newest measurement first.
    problems: sentences that say what is wrong with the image, or why an attached certificate does not count.
    failures: for each host class on which the newest trusted statement says that the image failed.
    """

    image: TaggedImage
    digest: str | None
    certificates: tuple[Certificate, ...] = ()
    problems: tuple[str, ...] = ()
    failures: tuple[Failure, ...] = ()


@dataclass(frozen=True)
class Assessment:
    """An image with its standing on a host.

    why: one sentence. limits: those in the certificates that cover the host.
    """

    candidate: Candidate
    forecast: Forecast
    standing: Standing
    why: str
    limits: tuple[Limit, ...] = ()


def assess(candidate: Candidate, host: Host, forecast: Forecast) -> Assessment:
    """Return the assessment of an image on a host."""
    standing, why = _assess(candidate, host, forecast)
    return Assessment(candidate, forecast, standing, why, limits_of(covering(candidate, host)))


def best_first(assessed: Iterable[Assessment]) -> list[Assessment]:
    """Sort by standing (certified, predicted, unfit), then by preference; see there for limits."""
    order = list(Standing)[::-1]

    def rank(one: Assessment) -> tuple[object, ...]:
        image = one.candidate.image
        return order.index(one.standing), image.kind, not one.limits, image.preference

    return sorted(assessed, key=rank, reverse=True)


def limits_of(certificates: Iterable[Certificate]) -> tuple[Limit, ...]:
    """Return the limits of certificates, each once."""
    return tuple(dict.fromkeys(limit for one in certificates for limit in one.limits))


def covering(candidate: Candidate, host: Host) -> tuple[Certificate, ...]:
    """Return, for each kind of GPU of the host, the image's first certificate that covers it.

    The result is empty unless every kind is covered, and if the image failed on such a host.
    """
    if failed_here(candidate, host):
        return ()
    selected = []
    for capability in host.capabilities:
        first = next((one for one in candidate.certificates if _covers(one, host, capability)), None)
        if first is None:
            return ()
        selected.append(first)
    return tuple(dict.fromkeys(selected))


def failed_here(candidate: Candidate, host: Host) -> Failure | None:
    """Return the failure that makes an image unfit for a host, or None."""
    return next((one for one in candidate.failures if _is_like(one, host)), None)


def why_not_covered(candidate: Candidate, host: Host) -> str:
    """Return the reason why no certificate of an image covers a host."""
    if candidate.certificates and (failure := failed_here(candidate, host)):
        return failure.why
    if not candidate.certificates:
        # The reason for a rejected certificate is more helpful than saying that there is none.
        return "; ".join(candidate.problems) or "it is not signed: no certificate is attached to it"
    where = "; ".join(dict.fromkeys(_where(one) for one in candidate.certificates))
    here = ", ".join(f"{capability}" for capability in host.capabilities)
    return f"it is certified on {where}, and this host has driver branch {host.driver.branch} and {here}"


def measured_on(certificate: Certificate) -> str:
    """Return a phrase such as `NVIDIA H100 (9.0) with driver 580.65.06 on 2026-11-20`."""
    gpu = certificate.gpus[0]
    where = f"{gpu.name} ({gpu.compute_capability}) with driver {certificate.driver}"
    return f"{where} on {certificate.measured[:10]}"


def coverage(certificate: Certificate) -> str:
    """Return a sentence that says which hosts a certificate covers, and until when."""
    capability = certificate.gpus[0].compute_capability
    return (
        f"The certificate covers hosts with driver branch {certificate.driver_release.branch} and GPUs of"
        f" compute capability {capability}, until {certificate.expires[:10]}."
    )


def _assess(candidate: Candidate, host: Host, forecast: Forecast) -> tuple[Standing, str]:
    if candidate.image.cuda is None:
        return Standing.UNFIT, "it has no CUDA, so TensorFlow cannot use a GPU in it"
    evidence = covering(candidate, host)
    if failure := failed_here(candidate, host):
        return Standing.UNFIT, failure.why
    if candidate.digest is None or not candidate.certificates:
        return Standing.UNFIT, why_not_covered(candidate, host)
    if forecast.outcome is Outcome.FAILS:
        measured = f"it is certified ({_on(evidence)}), but " if evidence else ""
        return Standing.UNFIT, f"{measured}the facts predict that it fails here: {forecast.why}"
    if evidence:
        return Standing.CERTIFIED, f"certified for this host: measured on {_on(evidence)}"
    missing = why_not_covered(candidate, host)
    if forecast.outcome is Outcome.WORKS:
        return Standing.PREDICTED, f"predicted to work, but not certified for this host: {missing}"
    return Standing.UNFIT, f"it is not known to work here: {missing}; {forecast.why}"


def _covers(certificate: Certificate, host: Host, capability: ComputeCapability) -> bool:
    return certificate.driver_release.branch == host.driver.branch and {
        gpu.capability for gpu in certificate.gpus
    } == {capability}


def _is_like(failure: Failure, host: Host) -> bool:
    """Tell whether a failure happened on a host of this kind: the driver branch, and one of the GPU models.

    A GPU of the host whose model is not known is compared by its compute capability.
    """
    if failure.host_class in host.identifiers:
        return True
    if failure.driver is None or DriverRelease.parse(failure.driver).branch != host.driver.branch:
        return False
    return any(
        gpu.capability == failed.capability
        and (gpu.name is None or model_of(gpu.name) == model_of(failed.name))
        for gpu in host.gpus
        for failed in failure.gpus
    )


def _on(certificates: Sequence[Certificate]) -> str:
    return "; ".join(map(measured_on, certificates))


def _where(certificate: Certificate) -> str:
    capabilities = sorted({gpu.capability for gpu in certificate.gpus})
    mixed = " together" if len(capabilities) > 1 else ""
    return f"driver {certificate.driver} with compute capability {', '.join(map(str, capabilities))}{mixed}"


_WORST_FIRST = (Outcome.FAILS, Outcome.UNKNOWN, Outcome.WORKS)


def forecast(image: TaggedImage, certificates: Sequence[Certificate], host: Host) -> Forecast:
    """Return the worst prediction over all kinds of GPU of the host.

    certificates: those of the image. They say which versions `latest` meant when the image was built.
    """
    try:
        spec = _spec(image)
        wheels = _wheels(certificates) if image.floats else None
        predictions = [predict(Cell(spec, one), wheels) for one in host.classes]
    except ValueError as error:
        return Forecast(Outcome.UNKNOWN, f"the facts don't cover this image: {error}")
    worst = min(predictions, key=lambda prediction: _WORST_FIRST.index(prediction.outcome))
    return Forecast(worst.outcome, worst.reasons[0].text)


def _spec(image: TaggedImage) -> ImageSpec:
    """Return the image spec. Raises ValueError for releases and versions that the facts do not know."""
    if image.cuda is None or image.cudnn is None:
        return ImageSpec(image.tensorflow, image.python, Variant.CPU, base=image.base)
    release = find_release(image.tensorflow)
    cuda, cudnn = policies.choose(
        release,
        _policy(image.cuda, release, policies.CUDA),
        _policy(image.cudnn, release, policies.CUDNN),
        within_metadata=False,
    )
    return ImageSpec(image.tensorflow, image.python, Variant.GPU, cuda, cudnn, image.base)


def _policy(label: str, release: Release, axis: str) -> str:
    built = release.cuda if axis == policies.CUDA else release.cudnn
    return AS_BUILT if label == built else label


def _wheels(certificates: Sequence[Certificate]) -> Mapping[str, str] | None:
    """Return the versions that the newest certificate says are in the image."""
    if not certificates:
        return None
    return {"nvidia-cuda-runtime": certificates[0].cuda, "nvidia-cudnn": certificates[0].cudnn}
