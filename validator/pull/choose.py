"""Which image is the best for a host: pure rules over candidates.

A certificate covers a host whose driver is of the same branch and whose GPUs all have a compute capability
that was measured. For any other host there is the prediction, which is never called certified.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from packaging.version import InvalidVersion, Version

from ..compat.gpus import gpu as known_gpu
from ..compat.policies import choose
from ..compat.predict import predict
from ..compat.releases import release
from ..compat.unknown import UnknownGpu
from ..errors import InputError, ValidatorError
from ..model.certificate import Certificate, GpuFacts
from ..model.prediction import Outcome
from ..model.spec import Cell, HostClass, ImageSpec, Variant, host_identifier
from .candidates import Candidate
from .host import Host

_IDENTIFIER = re.compile(
    r"tf(?P<tensorflow>[^-]+)-(?:cpu|cuda(?P<cuda>[^-]+)-cudnn(?P<cudnn>[^-]+))"
    r"-py(?P<major>\d)(?P<minor>\d+)(?P<base>-.+)?"
)


class Standing(str, Enum):
    """certified: measured on this driver branch and these GPUs. predicted: the rules say that it works.
    unknown: the facts do not decide it. unfit: it fails, or can't use a GPU. The best comes first."""

    CERTIFIED = "certified"
    PREDICTED = "predicted"
    UNKNOWN = "unknown"
    UNFIT = "unfit"


_SAYS = {
    Outcome.WORKS: (Standing.PREDICTED, "predicted to work"),
    Outcome.UNKNOWN: (Standing.UNKNOWN, "not known to work"),
    Outcome.FAILS: (Standing.UNFIT, "predicted to fail"),
}


@dataclass(frozen=True)
class Fit:
    """What an image is to a host. why: one sentence. certificate: the one that covers the host, or None."""

    candidate: Candidate
    standing: Standing
    why: str
    certificate: Certificate | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "tag": self.candidate.tag,
            "digest": self.candidate.digest,
            "image": self.candidate.image,
            "standing": self.standing.value,
            "why": self.why,
            "certificate": self.certificate.as_json() if self.certificate else None,
            "refused": [{"what": entry.what, "why": entry.why} for entry in self.candidate.refused],
        }


@dataclass(frozen=True)
class Wanted:
    """tensorflow: a release (`2.20.0`) or a minor (`2.20`); python: `3.12`. None: any."""

    tensorflow: str | None = None
    python: str | None = None

    def __post_init__(self) -> None:
        if self.tensorflow is not None and not re.fullmatch(r"\d+\.\d+(\.\d+)?(rc\d+)?", self.tensorflow):
            raise InputError(f"--tensorflow: {self.tensorflow!r} is no release", hint="write 2.20 or 2.20.0")
        if self.python is not None and not re.fullmatch(r"3\.\d+", self.python):
            raise InputError(f"--python: {self.python!r} is no Python version", hint="write it as 3.12")

    def takes(self, identifier: str) -> bool:
        """Whether an image spec is among those that are wanted."""
        found = _IDENTIFIER.fullmatch(identifier)
        if found is None:
            return False
        release_, python = found["tensorflow"], f"{found['major']}.{found['minor']}"
        minor_fits = self.tensorflow in (None, release_, release_.rpartition(".")[0])
        return minor_fits and self.python in (None, python)


def ranked(found: Iterable[Candidate], host: Host) -> list[Fit]:
    """What each image is to the host, the best first.

    By standing; then the newest TensorFlow, the project's own choice of base and
    CUDA before others, and the newest Python, CUDA and cuDNN.
    """
    order = list(Standing)
    fits = [fit(candidate, host) for candidate in found]
    return sorted(
        sorted(fits, key=lambda entry: _rank(entry.candidate.image), reverse=True),
        key=lambda entry: order.index(entry.standing),
    )


def fit(candidate: Candidate, host: Host) -> Fit:
    """What one image is to the host."""
    covering = next((entry for entry in candidate.certificates if covers(entry, host)), None)
    if covering is not None:
        return Fit(candidate, Standing.CERTIFIED, _certified(covering), covering)
    standing, why = _predicted(candidate.image, host)
    return Fit(candidate, standing, why if standing is Standing.UNFIT else f"{why}; {_instead(candidate)}")


def covers(certificate: Certificate, host: Host) -> bool:
    """Whether what was measured speaks for this host."""
    measured = {gpu.capability for gpu in certificate.gpus}
    return certificate.driver_release.branch == host.driver.branch and set(host.capabilities) <= measured


def why_not(entry: Fit, host: Host) -> str:
    """Why an image is not taken for the host, where only a certificate that covers it will do."""
    if entry.standing is Standing.UNFIT and not entry.candidate.certificates:
        return "; ".join([entry.why, *_refusals(entry.candidate)])
    if entry.candidate.certificates:
        where = ", ".join(_host_of(certificate) for certificate in entry.candidate.certificates)
        return f"certified on {where}, not on driver R{host.driver.branch} with " + ", ".join(
            f"compute capability {capability}" for capability in host.capabilities
        )
    return "; ".join(_refusals(entry.candidate)) or "it has no certificate"


def _certified(certificate: Certificate) -> str:
    return f"certified on {_host_of(certificate)}, measured {certificate.measured[:10]}"


def _host_of(certificate: Certificate) -> str:
    gpus = ", ".join(sorted({f"{gpu.name} ({gpu.compute_capability})" for gpu in certificate.gpus}))
    return f"driver {certificate.driver} with {gpus}"


def _instead(candidate: Candidate) -> str:
    """What there is where no certificate covers the host."""
    if candidate.certificates:
        return "certified on " + ", ".join(_host_of(entry) for entry in candidate.certificates) + " only"
    return "; ".join(_refusals(candidate)) or "no certificate"


def _refusals(candidate: Candidate) -> list[str]:
    return list(dict.fromkeys(f"its certificate is refused: {entry.why}" for entry in candidate.refused))


def _predicted(identifier: str, host: Host) -> tuple[Standing, str]:
    """What the rules say of an image on all GPUs of the host."""
    try:
        image = _spec_of(identifier)
    except ValidatorError as error:
        return Standing.UNFIT, f"nothing can be predicted: {error}"
    if image is None:
        return Standing.UNFIT, "it is no image of this project, and no certificate covers this host"
    if image.variant is Variant.CPU:
        return Standing.UNFIT, "it holds no CUDA: TensorFlow runs on the CPU in it"
    kinds = {gpu.capability: gpu for gpu in host.gpus}
    predictions = [predict(Cell(image, _host_class(host, gpu))) for gpu in kinds.values()]
    # An image must fit all of them.
    worst = max(predictions, key=lambda entry: list(_SAYS).index(entry.outcome))
    standing, says = _SAYS[worst.outcome]
    return standing, f"{says}: {worst.reasons[0].text}" if worst.reasons else says


def _host_class(host: Host, gpu: GpuFacts) -> HostClass:
    try:
        model: str | None = known_gpu(gpu.name).slug
    except UnknownGpu:
        model = None
    name = host_identifier(host.driver, model, gpu.capability)
    return HostClass(name, host.driver, gpu.capability, model)


def _spec_of(identifier: str) -> ImageSpec | None:
    """The image spec of an identifier; None for what is none. Raises ValidatorError for a release that the
    facts do not know."""
    found = _IDENTIFIER.fullmatch(identifier)
    if found is None:
        return None
    python = f"{found['major']}.{found['minor']}"
    if found["cuda"] is None:
        return ImageSpec(found["tensorflow"], python, Variant.CPU)
    cuda, cudnn = choose(release(found["tensorflow"]), found["cuda"], found["cudnn"], within_metadata=False)
    return ImageSpec(found["tensorflow"], python, Variant.GPU, cuda, cudnn)


def _rank(identifier: str) -> tuple[object, ...]:
    found = _IDENTIFIER.fullmatch(identifier)
    if found is None:
        return (Version("0"), False, False, Version("0"), Version("0"), Version("0"), identifier)
    floats = "latest" in (found["cuda"], found["cudnn"])
    return (
        _version(found["tensorflow"]),
        found["base"] is None,
        not floats,
        _version(f"{found['major']}.{found['minor']}"),
        _version(found["cuda"] or "0"),
        _version(found["cudnn"] or "0"),
        identifier,
    )


def _version(text: str) -> Version:
    """Never fails: what is no version (`latest`) is older than all."""
    try:
        return Version(text)
    except InvalidVersion:
        return Version("0")
