"""Write a record as an in-toto statement, and read a statement as a certificate or a failure.

Statement v1 and the predicate Test Result v0.1: https://github.com/in-toto/attestation (spec/v1/statement.md,
spec/predicates/test-result.md). What the predicate has no field for is in the annotations of resource
descriptors: the checks that were skipped, the host, the times, the limits.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, TypeVar

import msgspec

from ..model import codec
from ..model.codec import DocumentError
from ..model.diagnosis import shortened
from ..model.prediction import LONGEST_ERROR, Limit
from ..model.record import (
    REHEARSAL,
    Certificate,
    Failure,
    GpuFacts,
    Measurement,
    OwnCheck,
    Record,
    Verdict,
    is_own,
)
from ..model.report import CheckOutcome, Report
from ..redaction.redact import redacted
from ..registry.names import is_digest
from ..versions import DriverRelease

STATEMENT_V1 = "https://in-toto.io/Statement/v1"
#: `cosign attest` writes this older version around a predicate that it is given.
STATEMENT_V0_1 = "https://in-toto.io/Statement/v0.1"
PREDICATE = "https://in-toto.io/attestation/test-result/v0.1"
#: The predicate of what a rehearsal signs (`rehearsal.py`). It is never a certificate, whoever signed it.
REHEARSAL_PREDICATE = "https://tensorflow-gpu-matrix.github.io/rehearsal/v1"
#: How long a certificate is valid after its measurement.
VALID_FOR = timedelta(days=14)

#: Host facts that don't identify the machine or its owner: no names, no UUIDs, no serial numbers.
_HOST = ("driver", "driver_cuda", "kernel", "machine", "os", "glibc", "container", "wsl")
_GPU = ("name", "compute_capability", "memory_bytes")
_VERSIONS = ("tensorflow", "python", "cuda", "cudnn")
#: The entry of the configuration that lists the limits, and its only annotation.
LIMITS = "limits"
#: The entries of the configuration that are read. Only the last two may be missing.
_ENTRIES = ("image", "lock", "probe", "host", "record", "certificate", LIMITS, "wheel")

T = TypeVar("T")


class NoCertificate(ValueError):
    """A statement is not a certificate."""


def statement(
    record: Record,
    report: Report | None,
    measurement: Measurement,
    repository: str,
    *,
    issued: str,
    expires: str,
) -> bytes:
    """Return the statement of a record that may get one; `report` and `measurement` are the record's own.

    Its result is FAILED if that is the verdict, WARNED if only checks that are not required went wrong. Where
    the probe wrote no report, the host is described as its runner saw it.
    """
    assert record.image_digest is not None and record.lock_digest is not None
    ran = report.checks if report is not None else ()
    checks = {outcome: [check.id for check in ran if check.outcome is outcome] for outcome in CheckOutcome}
    passed, skipped = checks.pop(CheckOutcome.PASS), checks.pop(CheckOutcome.SKIP)
    failed = [check for names in checks.values() for check in names]
    host = report.host if report is not None else measurement.outside
    origin = record.tensorflow_wheel
    result = "FAILED" if record.verdict is Verdict.FAILED else "WARNED" if failed else "PASSED"
    predicate = {
        "result": result,
        "configuration": [
            {"name": "image", "annotations": {"spec": record.image, **_known(record.versions, _VERSIONS)}},
            {"name": "lock", "digest": {"sha256": record.lock_digest.removeprefix("sha256:")}},
            {"name": "probe", "annotations": {"version": measurement.probe_version}},
            *([{"name": "wheel", "annotations": {"origin": origin}}] if origin else ()),
            *(
                {
                    "name": check.id,
                    "digest": {"sha256": check.sha256},
                    "annotations": {"required": check.required},
                }
                for check in measurement.checks
            ),
            {
                "name": "host",
                "annotations": {
                    "class": record.host_class,
                    **_known(msgspec.structs.asdict(host), _HOST),
                    "gpus": [_known(msgspec.structs.asdict(gpu), _GPU) for gpu in host.gpus],
                },
            },
            {
                "name": "record",
                "annotations": {"id": record.id, "started": record.started, "finished": record.finished},
            },
            {
                "name": "certificate",
                "annotations": {
                    "issued": issued,
                    "expires": expires,
                    "fixture": measurement.fixture,
                    "skippedTests": skipped,
                },
            },
            *_limits(report, result),
        ],
        "passedTests": passed,
        "warnedTests": [],
        "failedTests": failed,
    }
    subject = {"name": repository, "digest": {"sha256": record.image_digest.removeprefix("sha256:")}}
    document = {
        "_type": STATEMENT_V1, "subject": [subject], "predicateType": PREDICATE, "predicate": predicate,
    }  # fmt: skip
    return json.dumps(document, indent=1).encode()


def _limits(report: Report | None, result: str) -> Iterator[dict[str, Any]]:
    """Yield the entry of the limits, if there are any. A failure has none: it says that the image fails.

    Their errors are texts of other software, so names of people and machines are taken out.
    """
    found = report.limits if report is not None and result != "FAILED" else ()
    if found:
        told = [
            {"code": one.code, "gpu": one.gpu, "error": shortened(redacted(one.error), LONGEST_ERROR)}
            for one in found
        ]
        yield {"name": LIMITS, "annotations": {LIMITS: told}}


def _known(values: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: values[name] for name in names if values.get(name) is not None}


# The statement as it is read. Fields that a newer version adds are ignored.


class _Subject(msgspec.Struct, frozen=True):
    digest: dict[str, str] = {}


class _Predicate(msgspec.Struct, frozen=True, rename="camel"):
    result: str
    configuration: tuple[dict[str, Any], ...]
    passed_tests: tuple[str, ...]
    failed_tests: tuple[str, ...]


class _Statement(msgspec.Struct, frozen=True):
    subject: tuple[_Subject, ...]


class _Sha256(msgspec.Struct, frozen=True):
    sha256: str


class _Necessity(msgspec.Struct, frozen=True):
    required: bool


class _OwnCheck(msgspec.Struct, frozen=True):
    """The descriptor of a check of the user's own."""

    name: str
    digest: _Sha256
    annotations: _Necessity


class _Gpu(msgspec.Struct, frozen=True):
    name: str
    compute_capability: str


class _PoorHost(msgspec.Struct, frozen=True):
    """A host of which the probe could read only a part, because the image is broken."""

    class_: str = msgspec.field(name="class")
    driver: str | None = None
    gpus: tuple[dict[str, Any], ...] = ()


class _Parts:
    """The entries of a predicate's configuration by name. Raises NoCertificate if one is repeated."""

    def __init__(self, predicate: _Predicate) -> None:
        names = [str(entry.get("name")) for entry in predicate.configuration]
        for name in _ENTRIES:
            if names.count(name) > 1:
                raise NoCertificate(f"its configuration has {names.count(name)} entries with the name {name}")
        self.found = {
            name: entry.get("digest" if name == "lock" else "annotations")
            for name, entry in zip(names, predicate.configuration, strict=True)
        }

    def entry(self, name: str, kind: type[T]) -> T:
        """Return an entry. Raises DocumentError if it is missing or of another type."""
        if name not in self.found:
            raise DocumentError(f"configuration.{name}: missing")
        return codec.convert(self.found[name], kind, f"configuration.{name}")

    def get(self, name: str, field: str, kind: type[T]) -> T:
        """Return a field of an entry. Raises DocumentError as `entry` does."""
        fields = self.entry(name, dict[str, Any])
        if field not in fields:
            raise DocumentError(f"configuration.{name}.{field}: missing")
        return codec.convert(fields[field], kind, f"configuration.{name}.{field}")

    def text(self, name: str, field: str) -> str:
        return self.get(name, field, str)


def refuse_rehearsal(payload: bytes) -> None:
    """Raise NoCertificate if this is the statement of a rehearsal.

    To be asked before the signature is verified: no key and no option changes the answer.
    """
    try:
        document = codec.parse_unique(payload)
    except DocumentError:
        return
    if isinstance(document, dict) and document.get("predicateType") == REHEARSAL_PREDICATE:
        raise NoCertificate(f"it is the statement of a {REHEARSAL}, which proves nothing and never counts")


def read_statement(payload: bytes, digest: str, signer: str) -> Certificate | Failure:
    """Return what an unverified statement says about the image of that digest. Raises NoCertificate."""
    refuse_rehearsal(payload)
    try:
        document = codec.convert(codec.parse_unique(payload), dict[str, Any], "the statement")
        if document.get("_type") not in (STATEMENT_V1, STATEMENT_V0_1):
            raise NoCertificate(
                f"it is not an in-toto statement of a known version ({document.get('_type')!r})"
            )
        if document.get("predicateType") != PREDICATE:
            raise NoCertificate(f"it is not a test result but {document.get('predicateType')!r}")
        subjects = codec.convert(document, _Statement).subject
        if {"sha256": digest.removeprefix("sha256:")} not in [subject.digest for subject in subjects]:
            raise NoCertificate("it is about another image")
    except DocumentError as error:
        raise NoCertificate(str(error)) from None
    try:
        predicate = codec.convert(document.get("predicate"), _Predicate, "predicate")
        if predicate.result == "FAILED":
            return _failure(predicate, digest, signer)
        if predicate.result not in ("PASSED", "WARNED"):
            raise NoCertificate(f"its result is {predicate.result!r}")
        return _certificate(predicate, digest, signer)
    except DocumentError as error:
        raise NoCertificate(f"it is not a certificate of this project: {error}") from None


def _certificate(predicate: _Predicate, digest: str, signer: str) -> Certificate:
    parts = _Parts(predicate)
    image = parts.text("image", "spec")
    lock = f"sha256:{parts.text('lock', 'sha256')}"
    if not is_digest(lock):
        raise NoCertificate(f"lock: {lock} is not a digest")
    gpus = tuple(
        GpuFacts(gpu.name, gpu.compute_capability) for gpu in parts.get("host", "gpus", tuple[_Gpu, ...])
    )
    if not gpus:
        raise NoCertificate("it names no GPU")
    driver = parts.text("host", "driver")
    try:
        driver = str(DriverRelease.parse(driver))
        for gpu in gpus:
            _ = gpu.capability
    except ValueError as error:
        raise NoCertificate(f"it is not a certificate of this project: {error}") from None
    checks = []
    for number, entry in enumerate(predicate.configuration):
        if is_own(str(entry.get("name"))):
            own = codec.convert(entry, _OwnCheck, f"configuration[{number}]")
            checks.append(OwnCheck(own.name, own.digest.sha256, own.annotations.required))
    return Certificate(
        image_digest=digest,
        image=image,
        host_class=parts.text("host", "class"),
        driver=driver,
        gpus=gpus,
        lock_digest=lock,
        probe_version=parts.text("probe", "version"),
        tensorflow=parts.text("image", "tensorflow"),
        python=parts.text("image", "python"),
        cuda=parts.text("image", "cuda"),
        cudnn=parts.text("image", "cudnn"),
        passed=predicate.passed_tests,
        skipped=parts.get("certificate", "skippedTests", tuple[str, ...]),
        failed=predicate.failed_tests,
        record_id=parts.text("record", "id"),
        measured=parts.text("record", "finished"),
        issued=parts.text("certificate", "issued"),
        expires=parts.text("certificate", "expires"),
        signer=signer,
        fixture=parts.get("certificate", "fixture", bool),
        checks=tuple(checks),
        limits=parts.get("limits", "limits", tuple[Limit, ...]) if "limits" in parts.found else (),
        tensorflow_wheel=parts.text("wheel", "origin") if parts.found.get("wheel") is not None else None,
    )


def _failure(predicate: _Predicate, digest: str, signer: str) -> Failure:
    parts = _Parts(predicate)
    # The values are not needed, but every statement of this project has them: reject one without them.
    parts.text("certificate", "expires")
    parts.get("certificate", "skippedTests", tuple[str, ...])
    host = parts.entry("host", _PoorHost)
    try:
        driver = str(DriverRelease.parse(host.driver)) if host.driver else None
    except ValueError:
        driver = None
    gpus = []
    for entry in host.gpus:
        # The probe may have read only one of the two facts.
        with contextlib.suppress(ValueError):
            gpu = codec.convert(entry, _Gpu)
            facts = GpuFacts(gpu.name, gpu.compute_capability)
            _ = facts.capability
            gpus.append(facts)
    return Failure(
        image_digest=digest,
        image=parts.text("image", "spec"),
        host_class=host.class_,
        driver=driver,
        gpus=tuple(gpus),
        failed=predicate.failed_tests,
        record_id=parts.text("record", "id"),
        measured=parts.text("record", "finished"),
        issued=parts.text("certificate", "issued"),
        signer=signer,
        fixture=parts.get("certificate", "fixture", bool),
    )
