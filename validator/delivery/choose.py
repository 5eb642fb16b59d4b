"""Which image fits a host, which is the better of two, and why: pure rules over values.

A certificate covers a host when its driver is of the same branch and its GPU of the very compute capability.
Releases of a branch differ by corrections; another branch brings another compiler and another CUDA, and
another capability other machine code, so nothing was measured for them. A host with GPUs of several kinds is
covered when each kind is. The certificate of such a host covers none: the probe trains on one GPU, and the
certificate does not say on which.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from ..compat import policies
from ..compat.predict import predict
from ..compat.releases import Release
from ..compat.releases import release as find_release
from ..model.certificate import Certificate
from ..model.prediction import Outcome
from ..model.spec import AS_BUILT, LATEST, Cell, ImageSpec, Variant
from ..registry.names import identifier_of
from ..versions import ComputeCapability, is_release_of, version_or_oldest
from .host import Host


class Standing(str, Enum):
    """What an image is for a host. Only `certified` is evidence."""

    CERTIFIED = "certified"
    PREDICTED = "predicted"
    UNFIT = "unfit"


@dataclass(frozen=True)
class Offer:
    """An image as its tag names it.

    tensorflow, python: versions, `2.21.0` and `3.12`. cuda, cudnn: major.minor or `latest`; None without
        CUDA.
    base: a base image, None for the default.
    """

    tag: str
    tensorflow: str
    python: str
    cuda: str | None
    cudnn: str | None
    base: str | None = None

    @classmethod
    def of_tag(cls, tag: str) -> Offer | None:
        """None for an alias or a tag that somebody else set."""
        if identifier_of(tag) is None:
            return None
        tensorflow, *rest = tag.split("-")
        cuda = cudnn = None
        if rest[0] == "cpu":
            rest = rest[1:]
        else:
            cuda, cudnn, rest = rest[0].removeprefix("cuda"), rest[1].removeprefix("cudnn"), rest[2:]
        return cls(tag, tensorflow, rest[0].removeprefix("py"), cuda, cudnn, "-".join(rest[1:]) or None)

    @property
    def identifier(self) -> str:
        """Of the image spec."""
        return str(identifier_of(self.tag))

    @property
    def floats(self) -> bool:
        """Whether its CUDA or cuDNN depends on the day it was locked."""
        return LATEST in (self.cuda, self.cudnn)

    @property
    def preference(self) -> tuple[object, ...]:
        """What the better of two images has more of: as `promote` moves `latest`, pre-releases last."""
        tensorflow = version_or_oldest(self.tensorflow)
        return (
            not tensorflow.is_prerelease,
            tensorflow,
            self.base is None,
            not self.floats,
            version_or_oldest(self.python),
            version_or_oldest(self.cuda),
            version_or_oldest(self.cudnn),
            self.tag,
        )

    def is_of(self, tensorflow: str | None, python: str | None) -> bool:
        """Whether it has that TensorFlow (`2.20`, `2.20.0`) and that Python (`3.12`); None: any."""
        fits = tensorflow is None or is_release_of(self.tensorflow, tensorflow)
        return fits and python in (None, self.python)


@dataclass(frozen=True)
class Expected:
    """What the facts say of an image on a host."""

    outcome: Outcome
    why: str


@dataclass(frozen=True)
class Found:
    """What a registry holds under a tag.

    digest: None where there is no image to look at. certificates: those that count, newest measurement first.
    against: what else is attached, or what is wrong with the image; sentences.
    """

    offer: Offer
    digest: str | None
    certificates: tuple[Certificate, ...] = ()
    against: tuple[str, ...] = ()


@dataclass(frozen=True)
class Assessed:
    """An image on a host. why: one sentence."""

    found: Found
    expected: Expected
    standing: Standing
    why: str


def assess(found: Found, host: Host, expected: Expected) -> Assessed:
    """What an image is for a host."""
    standing, why = _assess(found, host, expected)
    return Assessed(found, expected, standing, why)


def ranked(assessed: Iterable[Assessed]) -> list[Assessed]:
    """What is certified for the host, what is predicted to work, the rest; each with the better one first."""
    order = list(Standing)[::-1]
    return sorted(
        assessed, key=lambda one: (order.index(one.standing), one.found.offer.preference), reverse=True
    )


def covering(certificates: Sequence[Certificate], host: Host) -> tuple[Certificate, ...]:
    """For each kind of GPU of the host the first certificate that covers it; empty unless all are covered."""
    taken = []
    for capability in host.capabilities:
        first = next((one for one in certificates if _covers(one, host, capability)), None)
        if first is None:
            return ()
        taken.append(first)
    return tuple(dict.fromkeys(taken))


def uncovered(found: Found, host: Host) -> str:
    """Why no certificate of an image covers a host."""
    if not found.certificates:
        # What is attached and does not count says more than that nothing does.
        return "; ".join(found.against) or "it is not signed: no certificate is attached to it"
    where = "; ".join(dict.fromkeys(_where(one) for one in found.certificates))
    here = ", ".join(f"{capability}" for capability in host.capabilities)
    return f"it is certified on {where}, and this host has driver branch {host.driver.branch} and {here}"


def measured_on(certificate: Certificate) -> str:
    """`NVIDIA H100 (9.0) with driver 580.65.06 on 2026-11-20`."""
    gpu = certificate.gpus[0]
    where = f"{gpu.name} ({gpu.compute_capability}) with driver {certificate.driver}"
    return f"{where} on {certificate.measured[:10]}"


def _assess(found: Found, host: Host, expected: Expected) -> tuple[Standing, str]:
    if found.offer.cuda is None:
        return Standing.UNFIT, "it holds no CUDA: TensorFlow uses no GPU in it"
    evidence = covering(found.certificates, host)
    if found.digest is None or not found.certificates:
        return Standing.UNFIT, uncovered(found, host)
    if expected.outcome is Outcome.FAILS:
        measured = f"it is certified ({_on(evidence)}), yet " if evidence else ""
        return Standing.UNFIT, f"{measured}the facts say that it fails here: {expected.why}"
    if evidence:
        return Standing.CERTIFIED, f"certified for this host: measured on {_on(evidence)}"
    if expected.outcome is Outcome.WORKS:
        return Standing.PREDICTED, f"predicted, not certified for this host: {uncovered(found, host)}"
    return Standing.UNFIT, f"nothing says that it works here: {uncovered(found, host)}; {expected.why}"


def _covers(certificate: Certificate, host: Host, capability: ComputeCapability) -> bool:
    return certificate.driver_release.branch == host.driver.branch and {
        gpu.capability for gpu in certificate.gpus
    } == {capability}


def _on(certificates: Sequence[Certificate]) -> str:
    return "; ".join(map(measured_on, certificates))


def _where(certificate: Certificate) -> str:
    capabilities = sorted({gpu.capability for gpu in certificate.gpus})
    mixed = " together" if len(capabilities) > 1 else ""
    return f"driver {certificate.driver} with compute capability {', '.join(map(str, capabilities))}{mixed}"


# What the compatibility facts say of an image on a host with one or several kinds of GPU.

_WORST_FIRST = (Outcome.FAILS, Outcome.UNKNOWN, Outcome.WORKS)


def expected(offer: Offer, certificates: Sequence[Certificate], host: Host) -> Expected:
    """The worst that is predicted for any kind of GPU of the host.

    certificates: of the image; what `latest` was when it was built stands in them.
    """
    try:
        spec = _spec(offer)
        wheels = _wheels(certificates) if offer.floats else None
        predictions = [predict(Cell(spec, one), wheels) for one in host.classes]
    except ValueError as error:
        return Expected(Outcome.UNKNOWN, f"the facts don't know this image: {error}")
    worst = min(predictions, key=lambda prediction: _WORST_FIRST.index(prediction.outcome))
    return Expected(worst.outcome, worst.reasons[0].text)


def _spec(offer: Offer) -> ImageSpec:
    """Raises ValueError for releases and versions that the facts don't have."""
    if offer.cuda is None or offer.cudnn is None:
        return ImageSpec(offer.tensorflow, offer.python, Variant.CPU, base=offer.base)
    release = find_release(offer.tensorflow)
    cuda, cudnn = policies.choose(
        release,
        _policy(offer.cuda, release, policies.CUDA),
        _policy(offer.cudnn, release, policies.CUDNN),
        within_metadata=False,
    )
    return ImageSpec(offer.tensorflow, offer.python, Variant.GPU, cuda, cudnn, offer.base)


def _policy(label: str, release: Release, axis: str) -> str:
    built = release.cuda if axis == policies.CUDA else release.cudnn
    return AS_BUILT if label == built else label


def _wheels(certificates: Sequence[Certificate]) -> Mapping[str, str] | None:
    """As far as a certificate tells what is in the image."""
    if not certificates:
        return None
    return {"nvidia-cuda-runtime": certificates[0].cuda, "nvidia-cudnn": certificates[0].cudnn}
