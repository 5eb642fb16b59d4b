"""Immutable records, certificates and measurements. docs/fields.py prints the texts in `Annotated`."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Annotated, Any

import msgspec

from ..problems import LIMIT
from ..versions import ComputeCapability, DriverRelease
from . import codec
from .codec import DocumentError, parse_timestamp
from .prediction import Limit
from .report import (
    CheckResult,
    Environment,
    Host,
    Report,
    ReportError,
    check_of,
    environment_of,
    host_of,
    report_of,
)
from .spec import NAME, PREFIX, CheckFile, build_of, cell_identifier

# The extra checks that an image with additions must pass.

#: The check that imports the added packages.
PACKAGES = "packages"


class OwnCheck(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A check of the user's own, packed into the probe. id: `ours/our_check`. sha256: hex, of its file."""

    id: str
    sha256: str
    required: bool


def own_check(file: CheckFile) -> OwnCheck:
    """Return the check of a file, as measurements and certificates name it."""
    return OwnCheck(file.id, file.sha256, file.required)


def is_own(identifier: str) -> bool:
    """Return True for the id of a check of the user's own."""
    return identifier.startswith(PREFIX) and NAME.fullmatch(identifier[len(PREFIX) :]) is not None


def also_required(has_additions: bool, own: Iterable[OwnCheck]) -> tuple[str, ...]:
    """Return the ids of the checks that an image has to pass besides those of every image.

    has_additions: as the image spec or its identifier says, never a report: what is in the image writes that.
    """
    packages = (PACKAGES,) if has_additions else ()
    return (*packages, *(check.id for check in own if check.required))


# The origin of an image's base: where it comes from and what was added to it, in one line.
#
#     registry:python:3.12-slim-bookworm@sha256:…
#     registry:python:3.12-slim-bookworm@sha256:…+packages:git,tini@sha256:…
#     bootstrap:bookworm@sha256:…
#
# The second digest is over the packages that the distribution's installer really added, with their versions:
# the same names give other packages on another day.

#: A package that was installed, as apt names it: `git:amd64=1:2.39.5-0+deb12u2`.
INSTALLED = re.compile(r"[a-z0-9][a-z0-9+.-]+:[a-z0-9-]+=[A-Za-z0-9][A-Za-z0-9.+:~-]*")

_PACKAGES = "+packages:"
_DIGEST = r"sha256:[0-9a-f]{64}"
_PLAIN = re.compile(rf"(?P<kind>registry|bootstrap):(?P<name>[^@\s]+)(?:@(?P<digest>{_DIGEST}))?")
_ADDED = re.compile(rf"(?P<names>[a-z0-9+.,-]+)@(?P<installed>{_DIGEST})")


@dataclass(frozen=True)
class BaseOrigin:
    """A parsed origin.

    kind: `registry` or `bootstrap`. name: of the image, without its digest, or of the suite. digest: of the
    image, or of what a bootstrap made it from; None if it has none. asked: the names of the packages that
    were added to an image, sorted. installed: the digest over the packages that this installed, or None.
    """

    kind: str
    name: str
    digest: str | None
    asked: tuple[str, ...] = ()
    installed: str | None = None

    @classmethod
    def parse(cls, text: str) -> BaseOrigin | None:
        """Return the parts of an origin, or None if the text is not one."""
        plain, separator, rest = text.partition(_PACKAGES)
        found, added = _PLAIN.fullmatch(plain), _ADDED.fullmatch(rest)
        if found is None or bool(separator) is not bool(added):
            return None
        origin = cls(found["kind"], found["name"], found["digest"])
        if added is None:
            return origin
        return replace(origin, asked=tuple(added["names"].split(",")), installed=added["installed"])

    def with_packages(self, asked: Iterable[str], installed: Iterable[str]) -> BaseOrigin:
        """Return the origin of this base after packages were added to it. installed: see `INSTALLED`."""
        names = tuple(sorted(set(asked)))
        return replace(self, asked=names, installed=digest_of_packages(installed))

    @property
    def plain(self) -> str:
        """The base before packages were added to it: `NAME@sha256:…`, or NAME if it has no digest."""
        return self.name + (f"@{self.digest}" if self.digest else "")

    def __str__(self) -> str:
        added = f"{_PACKAGES}{','.join(self.asked)}@{self.installed}" if self.installed else ""
        return f"{self.kind}:{self.plain}{added}"


def digest_of_packages(installed: Iterable[str]) -> str:
    """Return the digest over packages that were installed, which does not depend on their order."""
    text = "".join(f"{one}\n" for one in sorted(installed))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


# The content of a certificate or of a failure, read from a statement whose signature was verified.


class GpuFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One GPU of the machine that measured."""

    name: Annotated[str, "The model."]
    compute_capability: Annotated[str, "Such as `9.0`."]

    @property
    def capability(self) -> ComputeCapability:
        return ComputeCapability.parse(self.compute_capability)


_ImageDigest = Annotated[str, "The digest of the image's manifest in the registry."]
_Image = Annotated[str, "The identifier of the image spec."]
_HostClass = Annotated[str, "The host class of the machine that measured, such as `r580-h100`."]
_RecordId = Annotated[str, "The id of the record."]
_Measured = Annotated[str, "When the probe ended. UTC, ISO 8601, like all times here."]
_Issued = Annotated[str, "When it was signed."]
_Signer = Annotated[
    str, "The fingerprint of the public key (`sha256:` over its DER encoding), or the identity."
]
_Fixture = Annotated[bool, "Made by a test; proves nothing."]


class Certificate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Signed evidence that an image's required checks passed on a real GPU."""

    image_digest: _ImageDigest
    image: _Image
    host_class: _HostClass
    driver: Annotated[str, "The release of the driver, such as `580.65.06`."]
    gpus: Annotated[tuple[GpuFacts, ...], "The `name` and `compute_capability` of each GPU."]
    lock_digest: Annotated[str, "As in the record."]
    probe_version: Annotated[str, "As in the record."]
    tensorflow: Annotated[str, "The version, as the probe read it inside the image, like the next three."]
    python: Annotated[str, "The version."]
    cuda: Annotated[str, "The version."]
    cudnn: Annotated[str, "The version."]
    passed: Annotated[tuple[str, ...], "The names of the probe's checks that passed."]
    skipped: Annotated[tuple[str, ...], "Those that were skipped."]
    failed: Annotated[tuple[str, ...], "Those that failed; none of them was required."]
    record_id: _RecordId
    measured: _Measured
    issued: _Issued
    expires: Annotated[str, "Until when it counts."]
    signer: _Signer
    fixture: _Fixture = False
    checks: Annotated[
        tuple[OwnCheck, ...],
        "The user's own checks that the probe ran: the `id` (`ours/our_check`), the `sha256` of its file,"
        " and whether it was `required`.",
    ] = ()
    limits: Annotated[
        tuple[Limit, ...],
        "What failed only in full float32, with TensorFloat-32 off: the `code`, the `gpu` and the `error` of"
        " each.",
    ] = ()
    tensorflow_wheel: Annotated[str | None, "As in the record; null for a release."] = None

    @property
    def own_passed(self) -> tuple[str, ...]:
        """The ids of the user's own checks that passed."""
        return tuple(check.id for check in self.checks if check.id in self.passed)

    @property
    def driver_release(self) -> DriverRelease:
        return DriverRelease.parse(self.driver)


class Failure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Signed evidence that an image failed on a host class. It invalidates older certificates for that class.

    A failure does not expire: only a newer certificate for the same host class replaces it.
    """

    image_digest: _ImageDigest
    image: _Image
    host_class: _HostClass
    driver: Annotated[str | None, "As in a certificate; null if the probe could not read it."]
    gpus: Annotated[tuple[GpuFacts, ...], "As in a certificate; empty if the probe could not read them."]
    failed: Annotated[
        tuple[str, ...], "The names of the checks that went wrong; empty if the probe wrote no report."
    ]
    record_id: _RecordId
    measured: _Measured
    issued: _Issued
    signer: _Signer
    fixture: _Fixture = False

    @property
    def why(self) -> str:
        """The reason, for an image that is rejected because of it."""
        what = ", ".join(self.failed) or "the probe wrote no report"
        return f"it failed on {self.host_class} ({what}), measured {self.measured}"


class Verification(msgspec.Struct, frozen=True):
    """The part of the output of `verify --format json` that other commands read."""

    certificates: tuple[Certificate, ...]


def read_verification(data: bytes | str) -> Verification:
    """Read the output of `verify --format json`. Raises DocumentError with the place and the reason."""
    return codec.convert(codec.parse(data), Verification)


class Verdict(str, Enum):
    """certified: all required checks passed on a real GPU. works-on-cpu: an image without CUDA passed all
    those that it needs. failed: a check failed. unproven: nothing was proven, for example without a GPU.
    broken: it did not build."""

    CERTIFIED = "certified"
    WORKS_ON_CPU = "works-on-cpu"
    FAILED = "failed"
    UNPROVEN = "unproven"
    BROKEN = "broken"


#: This word is in everything that `build-matrix --rehearse` makes.
REHEARSAL = "REHEARSAL"


class Origin(str, Enum):
    """`here`: built and probed by this installation. `elsewhere`: a report that a person imported.
    `rehearsal`: made by `build-matrix --rehearse`, which proves nothing."""

    HERE = "here"
    ELSEWHERE = "elsewhere"
    REHEARSAL = "rehearsal"


class RecordError(ValueError):
    """A document is not a record, or is an altered record."""


class Layer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One layer of an image."""

    digest: Annotated[str, "The digest of the uncompressed content."]
    size: Annotated[int, "Bytes, unpacked."]


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One measured cell.

    host, checks, report: the probe's JSON, kept as it was written, since the record's id covers it. Read it
    through `facts`, `environment`, `results` and `read_report`.
    """

    cell: Annotated[
        str, "The image spec and the host class, joined: `tf2.21.0-cuda12.9-cudnn9.28-py312@no-gpu`."
    ]
    image: Annotated[str, "The identifier of the image spec."]
    host_class: Annotated[str, "Where it was measured."]
    verdict: Annotated[Verdict, "The [verdict](../explanation/verdicts.md)."]
    reason: Annotated[str, "One sentence that explains the verdict."]
    engine: Annotated[
        str,
        "`docker`, `podman`, `venv`, or `none` for an imported report; from a bundle also `apptainer`,"
        " `namespace` or `chroot`; for a fleet the scheduler and what ran the image on the node, such as"
        " `slurm/podman`.",
    ]
    lock_digest: Annotated[str | None, "`sha256:` over name, version and hash of every wheel."]
    image_digest: Annotated[str | None, "The digest of the image that was probed; null if there was none."]
    probe_version: Annotated[str | None, "The version of the probe."]
    started: Annotated[str, "UTC, ISO 8601."]
    finished: Annotated[str, "UTC, ISO 8601."]
    key: Annotated[
        str,
        "A digest of everything that must stay unchanged for the measurement to stay valid: spec, lock,"
        " probe, host, engine.",
    ]
    origin: Annotated[
        Origin,
        "`here`; `elsewhere` for an imported report; `rehearsal` for what `build-matrix --rehearse`"
        " measured.",
    ] = Origin.HERE
    base: Annotated[
        str | None,
        "Where the base came from: `registry:<name>@<digest>` or `bootstrap:<suite>@sha256:<digest of its"
        " packages and recipe>`.",
    ] = None
    host: Annotated[dict[str, Any], "The host facts of the report."] = {}
    versions: Annotated[
        dict[str, str], "`python`, `tensorflow`, `cuda`, `cudnn`, as the probe found them."
    ] = {}
    checks: Annotated[
        list[dict[str, Any]],
        "The report's checks: `id`, `outcome`, `statement`, `problems`, `required`, `evidence`,"
        " `duration_s`.",
    ] = []
    report: Annotated[
        dict[str, Any] | None,
        "The whole [report](report.md); null if nothing could be probed, and in `records list`.",
    ] = None
    layers: Annotated[
        tuple[Layer, ...] | None,
        "The layers of the image, lowest first: `digest` (of the uncompressed content) and `size` (bytes,"
        " unpacked). The field is missing if the layers are not known: if there was no image, and in records"
        " of version 0.1.",
    ] = None
    tensorflow_wheel: Annotated[
        str | None,
        "Where the wheel of TensorFlow comes from, if no table lists it: its path, its address or its file"
        " name, with `#sha256=`. The field is missing for a release.",
    ] = None
    measurement: Annotated[
        str | None,
        "The runner's [signed statement](../trust.md) about this measurement: a Sigstore bundle as JSON"
        " text. The field is missing if nothing was signed.",
    ] = None

    @property
    def id(self) -> str:
        """The first 32 hex digits of the SHA-256 over the record's content: the same content has the same
        id, wherever it is imported."""
        return hashlib.sha256(codec.canonical(self._content())).hexdigest()[:32]

    @property
    def facts(self) -> Host:
        return host_of(self.host)

    @property
    def environment(self) -> Environment:
        """The Python environment; empty where nothing was probed."""
        found = (self.report or {}).get("environment")
        return environment_of(found if isinstance(found, dict) else {})

    @property
    def results(self) -> tuple[CheckResult, ...]:
        return tuple(check_of(check, f"checks[{number}]") for number, check in enumerate(self.checks))

    @property
    def limits(self) -> tuple[Limit, ...]:
        """What the probe saw fail only in full float32, in the order of the checks."""
        # Lists show them for thousands of records, and hardly any check has one: read only those checks.
        return tuple(
            limit
            for number, check in enumerate(self.checks)
            if any(entry.get("severity") == LIMIT for entry in check.get("problems") or ())
            for limit in check_of(check, f"checks[{number}]").limits
        )

    def result(self, identifier: str) -> CheckResult | None:
        """Return one of the probe's checks without reading the others; None if it was not run."""
        numbers = (at for at, check in enumerate(self.checks) if check.get("id") == identifier)
        return next((check_of(self.checks[at], f"checks[{at}]") for at in numbers), None)

    def read_report(self) -> Report | None:
        """Return the report, or None where nothing was probed. Raises ReportError where it can't be read."""
        return None if self.report is None else report_of(self.report)

    def document(self) -> dict[str, Any]:
        """Return the record as JSON (docs/reference/json.md)."""
        return {"id": self.id, **self._content()}

    def _content(self) -> dict[str, Any]:
        # Not encoded as a whole: the probe's JSON may have megabytes, and stays as it is.
        content = msgspec.structs.asdict(self)
        content |= {"verdict": self.verdict.value, "origin": self.origin.value}
        if self.layers is not None:
            content["layers"] = [codec.encode(layer) for layer in self.layers]
        # Records that are older than these fields keep their ids.
        for name in ("layers", "tensorflow_wheel", "measurement"):
            if content[name] is None:
                del content[name]
        return content


def read_record(data: bytes | str) -> Record:
    """Read a record from JSON. Raises RecordError when a field is missing, unknown or altered."""
    try:
        document = codec.parse(data)
    except DocumentError as error:
        raise RecordError(str(error)) from None
    return _record(document)


def record_of(document: object) -> Record:
    """Read a record from parsed JSON. Raises RecordError when a field is missing, unknown or altered."""
    try:
        codec.check_limits(document)
    except DocumentError as error:
        raise RecordError(f"not a record: {error}") from None
    return _record(document)


def _record(document: object) -> Record:
    try:
        fields = codec.convert(document, dict[str, Any], "the record")
        claimed = fields.pop("id", None)
        record = codec.convert(fields, Record)
        _ = record.results
    except (DocumentError, ReportError) as error:
        raise RecordError(f"not a record: {error}") from None
    if claimed != record.id:
        raise RecordError(f"record {claimed}: its content gives the id {record.id}; it was altered")
    return record


def contents_of(report: Report) -> dict[str, Any]:
    """Return the fields of a record that are taken from a report as they are."""
    return {
        "host": report.raw["host"],
        "checks": [check.recorded() for check in report.checks],
        "report": report.raw,
    }


# A measurement: what a runner signs about one run of the probe in an image.
#
# It is the predicate of an in-toto statement (Statement v1, https://github.com/in-toto/attestation) whose
# subject is the image. The runner's key signs the statement's bytes; `measurement_of` accepts only bytes that
# `statement_of` writes, so that two readers can't understand the same signed bytes differently.

PREDICATE = "https://tensorflow-gpu-matrix.github.io/measurement/v1"
STATEMENT_V1 = "https://in-toto.io/Statement/v1"
#: The most bytes of a statement; one about a machine with 16 GPUs has less than 8 KiB.
_LARGEST_STATEMENT = 1 << 20
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
    """The reason why the driver could not be read outside the container, with a sentence for people."""

    sentence: str

    NOT_ASKED = "not_asked", "the driver was not read outside the environment"
    NO_GPU_OFFERED = "no_gpu_offered", "the engine offers no GPU"
    OTHER_MACHINE = "other_machine", "the engine runs on another machine"
    VIRTUAL_MACHINE = "virtual_machine", "Docker Desktop runs containers in a virtual machine"
    NVML_SILENT = "nvml_silent", "the driver's library NVML does not answer on the host"
    KERNEL_SILENT = "kernel_silent", "the host has no /proc/driver/nvidia, where the kernel lists its GPUs"
    KERNEL_DIFFERS = "kernel_differs", "NVML and /proc/driver/nvidia do not agree on the host"
    NO_NODE_LABELS = "no_node_labels", "the node has no labels that say its driver and its GPUs"

    def __new__(cls, value: str, sentence: str) -> Unread:
        """Make a reason whose value is its name in documents."""
        member = str.__new__(cls, value)
        member._value_, member.sentence = value, sentence
        return member


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
    if len(payload) > _LARGEST_STATEMENT:
        raise MeasurementError(f"the statement is larger than {_LARGEST_STATEMENT >> 20} MiB")
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
        if digest is not None and not re.fullmatch(_DIGEST, digest):
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
        if not re.fullmatch(_DIGEST, f"sha256:{check.sha256}"):
            raise MeasurementError(f"checks: {check.sha256[:80]!r} is not a SHA-256 digest")
    if (build := build_of(measurement.image)) is not None:
        digest = (measurement.tensorflow_wheel or "").rpartition("#sha256=")[2]
        if not re.fullmatch(_DIGEST, f"sha256:{digest}") or not digest.startswith(build[-8:]):
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
