"""A verdict with everything that explains it. Written once, never changed."""

from __future__ import annotations

import hashlib
from enum import Enum
from typing import Any

import msgspec

from . import codec
from .codec import DocumentError
from .facts import Environment, Host, environment_of, host_of
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
    """One layer of an image. digest: of its uncompressed content. size: bytes, unpacked."""

    digest: str
    size: int


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One measured cell.

    cell: image spec and host class identifiers, joined (`tf2.21.0-cuda12.5-cudnn9.3-py312@no-gpu`).
    reason: one sentence that explains the verdict.
    engine: `docker`, `venv`, or `none` for an imported report; `slurm/podman` for a fleet, with what ran the
    image on the node.
    image_digest: of the image that was probed, or None when there was no image.
    key: a digest of everything that, if it changes, means that the cell must be measured again (spec, lock,
    probe, host, engine).
    started, finished: UTC, ISO 8601.
    layers: of the image, lowest first; None if they are not known.
    measurement: the runner's signed statement (measurement.py), a Sigstore bundle as JSON; None where nothing
        was signed.
    host, checks, report: the probe's JSON, kept as it was written, since the record's id covers it. Read it
        through `facts`, `environment`, `results` and `read_report`. `report` is None if the probe gave no
        report.
    """

    cell: str
    image: str
    host_class: str
    verdict: Verdict
    reason: str
    engine: str
    lock_digest: str | None
    image_digest: str | None
    probe_version: str | None
    started: str
    finished: str
    key: str
    origin: Origin = Origin.HERE
    base: str | None = None
    host: dict[str, Any] = {}
    versions: dict[str, str] = {}
    checks: list[dict[str, Any]] = []
    report: dict[str, Any] | None = None
    layers: tuple[Layer, ...] | None = None
    measurement: str | None = None

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
