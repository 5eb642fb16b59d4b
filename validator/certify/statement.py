"""Statements: a record as an in-toto statement, and a statement as a certificate.

Statement v1 and the predicate Test Result v0.1: https://github.com/in-toto/attestation (spec/v1/statement.md,
spec/predicates/test-result.md). What the predicate has no field for stands in the annotations of resource
descriptors: the checks that were skipped, the host, the times.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..model.certificate import Certificate, GpuFacts
from ..model.record import Record
from ..model.report import CheckOutcome, Report
from ..registry.names import is_digest
from ..versions import DriverRelease

STATEMENT_V1 = "https://in-toto.io/Statement/v1"
#: `cosign attest` writes this older version around a predicate that it is given.
STATEMENT_V0_1 = "https://in-toto.io/Statement/v0.1"
PREDICATE = "https://in-toto.io/attestation/test-result/v0.1"

#: Host facts that say nothing of who runs the machine: no names, no UUIDs, no serial numbers.
_HOST = ("driver", "driver_cuda", "kernel", "machine", "os", "glibc", "container", "wsl")
_GPU = ("name", "compute_capability", "memory_bytes")
_VERSIONS = ("tensorflow", "python", "cuda", "cudnn")


class NoCertificate(ValueError):
    """A statement that does not say what a certificate says."""


def statement(record: Record, report: Report, repository: str, *, issued: str, fixture: bool) -> bytes:
    """The statement of a record that may be certified; `report` is the record's own."""
    assert record.image_digest is not None and record.lock_digest is not None
    checks = {
        outcome: [check.id for check in report.checks if check.outcome is outcome] for outcome in CheckOutcome
    }
    passed, skipped = checks.pop(CheckOutcome.PASS), checks.pop(CheckOutcome.SKIP)
    failed = [check for names in checks.values() for check in names]
    predicate = {
        "result": "WARNED" if failed else "PASSED",
        "configuration": [
            {"name": "image", "annotations": {"spec": record.image, **_known(record.versions, _VERSIONS)}},
            {"name": "lock", "digest": {"sha256": record.lock_digest.removeprefix("sha256:")}},
            {"name": "probe", "annotations": {"version": report.probe_version}},
            {
                "name": "host",
                "annotations": {
                    "class": record.host_class,
                    **_known(report.host, _HOST),
                    "gpus": [_known(gpu, _GPU) for gpu in report.host["gpus"]],
                },
            },
            {
                "name": "record",
                "annotations": {"id": record.id, "started": record.started, "finished": record.finished},
            },
            {
                "name": "certificate",
                "annotations": {"issued": issued, "fixture": fixture, "skippedTests": skipped},
            },
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


def certificate_of(payload: bytes, digest: str, signer: str) -> Certificate:
    """What a statement certifies about the image of that digest.

    The signature is not looked at here. Raises NoCertificate with the reason.
    """
    document = _expect(_json(payload), dict, "the statement")
    if document.get("_type") not in (STATEMENT_V1, STATEMENT_V0_1):
        raise NoCertificate(f"it is no in-toto statement of a known version ({document.get('_type')!r})")
    if document.get("predicateType") != PREDICATE:
        raise NoCertificate(f"it is no test result but {document.get('predicateType')!r}")
    subjects = _expect(document.get("subject"), list, "subject")
    digests = [entry.get("digest") for entry in subjects if isinstance(entry, dict)]
    if {"sha256": digest.removeprefix("sha256:")} not in digests:
        raise NoCertificate("it is about another image")
    predicate = _expect(document.get("predicate"), dict, "predicate")
    if predicate.get("result") not in ("PASSED", "WARNED"):
        raise NoCertificate(f"its result is {predicate.get('result')!r}")
    try:
        return _certificate(predicate, digest, signer)
    except KeyError as error:
        raise NoCertificate(f"it is no certificate of this project: {error.args[0]} is missing") from None
    except ValueError as error:
        raise NoCertificate(f"it is no certificate of this project: {error}") from None


def _certificate(predicate: Mapping[str, Any], digest: str, signer: str) -> Certificate:
    parts = {
        str(entry.get("name")): entry
        for entry in _expect(predicate.get("configuration"), list, "configuration")
        if isinstance(entry, dict)
    }
    image, probe, host, record, certificate = (
        _expect(parts[name].get("annotations"), dict, name)
        for name in ("image", "probe", "host", "record", "certificate")
    )
    lock = "sha256:" + _text(_expect(parts["lock"].get("digest"), dict, "lock.digest"), "sha256")
    if not is_digest(lock):
        raise NoCertificate(f"lock: {lock} is no digest")
    gpus = tuple(
        GpuFacts(_text(gpu, "name"), _text(gpu, "compute_capability"))
        for gpu in _expect(host["gpus"], list, "host.gpus")
    )
    if not gpus:
        raise NoCertificate("it names no GPU")
    for gpu in gpus:
        _ = gpu.capability
    driver = str(DriverRelease.parse(_text(host, "driver")))
    return Certificate(
        image_digest=digest,
        image=_text(image, "spec"),
        host_class=_text(host, "class"),
        driver=driver,
        gpus=gpus,
        lock_digest=lock,
        probe_version=_text(probe, "version"),
        **{name: _text(image, name) for name in _VERSIONS},
        passed=_names(predicate, "passedTests"),
        skipped=_names(certificate, "skippedTests"),
        failed=_names(predicate, "failedTests"),
        record_id=_text(record, "id"),
        measured=_text(record, "finished"),
        issued=_text(certificate, "issued"),
        signer=signer,
        fixture=_expect(certificate["fixture"], bool, "fixture"),
    )


def _known(values: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: values[name] for name in names if values.get(name) is not None}


def _names(values: Mapping[str, Any], key: str) -> tuple[str, ...]:
    found = _expect(values.get(key), list, key)
    return tuple(_expect(name, str, key) for name in found)


def _text(values: Mapping[str, Any], key: str) -> str:
    text: str = _expect(values[key], str, key)
    return text


def _expect(value: object, kind: type, where: str) -> Any:
    if not isinstance(value, kind):
        raise NoCertificate(f"{where}: expected {kind.__name__}, found {type(value).__name__}")
    return value


def _json(payload: bytes) -> object:
    try:
        return json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise NoCertificate(f"it is no JSON: {error}") from None
