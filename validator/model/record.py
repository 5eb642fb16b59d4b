"""A verdict with everything that explains it. Written once, never changed."""

from __future__ import annotations

import hashlib
from enum import Enum
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ..problems import LIMIT
from . import codec
from .codec import DocumentError
from .facts import Environment, Host, environment_of, host_of
from .prediction import Limit
from .report import CheckResult, Report, ReportError, check_of, report_of


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

    digest: Annotated[str, Meta(description="The digest of the uncompressed content.")]
    size: Annotated[int, Meta(description="Bytes, unpacked.")]


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One measured cell.

    host, checks, report: the probe's JSON, kept as it was written, since the record's id covers it. Read it
    through `facts`, `environment`, `results` and `read_report`.
    """

    cell: Annotated[
        str,
        Meta(
            description="The image spec and the host class, joined:"
            " `tf2.21.0-cuda12.9-cudnn9.28-py312@no-gpu`."
        ),
    ]
    image: Annotated[str, Meta(description="The identifier of the image spec.")]
    host_class: Annotated[str, Meta(description="Where it was measured.")]
    verdict: Annotated[Verdict, Meta(description="The [verdict](../explanation/verdicts.md).")]
    reason: Annotated[str, Meta(description="One sentence that explains the verdict.")]
    engine: Annotated[
        str,
        Meta(
            description="`docker`, `venv`, or `none` for an imported report; for a fleet the scheduler"
            " and what ran the image on the node, such as `slurm/podman`."
        ),
    ]
    lock_digest: Annotated[
        str | None,
        Meta(description="`sha256:` over name, version and hash of every wheel."),
    ]
    image_digest: Annotated[
        str | None,
        Meta(description="The digest of the image that was probed; null if there was none."),
    ]
    probe_version: Annotated[str | None, Meta(description="The version of the probe.")]
    started: Annotated[str, Meta(description="UTC, ISO 8601.")]
    finished: Annotated[str, Meta(description="UTC, ISO 8601.")]
    key: Annotated[
        str,
        Meta(
            description="A digest of everything that must stay unchanged for the measurement to stay"
            " valid: spec, lock, probe, host, engine."
        ),
    ]
    origin: Annotated[
        Origin,
        Meta(
            description="`here`; `elsewhere` for an imported report; `rehearsal` for what `build-matrix"
            " --rehearse` measured."
        ),
    ] = Origin.HERE
    base: Annotated[
        str | None,
        Meta(
            description="Where the base came from: `registry:<name>@<digest>` or"
            " `bootstrap:<suite>@sha256:<digest of its packages and recipe>`."
        ),
    ] = None
    host: Annotated[dict[str, Any], Meta(description="The host facts of the report.")] = {}
    versions: Annotated[
        dict[str, str],
        Meta(description="`python`, `tensorflow`, `cuda`, `cudnn`, as the probe found them."),
    ] = {}
    checks: Annotated[
        list[dict[str, Any]],
        Meta(
            description="The report's checks: `id`, `outcome`, `statement`, `problems`, `required`,"
            " `evidence`, `duration_s`."
        ),
    ] = []
    report: Annotated[
        dict[str, Any] | None,
        Meta(
            description="The whole [report](report.md); null if nothing could be probed, and in `records"
            " list`."
        ),
    ] = None
    layers: Annotated[
        tuple[Layer, ...] | None,
        Meta(
            description="The layers of the image, lowest first: `digest` (of the uncompressed content)"
            " and `size` (bytes, unpacked). The field is missing if the layers are not known: if there"
            " was no image, and in records of version 0.1."
        ),
    ] = None
    measurement: Annotated[
        str | None,
        Meta(
            description="The runner's [signed statement](../trust.md) about this measurement: a Sigstore"
            " bundle as JSON text. The field is missing if nothing was signed."
        ),
    ] = None

    @property
    def id(self) -> str:
        """The first 32 hex digits of the SHA-256 over the record's content: the same content has the same
        id, wherever it is imported."""
        return hashlib.sha256(codec.canonical(self._content())).hexdigest()[:32]

    @property
    def facts(self) -> Host:
        """The machine."""
        return host_of(self.host)

    @property
    def environment(self) -> Environment:
        """The Python environment; empty where nothing was probed."""
        found = (self.report or {}).get("environment")
        return environment_of(found if isinstance(found, dict) else {})

    @property
    def results(self) -> tuple[CheckResult, ...]:
        """The probe's checks."""
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
        for number, check in enumerate(self.checks):
            if check.get("id") == identifier:
                return check_of(check, f"checks[{number}]")
        return None

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
        for name in ("layers", "measurement"):
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
