"""A measurement: what a runner signs about one run of the probe in an image.

It is the predicate of an in-toto statement (Statement v1, https://github.com/in-toto/attestation) whose
subject is the image. The runner's key signs the statement's bytes; `measurement_of` accepts only bytes that
`statement_of` writes, so that two readers can't understand the same signed bytes differently.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from enum import Enum
from typing import Any

import msgspec

from . import codec
from .codec import DocumentError, parse_timestamp
from .record import OwnCheck, is_own
from .spec import build_of, cell_identifier

PREDICATE = "https://tensorflow-gpu-matrix.github.io/measurement/v1"
STATEMENT_V1 = "https://in-toto.io/Statement/v1"
#: Bytes of a statement; one about a machine with 16 GPUs has less than 8 KiB.
LARGEST = 1 << 20

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
#: 32 random bytes in hexadecimal.
_CHALLENGE = re.compile(r"[0-9a-f]{64}")
_CAPABILITY = re.compile(r"\d{1,2}\.\d")
_RELEASE = re.compile(r"\d{3,4}(\.\d{1,3}){1,2}")
_RELEASE_OR_BRANCH = re.compile(r"\d{3,4}(\.\d{1,3}){0,2}")
#: What GPU Feature Discovery adds to the product of a GPU that pods share by time.
_SHARED = "-SHARED"


class MeasurementError(ValueError):
    """The bytes are not the statement of a measurement. The message says where and why."""


class GpuIdentity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One GPU. uuid: `GPU-…`, from NVML. compute_capability: `9.0`."""

    uuid: str
    name: str
    compute_capability: str


class Source(str, Enum):
    """The origin of the facts from outside a container.

    HOST: the host asked NVML and its kernel. NODE_LABELS: the labels that the node of a Kubernetes cluster
    has, which its own software wrote at some time before.
    """

    HOST = "host"
    NODE_LABELS = "node-labels"


class Outside(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The driver and the GPUs offered to a container, as known outside the container.

    If the source is HOST, the host itself read them. driver: the driver's release as NVML says, `580.65.06`.
    kernel_driver: that of the loaded kernel module; None under WSL, where Windows has the module. gpus:
    sorted by UUID.

    If the source is NODE_LABELS, the labels say them. driver: the release, or only the branch (`580`).
    kernel_driver: None. gpus: each without a UUID, with its label as the name (`NVIDIA-H100-80GB-HBM3`).
    """

    driver: str | None
    kernel_driver: str | None
    gpus: tuple[GpuIdentity, ...]
    source: Source = Source.HOST


def labelled(driver: str, product: str, compute_capability: str, gpus: int) -> Outside:
    """Return what the labels of a node say about the GPUs that it gave to a pod.

    driver: `580.65.06`, or as much of it as there are labels. product: the value of `nvidia.com/gpu.product`.
    compute_capability: `9.0`. gpus: how many the pod got.
    """
    gpu = GpuIdentity("", product.removesuffix(_SHARED), compute_capability)
    return Outside(driver, None, (gpu,) * gpus, Source.NODE_LABELS)


class Unread(str, Enum):
    """The reason why the driver could not be read outside the container."""

    NOT_ASKED = "not_asked"
    NO_GPU_OFFERED = "no_gpu_offered"
    OTHER_MACHINE = "other_machine"
    VIRTUAL_MACHINE = "virtual_machine"
    NVML_SILENT = "nvml_silent"
    KERNEL_SILENT = "kernel_silent"
    KERNEL_DIFFERS = "kernel_differs"
    NO_NODE_LABELS = "no_node_labels"

    @property
    def sentence(self) -> str:
        return _UNREAD[self]


_UNREAD = {
    Unread.NOT_ASKED: "the driver was not read outside the environment",
    Unread.NO_GPU_OFFERED: "the engine offers no GPU",
    Unread.OTHER_MACHINE: "the engine runs on another machine",
    Unread.VIRTUAL_MACHINE: "Docker Desktop runs containers in a virtual machine",
    Unread.NVML_SILENT: "the driver's library NVML does not answer on the host",
    Unread.KERNEL_SILENT: "the host has no /proc/driver/nvidia, where the kernel lists its GPUs",
    Unread.KERNEL_DIFFERS: "NVML and /proc/driver/nvidia do not agree on the host",
    Unread.NO_NODE_LABELS: "the node has no labels that say its driver and its GPUs",
}


class Measurement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One run of the probe in an image on real GPUs.

    image_digest: of the image's manifest. image: the image spec's identifier. cell: `image@host_class`.
    report_digest: see `report_digest`; None where the probe wrote no report. challenge: what the certifier
    asked the probe to repeat, 64 hexadecimal digits; None if there was no challenge. started, finished: by
    the runner's clock; UTC, ISO 8601. depth: of the probe, `quick` or `full`. fixture: made by a test; proves
    nothing. checks: the user's own that were packed into the probe, sorted by id.
    tensorflow_wheel: see `Record`.
    """

    image_digest: str
    image: str
    host_class: str
    cell: str
    lock_digest: str
    report_digest: str | None
    challenge: str | None
    outside: Outside
    probe_version: str
    started: str
    finished: str
    depth: str
    fixture: bool
    checks: tuple[OwnCheck, ...] = ()
    tensorflow_wheel: str | None = None


def is_challenge(text: str) -> bool:
    """Return True for a challenge: 32 bytes as 64 lowercase hexadecimal digits."""
    return _CHALLENGE.fullmatch(text) is not None


def report_digest(report: Mapping[str, Any]) -> str:
    """Return the `sha256:…` of a report's canonical JSON, which does not depend on spaces or order."""
    return f"sha256:{hashlib.sha256(codec.canonical(report)).hexdigest()}"


def statement_of(measurement: Measurement) -> bytes:
    """Return the statement to sign. Raises MeasurementError for a measurement that no reader would accept."""
    _check(measurement)
    return _written(measurement)


def _written(measurement: Measurement) -> bytes:
    predicate = codec.encode(measurement)
    digest = predicate.pop("image_digest")
    if not measurement.checks:
        # Statements that are older than this field, or than the next ones, stay as they were signed.
        del predicate["checks"]
    if measurement.tensorflow_wheel is None:
        del predicate["tensorflow_wheel"]
    if measurement.outside.source is Source.HOST:
        del predicate["outside"]["source"]
    subject = {"name": predicate["image"], "digest": {"sha256": digest.removeprefix("sha256:")}}
    written = codec.canonical(
        {"_type": STATEMENT_V1, "subject": [subject], "predicateType": PREDICATE, "predicate": predicate}
    )
    try:
        written.decode("utf-8")
    except UnicodeDecodeError:
        raise MeasurementError("predicate: a text in it is not Unicode") from None
    return written


def measurement_of(payload: bytes) -> Measurement:
    """Read a statement whose signature was verified. Raises MeasurementError with place and reason."""
    if len(payload) > LARGEST:
        raise MeasurementError(f"the statement is larger than {LARGEST >> 20} MiB")
    try:
        statement = codec.convert(codec.parse(payload), _Statement)
        if statement.type != STATEMENT_V1:
            raise MeasurementError(f"_type: it is {statement.type[:80]!r}, not {STATEMENT_V1}")
        if statement.predicate_type != PREDICATE:
            raise MeasurementError(f"predicateType: it is {statement.predicate_type[:80]!r}, not {PREDICATE}")
        if len(statement.subject) != 1:
            raise MeasurementError(f"subject: there are {len(statement.subject)} subjects, not one")
        fields = {**statement.predicate, "image_digest": f"sha256:{statement.subject[0].digest.sha256}"}
        measurement = codec.convert(fields, Measurement, "predicate")
    except DocumentError as error:
        raise MeasurementError(str(error)) from None
    _check(measurement)
    if _written(measurement) != payload:
        raise MeasurementError("the statement is not written in its canonical form")
    return measurement


class _Sha256(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sha256: str


class _Subject(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    digest: _Sha256


class _Statement(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    type: str = msgspec.field(name="_type")
    subject: tuple[_Subject, ...]
    predicate_type: str
    predicate: dict[str, Any]


def _check(measurement: Measurement) -> None:
    """Raise MeasurementError for a wrong value of the right type."""
    for name in ("image_digest", "lock_digest", "report_digest"):
        digest = getattr(measurement, name)
        if digest is not None and not _DIGEST.fullmatch(digest):
            raise MeasurementError(f"{name}: {digest[:80]!r} is not a SHA-256 digest")
    if measurement.challenge is not None and not is_challenge(measurement.challenge):
        raise MeasurementError("challenge: it is not 64 lowercase hexadecimal digits")
    if measurement.cell != cell_identifier(measurement.image, measurement.host_class):
        raise MeasurementError(f"cell: {measurement.cell[:80]!r} is not the image and the host class")
    if measurement.depth not in ("quick", "full"):
        raise MeasurementError(f"depth: {measurement.depth[:80]!r} is neither quick nor full")
    identifiers = [check.id for check in measurement.checks]
    if identifiers != sorted(set(identifiers)):
        raise MeasurementError("checks: they are not sorted by id, or one is listed twice")
    for check in measurement.checks:
        if not is_own(check.id):
            raise MeasurementError(f"checks: {check.id[:80]!r} is not the id of a check of the user's own")
        if not _DIGEST.fullmatch(f"sha256:{check.sha256}"):
            raise MeasurementError(f"checks: {check.sha256[:80]!r} is not a SHA-256 digest")
    if (build := build_of(measurement.image)) is not None:
        digest = (measurement.tensorflow_wheel or "").rpartition("#sha256=")[2]
        if not _DIGEST.fullmatch(f"sha256:{digest}") or not digest.startswith(build[-8:]):
            raise MeasurementError(
                f"tensorflow_wheel: it is not the one that {measurement.image[:80]} is named after"
            )
    elif measurement.tensorflow_wheel is not None:
        raise MeasurementError("tensorflow_wheel: the image is one of a release")
    started, finished = (parse_timestamp(text) for text in (measurement.started, measurement.finished))
    for name, moment in (("started", started), ("finished", finished)):
        if moment is None:
            raise MeasurementError(f"{name}: {getattr(measurement, name)[:80]!r} is not a timestamp")
    if started and finished and finished < started:
        raise MeasurementError(
            f"finished: {measurement.finished} is before the start at {measurement.started}"
        )
    _check_outside(measurement.outside)


def _check_outside(outside: Outside) -> None:
    by_labels = outside.source is Source.NODE_LABELS
    for name in ("driver", "kernel_driver"):
        release = getattr(outside, name)
        if release is not None and not (_RELEASE_OR_BRANCH if by_labels else _RELEASE).fullmatch(release):
            raise MeasurementError(f"outside.{name}: {release[:80]!r} is not a driver release")
    uuids = [gpu.uuid for gpu in outside.gpus]
    if by_labels and (any(uuids) or outside.kernel_driver is not None):
        raise MeasurementError("outside: labels of a node name neither UUIDs nor the kernel module")
    if not by_labels and uuids != sorted(set(uuids)):
        raise MeasurementError("outside.gpus: they are not sorted by UUID, or one is listed twice")
    for gpu in outside.gpus:
        if not _CAPABILITY.fullmatch(gpu.compute_capability):
            raise MeasurementError(
                f"outside.gpus: {gpu.compute_capability[:80]!r} is not a compute capability"
            )
