"""The statement that a runner signs: one way to write it, and only that way is read."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from validator.model import record as module
from validator.model.record import (
    GpuIdentity,
    Measurement,
    MeasurementError,
    Outside,
    OwnCheck,
    is_challenge,
    labelled,
    measurement_of,
    report_digest,
    statement_of,
)

DIGEST = f"sha256:{'ab' * 32}"
GPU = GpuIdentity("GPU-11111111-2222-3333-4444-555555555555", "NVIDIA H100 80GB HBM3", "9.0")
MEASUREMENT = Measurement(
    image_digest=DIGEST,
    image="tf2.21.0-cuda12.5-cudnn9.3-py312",
    host_class="r580-h100",
    cell="tf2.21.0-cuda12.5-cudnn9.3-py312@r580-h100",
    lock_digest=f"sha256:{'cd' * 32}",
    report_digest=f"sha256:{'ef' * 32}",
    challenge="01" * 32,
    outside=Outside("580.65.06", "580.65.06", (GPU,)),
    probe_version="2.0.0+0123456789ab",
    started="2026-11-01T00:00:00.000+00:00",
    finished="2026-11-01T00:01:00.000+00:00",
    depth="quick",
    fixture=False,
)

ONE = {"id": "ours/our_check", "sha256": "ab" * 32, "required": True}
OWN = (OwnCheck("ours/our_check", "ab" * 32, True), OwnCheck("ours/slow", "cd" * 32, False))
# The digest of the statement of MEASUREMENT.
STATEMENT_OF_2_1_0 = "46286c5b00ae7c0b8acb857bd193e0aee6f39ad6929a2e9b267650fc114845ae"


def changed(**fields: Any) -> bytes:
    """Return the statement with other values in its predicate; a value of `...` removes the field."""
    document = json.loads(statement_of(MEASUREMENT))
    document["predicate"] |= fields
    document["predicate"] = {key: value for key, value in document["predicate"].items() if value is not ...}
    return canonical(document)


def canonical(document: object) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


@pytest.mark.parametrize(
    "measurement",
    [
        MEASUREMENT,
        msgspec.structs.replace(MEASUREMENT, report_digest=None, challenge=None, fixture=True),
        msgspec.structs.replace(MEASUREMENT, outside=Outside(None, None, ())),
        msgspec.structs.replace(MEASUREMENT, checks=OWN),
        msgspec.structs.replace(MEASUREMENT, outside=labelled("580", "NVIDIA-H100-80GB-HBM3", "9.0", 2)),
    ],
)
def test_a_measurement_is_read_back_from_its_statement(measurement: Measurement) -> None:
    assert measurement_of(statement_of(measurement)) == measurement


def test_without_checks_of_the_users_own_the_statement_is_that_of_older_versions() -> None:
    assert "checks" not in json.loads(statement_of(MEASUREMENT))["predicate"]
    # The bytes that version 2.1.0 signed.
    assert hashlib.sha256(statement_of(MEASUREMENT)).hexdigest() == STATEMENT_OF_2_1_0
    with pytest.raises(MeasurementError):
        measurement_of(changed(checks=[]))


def test_the_statement_is_about_the_image() -> None:
    document = json.loads(statement_of(MEASUREMENT))
    assert document["_type"] == "https://in-toto.io/Statement/v1"
    assert document["predicateType"] == module.PREDICATE
    assert document["subject"] == [{"name": MEASUREMENT.image, "digest": {"sha256": "ab" * 32}}]
    assert "image_digest" not in document["predicate"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"checks": [{**ONE, "id": "driver"}]},
            "checks: 'driver' is not the id of a check of the user's own",
        ),
        ({"checks": [{**ONE, "id": "ours/../x"}]}, "is not the id of a check of the user's own"),
        ({"checks": [{**ONE, "sha256": "AB" * 32}]}, "is not a SHA-256 digest"),
        ({"checks": [ONE, ONE]}, "checks: they are not sorted by id, or one is listed twice"),
        ({"checks": [{**ONE, "required": 1}]}, "expected `bool`, got `int`"),
        ({"surplus": 1}, "predicate: object contains unknown field `surplus`"),
        ({"depth": ...}, "predicate.depth: missing"),
        ({"depth": "deep"}, "depth: 'deep' is neither quick nor full"),
        ({"fixture": 0}, "predicate.fixture: expected `bool`, got `int`"),
        ({"challenge": "01" * 31}, "challenge: it is not 64 lowercase hexadecimal digits"),
        ({"challenge": "AB" * 32}, "challenge: it is not 64 lowercase hexadecimal digits"),
        ({"report_digest": "sha256:00"}, "report_digest: 'sha256:00' is not a SHA-256 digest"),
        ({"cell": "tf2.21.0-cpu-py312@r580-h100"}, "is not the image and the host class"),
        ({"finished": "zzzz"}, "finished: 'zzzz' is not a timestamp"),
        ({"finished": "2026-10-31T00:00:00Z"}, "finished: 2026-10-31T00:00:00Z is before the start"),
        ({"outside": {"driver": "a\n::error::", "kernel_driver": None, "gpus": []}}, "not a driver release"),
        ({"outside": {"driver": None, "gpus": []}}, "outside.kernel_driver: missing"),
    ],
)
def test_another_statement_is_rejected_with_the_place(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(MeasurementError) as caught:
        measurement_of(changed(**fields))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("_type", "https://in-toto.io/Statement/v0.1", "_type: it is"),
        ("predicateType", "https://slsa.dev/provenance/v1", "predicateType: it is"),
        ("subject", [], "subject: there are 0 subjects, not one"),
        ("subject", [{"name": "a", "digest": {"sha256": "../x"}}], "image_digest: 'sha256:../x' is not"),
        ("subject", [{"name": "other", "digest": {"sha256": "ab" * 32}}], "canonical form"),
        ("extra", 1, "unknown field `extra`"),
    ],
)
def test_another_envelope_is_rejected_with_the_place(name: str, value: object, message: str) -> None:
    document = json.loads(statement_of(MEASUREMENT))
    with pytest.raises(MeasurementError) as caught:
        measurement_of(canonical({**document, name: value}))
    assert message in str(caught.value)


def test_the_same_values_in_other_bytes_are_rejected() -> None:
    payload = statement_of(MEASUREMENT)
    again = payload.replace(b'"depth":"quick"', b'"depth":"full","depth":"quick"')
    for other in (payload + b"\n", json.dumps(json.loads(payload), indent=1).encode(), again):
        assert json.loads(other) == json.loads(payload)
        with pytest.raises(MeasurementError, match="canonical form"):
            measurement_of(other)


@pytest.mark.parametrize(
    "gpus",
    [
        (GPU, GPU),
        (GPU, msgspec.structs.replace(GPU, uuid="GPU-0")),
        (msgspec.structs.replace(GPU, compute_capability="nine"),),
        (msgspec.structs.replace(GPU, name="\udcff"),),
    ],
)
def test_a_reading_that_no_driver_gives_is_not_written(gpus: tuple[GpuIdentity, ...]) -> None:
    with pytest.raises(MeasurementError):
        statement_of(msgspec.structs.replace(MEASUREMENT, outside=Outside("580.65.06", None, gpus)))


LABELS = labelled("580.65.06", "NVIDIA-H100-80GB-HBM3", "9.0", 2)


def test_only_facts_that_are_not_the_hosts_name_their_source() -> None:
    """So what was signed before there were other sources keeps its bytes: see STATEMENT_OF_2_1_0."""
    assert "source" not in json.loads(statement_of(MEASUREMENT))["predicate"]["outside"]
    labels = json.loads(statement_of(msgspec.structs.replace(MEASUREMENT, outside=LABELS)))["predicate"][
        "outside"
    ]
    assert labels["source"] == "node-labels"
    with pytest.raises(MeasurementError, match="canonical form"):
        measurement_of(changed(outside=msgspec.to_builtins(MEASUREMENT.outside)))


@pytest.mark.parametrize(
    "outside",
    [
        msgspec.structs.replace(LABELS, gpus=(GPU,)),
        msgspec.structs.replace(LABELS, kernel_driver="580.65.06"),
        msgspec.structs.replace(LABELS, driver="580-open"),
        Outside("580", None, (GPU,)),
    ],
)
def test_what_labels_cant_say_is_not_written(outside: Outside) -> None:
    with pytest.raises(MeasurementError, match="outside"):
        statement_of(msgspec.structs.replace(MEASUREMENT, outside=outside))


def test_a_source_that_nobody_knows_is_rejected() -> None:
    other = {**msgspec.to_builtins(LABELS), "source": "hearsay"}
    with pytest.raises(MeasurementError, match=r"predicate\.outside\.source"):
        measurement_of(changed(outside=other))


@given(st.binary(max_size=80), st.integers(0, 900), st.integers(0, 20))
def test_mutated_bytes_give_the_measurement_or_an_error(inserted: bytes, at: int, removed: int) -> None:
    payload = statement_of(MEASUREMENT)
    mutated = payload[:at] + inserted + payload[at + removed :]
    try:
        found = measurement_of(mutated)
    except MeasurementError:
        return
    assert statement_of(found) == mutated


def test_a_report_has_the_same_digest_whatever_its_layout() -> None:
    one = {"b": [1, 2.5], "a": {"text": "é\udcff"}}
    other = json.loads(json.dumps(one, indent=2, sort_keys=True))
    assert report_digest(one) == report_digest(other)
    assert report_digest(one) != report_digest({**one, "b": [1, 2.25]})
    assert report_digest({}) == f"sha256:{'44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a'}"


@pytest.mark.parametrize(
    ("text", "good"), [("0f" * 32, True), ("0F" * 32, False), ("0f" * 33, False), ("0f" * 32 + "\n", False)]
)
def test_a_challenge_is_64_hexadecimal_digits(text: str, good: bool) -> None:
    assert is_challenge(text) is good
