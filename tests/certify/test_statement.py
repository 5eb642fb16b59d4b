"""A statement is read back as it was written, has nothing about the machine's owner, and must be valid."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from validator.certify.acceptance import NotCertifiable, checked_report
from validator.certify.statement import PREDICATE, NoCertificate, read_statement, statement
from validator.model.codec import DocumentError, encode, format_timestamp
from validator.model.prediction import LONGEST_ERROR, Limit
from validator.model.record import (
    Certificate,
    Failure,
    GpuFacts,
    MeasurementError,
    OwnCheck,
    Verdict,
    read_verification,
    statement_of,
)
from validator.model.verdict import PROBE_VERSION, REQUIRED_CHECKS

from .fixtures import LIMIT, LOCK, MEASURED_AT, record, report, with_limits
from .measuring import measurement_of_record, outside_of

DIGEST = "sha256:" + "d" * 64
ISSUED = format_timestamp(MEASURED_AT + timedelta(minutes=30))
EXPIRES = format_timestamp(MEASURED_AT + timedelta(days=14))


def payload(found: dict[str, Any] | None = None, **changes: Any) -> bytes:
    made = record(DIGEST, found=found, **changes)
    own = checked_report(made, outside_of(made.host), MEASURED_AT + timedelta(hours=1))
    measurement = measurement_of_record(made, None)
    return statement(made, own, measurement, "registry.example/tf", issued=ISSUED, expires=EXPIRES)


def certificate_of(text: bytes) -> Certificate:
    found = read_statement(text, DIGEST, "key")
    assert isinstance(found, Certificate)
    return found


def failed_payload() -> bytes:
    found = copy.deepcopy(report())
    next(check for check in found["checks"] if check["id"] == "gpu_compute")["outcome"] = "fail"
    return payload(found, verdict=Verdict.FAILED)


OWN = "tf2.21.0+b3f1c2d4-cuda12.5-cudnn9.3-py312"
ORIGIN = f"https://host.test/tensorflow-2.21.0-cp312-cp312-linux_x86_64.whl#sha256=b3f1c2d4{'0' * 56}"


def test_a_certificate_says_where_a_wheel_that_no_table_lists_comes_from() -> None:
    text = payload(image=OWN, cell=f"{OWN}@r580-h100", tensorflow_wheel=ORIGIN)
    assert {"name": "wheel", "annotations": {"origin": ORIGIN}} in json.loads(text)["predicate"][
        "configuration"
    ]
    assert (certificate_of(text).image, certificate_of(text).tensorflow_wheel) == (OWN, ORIGIN)
    assert certificate_of(payload()).tensorflow_wheel is None and b"wheel" not in payload()


@pytest.mark.parametrize(
    "wrong",
    [
        {"image": OWN, "cell": f"{OWN}@r580-h100"},
        {
            "image": OWN,
            "cell": f"{OWN}@r580-h100",
            "tensorflow_wheel": ORIGIN.replace("b3f1c2d4", "00000000"),
        },
        {"tensorflow_wheel": ORIGIN},
    ],
)
def test_a_wheel_must_be_the_one_that_the_image_is_named_after(wrong: dict[str, Any]) -> None:
    made = record(DIGEST, **wrong)
    with pytest.raises(NotCertifiable, match=r"TensorFlow 2\.21\.0 was in the image"):
        checked_report(made, outside_of(made.host), MEASURED_AT + timedelta(hours=1))
    with pytest.raises(MeasurementError, match="tensorflow_wheel: "):
        statement_of(measurement_of_record(made, None))


def test_a_statement_is_a_test_result_of_in_toto() -> None:
    document = json.loads(payload())
    assert document["_type"] == "https://in-toto.io/Statement/v1"
    assert document["predicateType"] == "https://in-toto.io/attestation/test-result/v0.1"
    assert document["subject"] == [{"name": "registry.example/tf", "digest": {"sha256": "d" * 64}}]
    predicate = document["predicate"]
    assert set(predicate) == {"result", "configuration", "passedTests", "warnedTests", "failedTests"}
    # A check that is not required failed, and another was skipped.
    assert (predicate["result"], predicate["failedTests"]) == ("WARNED", ["xla_speedup"])
    assert predicate["passedTests"] == list(REQUIRED_CHECKS)
    parts = {entry["name"]: entry for entry in predicate["configuration"]}
    assert parts["lock"]["digest"] == {"sha256": LOCK.removeprefix("sha256:")}
    assert parts["certificate"]["annotations"]["skippedTests"] == ["multi_gpu"]


def test_the_users_own_checks_are_listed_with_their_files() -> None:
    own = (OwnCheck("ours/our_check", "ab" * 32, True), OwnCheck("ours/slow", "cd" * 32, False))
    made = record(DIGEST)
    measurement = msgspec.structs.replace(measurement_of_record(made, None), checks=own)
    told = {"issued": ISSUED, "expires": EXPIRES}
    text = statement(made, made.read_report(), measurement, "registry.example/tf", **told)
    assert certificate_of(text).checks == own
    parts = {entry["name"]: entry for entry in json.loads(text)["predicate"]["configuration"]}
    assert parts["ours/our_check"] == {
        "name": "ours/our_check", "digest": {"sha256": "ab" * 32}, "annotations": {"required": True},
    }  # fmt: skip
    assert certificate_of(payload()).checks == ()
    wrongs: tuple[dict[str, Any], ...] = ({"digest": {}}, {"annotations": {"required": "no"}})
    for wrong in wrongs:
        document = json.loads(text)
        document["predicate"]["configuration"].append({**parts["ours/our_check"], **wrong})
        with pytest.raises(NoCertificate, match=r"configuration\[8\]"):
            certificate_of(json.dumps(document).encode())


def limited_payload(*limits: Limit, **changes: Any) -> bytes:
    return payload(with_limits(report(), *limits), **changes)


def test_the_limits_of_the_record_are_signed_and_read_back() -> None:
    other = Limit("keras_jit_float32", LIMIT.gpu, "x" * 9)
    text = limited_payload(LIMIT, other)
    assert LIMITS_PART(json.loads(text)) == {
        "name": "limits", "annotations": {"limits": [encode(LIMIT), encode(other)]},
    }  # fmt: skip
    assert record(DIGEST, found=with_limits(report(), LIMIT, other)).limits == (LIMIT, other)
    found = certificate_of(text)
    assert found.limits == (LIMIT, other)
    assert read_verification(json.dumps({"certificates": [encode(found)]})).certificates == (found,)


def test_without_limits_a_statement_and_a_record_id_keep_their_bytes() -> None:
    """The digests are those of the version before there were limits."""
    at = "2026-11-20T01:02:00+00:00"
    check: dict[str, Any] = {
        "id": "driver",
        "outcome": "pass",
        "statement": None,
        "problems": [],
        "required": True,
        "evidence": {},
        "duration_s": 0.0,
    }
    found = report() | {"probe": {"version": "2.2.0+fixture"}, "checks": [check]}
    made = record(DIGEST, finished=at, found=found)
    measurement = measurement_of_record(made, None)
    told = {"issued": at, "expires": "2026-12-04T01:02:00+00:00"}
    text = statement(made, made.read_report(), measurement, "registry.example/tf", **told)
    assert made.id == "a2d76ee240c3c2e03a7380723218f20c"
    assert (
        hashlib.sha256(text).hexdigest() == "022afcbb54f1627ed578f4d6012d291bc06aa88c6f5e54c219ce86f17edc1666"
    )
    assert certificate_of(text).limits == () == made.limits


def test_a_failure_has_no_limits() -> None:
    found = with_limits(report(), LIMIT)
    next(check for check in found["checks"] if check["id"] == "gpu_compute")["outcome"] = "fail"
    assert b"limits" not in payload(found, verdict=Verdict.FAILED)


def test_the_error_of_a_limit_names_nobody_and_is_not_endless() -> None:
    error = (
        "in /home/secret-user/model.py on GPU-00000000-0000-0000-0000-000000000000: no algorithm" + "." * 5000
    )
    (found,) = certificate_of(limited_payload(Limit("xla_convolution_float32", "NVIDIA H200", error))).limits
    assert "secret" not in found.error and "GPU-" not in found.error
    assert "no algorithm" in found.error and len(found.error) == LONGEST_ERROR


def test_the_result_is_passed_if_nothing_failed() -> None:
    found = report()
    found["checks"] = [check for check in found["checks"] if check["outcome"] != "fail"]
    assert json.loads(payload(found))["predicate"]["result"] == "PASSED"


def test_a_certificate_agrees_with_the_record() -> None:
    made = record(DIGEST)
    assert certificate_of(payload()) == Certificate(
        image_digest=DIGEST,
        image=made.image,
        host_class="r580-h100",
        driver="580.65.06",
        gpus=(GpuFacts("NVIDIA H100 80GB HBM3", "9.0"),),
        lock_digest=LOCK,
        probe_version=f"{PROBE_VERSION}+fixture",
        tensorflow="2.21.0",
        python="3.12.7",
        cuda="12.5.82",
        cudnn="9.3.0",
        passed=REQUIRED_CHECKS,
        skipped=("multi_gpu",),
        failed=("xla_speedup",),
        record_id=made.id,
        measured=made.finished,
        issued=ISSUED,
        expires=EXPIRES,
        signer="key",
        fixture=True,
    )


def test_a_failure_agrees_with_the_record() -> None:
    document = json.loads(failed_payload())
    assert document["predicate"]["result"] == "FAILED"
    assert read_statement(failed_payload(), DIGEST, "key") == Failure(
        image_digest=DIGEST,
        image="tf2.21.0-cuda12.5-cudnn9.3-py312",
        host_class="r580-h100",
        driver="580.65.06",
        gpus=(GpuFacts("NVIDIA H100 80GB HBM3", "9.0"),),
        failed=("gpu_compute", "xla_speedup"),
        record_id=PART_RECORD(document)["annotations"]["id"],
        measured=format_timestamp(MEASURED_AT),
        issued=ISSUED,
        signer="key",
        fixture=True,
    )


def test_without_a_report_the_host_is_described_as_its_runner_saw_it() -> None:
    made = record(DIGEST, verdict=Verdict.FAILED, report=None, checks=[], versions={})
    assert checked_report(made, outside_of(made.host), MEASURED_AT + timedelta(hours=1)) is None
    text = statement(
        made, None, measurement_of_record(made, None), "registry.example/tf", issued=ISSUED, expires=EXPIRES
    )
    assert b"GPU-" not in text
    found = read_statement(text, DIGEST, "key")
    assert isinstance(found, Failure)
    assert (found.driver, found.gpus) == ("580.65.06", (GpuFacts("NVIDIA H100 80GB HBM3", "9.0"),))
    assert found.why == f"it failed on r580-h100 (the probe wrote no report), measured {made.finished}"


@pytest.mark.parametrize(
    "change",
    [
        lambda host: host.pop("driver"),
        lambda host: host.update(driver="newest"),
        lambda host: host.update(gpus=[{"name": "NVIDIA H100 80GB HBM3"}]),
        lambda host: host.update(gpus=[{"name": "x", "compute_capability": "new"}]),
    ],
)
def test_a_failure_counts_even_if_the_probe_read_little(change: Callable[[dict[str, Any]], object]) -> None:
    document = json.loads(failed_payload())
    change(HOST(document)["annotations"])
    found = read_statement(json.dumps(document).encode(), DIGEST, "key")
    assert isinstance(found, Failure)
    assert (found.host_class, found.failed) == ("r580-h100", ("gpu_compute", "xla_speedup"))


def test_a_certificate_is_read_back_from_json() -> None:
    certificate = certificate_of(payload())
    written = json.dumps({"certificates": [encode(certificate)], "refused": []})
    assert read_verification(written).certificates == (certificate,)
    with pytest.raises(DocumentError, match=r"certificates\[0\]\.image: missing"):
        read_verification(json.dumps({"certificates": [{"image_digest": DIGEST}]}))


def test_nothing_about_the_machine_s_owner_is_published() -> None:
    found = report()
    found["host"] |= {"hostname": "secret-host", "user": "secret-user", "serial": "secret-serial"}
    found["host"]["gpus"][0] |= {"serial": "secret-serial", "pci": "secret-pci"}
    found["environment"]["variables"] = {"HOME": "/home/secret-user"}
    found["logs"] = {"tensorflow_stderr": "secret-log"}
    text = payload(found).decode()
    assert "secret" not in text
    assert "GPU-" not in text
    assert "580.65.06" in text


def _part(name: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def find(document: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = next(
            entry for entry in document["predicate"]["configuration"] if entry["name"] == name
        )
        return found

    return find


HOST, LOCK_PART, CERTIFICATE = _part("host"), _part("lock"), _part("certificate")
PART_RECORD, LIMITS_PART = _part("record"), _part("limits")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda d: d.update(_type="https://in-toto.io/Statement/v9"), "known version"),
        (lambda d: d.update(predicateType="https://slsa.dev/provenance/v1"), "not a test result"),
        (lambda d: d.update(subject=[]), "another image"),
        (lambda d: d["subject"][0]["digest"].update(sha256="e" * 64), "another image"),
        (lambda d: d["predicate"].update(result="SKIPPED"), "its result is 'SKIPPED'"),
        (lambda d: CERTIFICATE(d)["annotations"].pop("expires"), "certificate.expires: missing"),
        (lambda d: d["predicate"].update(configuration=[]), "configuration.image: missing"),
        (lambda d: d["predicate"].update(configuration=None), "configuration"),
        (lambda d: HOST(d).update(annotations=None), "host"),
        (lambda d: HOST(d)["annotations"].update(gpus=[]), "names no GPU"),
        (
            lambda d: HOST(d)["annotations"].update(gpus=[{"name": "x"}]),
            "host.gpus[0].compute_capability: missing",
        ),
        (
            lambda d: HOST(d)["annotations"]["gpus"][0].update(compute_capability="new"),
            "not a compute capability",
        ),
        (lambda d: HOST(d)["annotations"].update(driver="newest"), "not a driver release"),
        (lambda d: LOCK_PART(d)["digest"].update(sha256="abc"), "not a digest"),
        (lambda d: CERTIFICATE(d)["annotations"].update(fixture="no"), "fixture"),
        (
            lambda d: CERTIFICATE(d)["annotations"].pop("fixture"),
            "certificate.fixture: missing",
        ),
        (lambda d: d["predicate"].update(passedTests=[1]), "passedTests"),
        (lambda d: LIMITS_PART(d).pop("annotations"), "configuration.limits"),
        (lambda d: LIMITS_PART(d)["annotations"].pop("limits"), "configuration.limits.limits: missing"),
        (lambda d: LIMITS_PART(d)["annotations"].update(limits="none"), "configuration.limits.limits"),
        (
            lambda d: LIMITS_PART(d)["annotations"]["limits"][0].pop("code"),
            "configuration.limits.limits[0].code: missing",
        ),
        (
            lambda d: d["predicate"]["configuration"].append(
                {"name": "limits", "annotations": {"limits": []}}
            ),
            "its configuration has 2 entries with the name limits",
        ),
    ],
)
def test_anything_but_a_certificate_is_rejected(change: Callable[[dict[str, Any]], object], why: str) -> None:
    document = copy.deepcopy(json.loads(limited_payload(LIMIT)))
    change(document)
    with pytest.raises(NoCertificate) as caught:
        certificate_of(json.dumps(document).encode())
    assert why in str(caught.value)


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b"null", b"\xff", b"[" * 100_000])
def test_anything_but_a_statement_is_rejected(text: bytes) -> None:
    with pytest.raises(NoCertificate):
        certificate_of(text)


def test_the_older_statement_of_cosign_is_read() -> None:
    document = json.loads(payload()) | {"_type": "https://in-toto.io/Statement/v0.1"}
    assert certificate_of(json.dumps(document).encode()).tensorflow == "2.21.0"
    assert document["predicateType"] == PREDICATE
