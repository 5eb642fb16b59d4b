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

import contextlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import product

import pynvml

from ..certify.trust import Terms
from ..certify.verify import certificates
from ..compat import hardware, policies
from ..compat.facts import UnknownGpu
from ..compat.hardware import model_of, parse_release
from ..compat.predict import predict
from ..compat.releases import release as find_release
from ..errors import InputError, MissingError, ValidatorError
from ..model.prediction import WORST_FIRST, Limit, Outcome
from ..model.record import REHEARSAL, Certificate, Failure
from ..model.spec import AS_BUILT, LATEST, Cell, HostClass, ImageSpec, Variant, host_identifier
from ..registry.client import Registry
from ..registry.names import Wanted, identifier_of, name_of
from ..system.pools import map_in_threads
from ..versions import ComputeCapability, DriverRelease, is_release_of, version_or_oldest


class Standing(str, Enum):
    """The standing of an image on a host. Only `certified` rests on evidence.

    `unmeasured`: nobody has measured it anywhere, and nothing speaks against it.
    """

    CERTIFIED = "certified"
    PREDICTED = "predicted"
    UNMEASURED = "unmeasured"
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
        identifier = identifier_of(tag)
        if identifier is None:
            return None
        described, _, additions = identifier.partition("_")
        tensorflow, *rest = described.removeprefix("tf").split("-")
        cuda = cudnn = None
        if rest[0] == "cpu":
            rest = rest[1:]
        else:
            cuda, cudnn, rest = rest[0].removeprefix("cuda"), rest[1].removeprefix("cudnn"), rest[2:]
        base = "-".join(rest[1:]) or None
        python = f"{rest[0][2]}.{rest[0][3:]}"
        return cls(tag, tensorflow, python, cuda, cudnn, base, additions or None)

    @property
    def identifier(self) -> str:
        """The identifier of the image spec, by which people name the image."""
        return str(identifier_of(self.tag.removeprefix(f"{REHEARSAL}-")))

    def __str__(self) -> str:
        return self.identifier

    @property
    def floats(self) -> bool:
        """True if its CUDA or cuDNN depends on the day it was locked."""
        return LATEST in (self.cuda, self.cudnn)

    @property
    def kind(self) -> tuple[object, ...]:
        """Return the part of `preference` that comes before its limits: what people choose an image by."""
        tensorflow, python = version_or_oldest(self.tensorflow), version_or_oldest(self.python)
        return not tensorflow.is_prerelease, tensorflow, self.base is None, not self.floats, python

    @property
    def preference(self) -> tuple[object, ...]:
        """Return a sort key; the better image has the greater one. `promote` orders `latest` the same way.

        If two images have one `kind`, one without limits on the host is better, whatever its preference.
        """
        return *self.kind, version_or_oldest(self.cuda), version_or_oldest(self.cudnn), self.tag

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
    """An image in a registry, with its certificates. digest: None if the image could not be read.

    certificates: the trusted ones, newest measurement first. problems: sentences that say what is wrong.
    failures: for each host class on which the newest trusted statement says that the image failed.
    """

    image: TaggedImage
    digest: str | None
    certificates: tuple[Certificate, ...] = ()
    problems: tuple[str, ...] = ()
    failures: tuple[Failure, ...] = ()


@dataclass(frozen=True)
class Assessment:
    """An image with its standing on a host. limits: those in the certificates that cover the host."""

    candidate: Candidate
    forecast: Forecast
    standing: Standing
    why: str
    limits: tuple[Limit, ...] = ()


def assess(candidate: Candidate, host: Host, forecast: Forecast) -> Assessment:
    """Return the assessment of an image on a host."""
    evidence = covering(candidate, host)
    standing, why = _standing(candidate, host, forecast, evidence)
    return Assessment(candidate, forecast, standing, why, limits_of(evidence))


def best_first(assessed: Iterable[Assessment]) -> list[Assessment]:
    """Sort by standing, as `Standing` lists them, then by preference; see there for limits."""
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
    same_branch = [one for one in candidate.certificates if one.driver_release.branch == host.driver.branch]
    selected = []
    for capability in host.capabilities:
        wanted = {capability}
        first = next((one for one in same_branch if {gpu.capability for gpu in one.gpus} == wanted), None)
        if first is None:
            return ()
        selected.append(first)
    return tuple(dict.fromkeys(selected))


def failed_here(candidate: Candidate, host: Host) -> Failure | None:
    """Return the failure that makes an image unfit for a host, or None.

    It happened with the same driver branch and the same model of GPU. If the model of a GPU is unknown, its
    compute capability is compared instead.
    """
    for failure in candidate.failures:
        if failure.host_class in host.identifiers:
            return failure
        if failure.driver is None or DriverRelease.parse(failure.driver).branch != host.driver.branch:
            continue
        for gpu, failed in product(host.gpus, failure.gpus):
            same_model = gpu.name is None or model_of(gpu.name) == model_of(failed.name)
            if gpu.capability == failed.capability and same_model:
                return failure
    return None


def why_not_covered(candidate: Candidate, host: Host) -> str:
    """Return the reason why no certificate of an image covers a host."""
    if candidate.certificates and (failure := failed_here(candidate, host)):
        return failure.why
    if not candidate.certificates:
        # The reason for a rejected certificate is more helpful than saying that there is none.
        return "; ".join(candidate.problems) or "it is not signed: no certificate is attached to it"
    places: dict[str, None] = {}
    for one in candidate.certificates:
        capabilities = sorted({gpu.capability for gpu in one.gpus})
        mixed = " together" if len(capabilities) > 1 else ""
        listed = ", ".join(map(str, capabilities))
        places[f"driver {one.driver} with compute capability {listed}{mixed}"] = None
    where = "; ".join(places)
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


def _standing(
    candidate: Candidate, host: Host, forecast: Forecast, evidence: Sequence[Certificate]
) -> tuple[Standing, str]:
    if candidate.image.cuda is None:
        return Standing.UNFIT, "it has no CUDA, so TensorFlow cannot use a GPU in it"
    measured = "; ".join(map(measured_on, evidence))
    if failure := failed_here(candidate, host):
        return Standing.UNFIT, failure.why
    if candidate.digest is None or (candidate.problems and not candidate.certificates):
        return Standing.UNFIT, why_not_covered(candidate, host)
    if forecast.outcome is Outcome.FAILS:
        certified = f"it is certified ({measured}), but " if evidence else ""
        return Standing.UNFIT, f"{certified}the facts predict that it fails here: {forecast.why}"
    if evidence:
        return Standing.CERTIFIED, f"certified for this host: measured on {measured}"
    missing = why_not_covered(candidate, host)
    if not candidate.certificates:
        known = "the facts predict" if forecast.outcome is Outcome.WORKS else "the facts don't say"
        return Standing.UNMEASURED, f"measured nowhere yet; {known} that it works here: {forecast.why}"
    if forecast.outcome is Outcome.WORKS:
        return Standing.PREDICTED, f"predicted to work, but not certified for this host: {missing}"
    return Standing.UNFIT, f"it is not known to work here: {missing}; {forecast.why}"


def forecast(image: TaggedImage, certificates: Sequence[Certificate], host: Host) -> Forecast:
    """Return the worst prediction over all kinds of GPU. certificates: say what `latest` meant."""
    try:
        spec, wheels = _spec(image), None
        if image.floats and certificates:
            # The newest one counts.
            wheels = {"nvidia-cuda-runtime": certificates[0].cuda, "nvidia-cudnn": certificates[0].cudnn}
        predictions = [predict(Cell(spec, one), wheels) for one in host.classes]
    except ValueError as error:
        return Forecast(Outcome.UNKNOWN, f"the facts don't cover this image: {error}")
    worst = min(predictions, key=lambda prediction: WORST_FIRST.index(prediction.outcome))
    return Forecast(worst.outcome, worst.reasons[0].text)


def _spec(image: TaggedImage) -> ImageSpec:
    """Return the image spec. Raises ValueError for releases and versions that the facts do not know."""
    if image.cuda is None or image.cudnn is None:
        return ImageSpec(image.tensorflow, image.python, Variant.CPU, base=image.base)
    release = find_release(image.tensorflow)
    cuda, cudnn = policies.choose(
        release,
        AS_BUILT if image.cuda == release.cuda else image.cuda,
        AS_BUILT if image.cudnn == release.cudnn else image.cudnn,
        within_metadata=False,
    )
    return ImageSpec(image.tensorflow, image.python, Variant.GPU, cuda, cudnn, image.base)


# Look up the images of a registry, verify their certificates, and assess them for a host.

#: The number of lookups at a time. They mostly wait for the registry.
_AT_ONCE = 4


def tagged_images(registry: Registry, wanted: Wanted) -> list[TaggedImage]:
    """Return the images of a registry with these versions and additions, best first.

    Raises MissingError if the registry has no images, InputError if it only has others.
    """
    tensorflow, python, additions = wanted.tensorflow, wanted.python, wanted.additions
    tags = registry.tags()
    found = [image for tag in tags if (image := TaggedImage.of_tag(tag))]
    if not found:
        only = any(tag.startswith(REHEARSAL) for tag in tags)
        raise MissingError(
            f"no image is published in {registry.repository} yet: it has "
            + (f"only images of a {REHEARSAL}, which prove nothing" if only else "no images of this project"),
            hint=f"`build-matrix --push {registry.repository}` publishes images, and `run --uncertified`"
            " without --registry starts one from the local Docker Engine. If there should be images, check"
            " the name, and whether you are logged in",
        )
    # A wheel that no table lists is named with its version or with --name.
    alike = [
        image
        for image in found
        if name_of(image.tag) == additions
        or (image.tensorflow == tensorflow and image.additions == additions)
    ]
    if not alike:
        names = sorted({name for image in found if (name := name_of(image.tag))})
        which = f"with the additions {additions}" if additions else "without additions"
        raise InputError(
            f"{registry.repository} has no image {which}",
            hint=f"it has images with the additions {', '.join(names)}; name them with --name"
            if names
            else "it has only images without additions; leave out --name",
        )
    fitting = [image for image in alike if image.is_of(tensorflow, python)]
    if not fitting:
        asked = [f"TensorFlow {tensorflow}"] * bool(tensorflow) + [f"Python {python}"] * bool(python)
        there = sorted({f"{image.tensorflow} with {image.python}" for image in alike})
        raise InputError(
            f"{registry.repository} has no image with {' and '.join(asked)}",
            hint=f"it has TensorFlow and Python {', '.join(there)}",
        )
    return sorted(fitting, key=lambda image: image.preference, reverse=True)


def without_certificates(registry: Registry) -> str:
    """Return what to do if no image of a registry is certified, as a hint."""
    return (
        "`run --uncertified` starts an image that is not certified, and says what is predicted of it."
        f" `build-matrix --push {registry.repository}` on a machine with a GPU measures images, and `certify`"
        " certifies them"
    )


def inspect_tag(registry: Registry, image: TaggedImage, terms: Terms) -> Candidate:
    """Resolve a tag and verify the certificates of its image.

    Raises MissingError if the registry can't be reached. Whatever is wrong with the image itself, or with
    what is attached to it, is listed in `Candidate.problems`.
    """
    try:
        digest = registry.digest_of(image.tag)
        if digest is None:
            return Candidate(image, None, (), ("the tag no longer exists",))
        return inspect_digest(registry, image, digest, terms)
    except MissingError:
        raise
    except ValidatorError as error:
        return Candidate(image, None, (), (str(error),))


def inspect_digest(registry: Registry, image: TaggedImage, digest: str, terms: Terms) -> Candidate:
    """Verify the certificates of an image whose digest is known. Raises like `inspect_tag`."""
    try:
        if registry.manifest(digest) is None:
            return Candidate(image, None, (), (f"the registry does not have {digest}",))
        verified = certificates(registry, digest, terms)
    except MissingError:
        raise
    except ValidatorError as error:
        return Candidate(image, digest, (), (str(error),))
    problems = [f"its certificate {one.what} is rejected: {one.why}" for one in verified.refused]
    good = tuple(one for one in verified.certificates if one.image == image.identifier)
    problems += [
        f"its certificate is for {one.image}, so the tag points at the wrong image"
        for one in verified.certificates
        if one not in good
    ]
    # A certificate that a failure invalidated is rejected for the same reason.
    told = {one.taken_back_by for one in verified.refused}
    problems += [one.why for one in verified.failures if one not in told]
    return Candidate(image, digest, good, tuple(dict.fromkeys(problems)), verified.failures)


def recommend(
    registry: Registry, wanted: Iterable[TaggedImage], host: Host, terms: Terms
) -> list[Assessment]:
    """Assess every image for the host. Return them best first."""
    found = map_in_threads(lambda image: inspect_tag(registry, image, terms), wanted, _AT_ONCE)
    return best_first(assess_candidate(one, host) for one in found)


def assess_candidate(candidate: Candidate, host: Host) -> Assessment:
    """Predict and assess an image for the host."""
    return assess(candidate, host, forecast(candidate.image, candidate.certificates, host))


# The host that an image will run on: its driver and its GPUs, as asked for or as NVML reports them.

_CAPABILITY = re.compile(r"\d{1,2}\.\d|sm_\d{2,3}", re.IGNORECASE)


@dataclass(frozen=True)
class Gpu:
    """A GPU. name: as reported by the driver or given by a user; None if only the capability is known."""

    capability: ComputeCapability
    name: str | None = None

    def __str__(self) -> str:
        return f"{self.name} ({self.capability})" if self.name else f"compute capability {self.capability}"


@dataclass(frozen=True)
class Host:
    """A driver with at least one GPU. driver: a release, or a branch that a user asks about."""

    driver: DriverRelease
    gpus: tuple[Gpu, ...]

    @property
    def capabilities(self) -> tuple[ComputeCapability, ...]:
        """The compute capabilities without repetition, in ascending order."""
        return tuple(sorted({gpu.capability for gpu in self.gpus}))

    @property
    def classes(self) -> tuple[HostClass, ...]:
        """The host class of each kind of GPU, for predictions."""
        found: dict[HostClass, None] = {}
        for gpu in self.gpus:
            model = None
            if gpu.name is not None:
                with contextlib.suppress(UnknownGpu):
                    model = hardware.gpu(gpu.name).slug
            identifier = host_identifier(self.driver, model, gpu.capability)
            found[HostClass(identifier, self.driver, gpu.capability, model)] = None
        return tuple(found)

    @property
    def identifiers(self) -> frozenset[str]:
        """The names under which its kinds of GPU are measured, such as `r580-h100`."""
        branch = DriverRelease(self.driver.branch)
        return frozenset(
            host_identifier(branch, gpu.name and hardware.model_of(gpu.name), gpu.capability)
            for gpu in self.gpus
        )

    def __str__(self) -> str:
        counted = Counter(map(str, self.gpus))
        cards = ", ".join(f"{count} of {name}" if count > 1 else name for name, count in counted.items())
        return f"driver {self.driver} with {cards}"


def parse_driver(text: str) -> DriverRelease:
    """Parse the value of `--driver`. Raises InputError."""
    try:
        return parse_release(text)
    except ValueError as error:
        raise InputError(f"--driver: {error}") from None


def parse_gpus(texts: Sequence[str]) -> tuple[Gpu, ...]:
    """Parse the values of `--gpu`: names or compute capabilities. Raises InputError for unknown ones."""
    found = []
    for text in map(str.strip, texts):
        if _CAPABILITY.fullmatch(text):
            found.append(Gpu(ComputeCapability.parse(text)))
        else:
            known = hardware.gpu(text)
            found.append(Gpu(known.compute_capability, known.name))
    return tuple(found)


class NoDriver(MissingError):
    """This machine has no NVIDIA driver, so it has no GPU that anything could use."""


_ASK = "describe a host with --driver and --gpu, for example --driver 535.183.01 --gpu a100"
#: Why NVML did not start, and what to do. Return codes: NVML API reference, nvmlReturn_t.
_NOT_STARTED = {
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: (
        "the NVIDIA driver is installed, but its kernel module is not loaded",
        f"run `sudo modprobe nvidia` or restart the machine, or {_ASK}",
    ),
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        "the NVIDIA driver was updated, but the kernel still runs the older module",
        f"restart the machine, or {_ASK}",
    ),
}


def this_host() -> Host:
    """Ask NVML for the driver and GPUs of this machine. Raises MissingError if none is found or answers."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        if error.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
            raise NoDriver(
                "this machine has no NVIDIA driver: libnvidia-ml.so.1, which is part of it, was not found",
                hint=_ASK,
            ) from error
        silent = f"the NVIDIA driver on this machine does not answer: {error}"
        why, hint = _NOT_STARTED.get(error.value, (silent, _ASK))
        raise MissingError(why, hint=hint) from error
    try:
        driver = DriverRelease.parse(pynvml.nvmlSystemGetDriverVersion())
        found = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            device = pynvml.nvmlDeviceGetHandleByIndex(index)
            capability = ComputeCapability(*pynvml.nvmlDeviceGetCudaComputeCapability(device))
            found.append(Gpu(capability, pynvml.nvmlDeviceGetName(device)))
    except (pynvml.NVMLError, ValueError) as error:
        raise MissingError(
            f"the NVIDIA driver on this machine does not report its version or GPUs: {error}", hint=_ASK
        ) from error
    finally:
        pynvml.nvmlShutdown()
    if not found:
        raise MissingError(
            f"the NVIDIA driver {driver} is installed, but it sees no GPU",
            hint=f"run `nvidia-smi -L`, or {_ASK}",
        )
    return Host(driver, tuple(found))
