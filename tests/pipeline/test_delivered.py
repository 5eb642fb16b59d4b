"""Read what `./measure` wrote without the tool: it becomes a record that can never be certified."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from validator.certify.acceptance import NotCertifiable, check_record
from validator.fleet.inside import frame
from validator.model.codec import encode
from validator.model.record import Origin, RecordError, Verdict
from validator.model.spec import Choice, ImageSpec, Variant
from validator.pipeline.delivered import read_line
from validator.pipeline.measuring import Question

from .fakes import H100, report

SPEC = ImageSpec("2.21.0", "3.11", Variant.GPU, Choice("as-built", "12.5"), Choice("as-built", "9.3"))
DIGEST, LOCK, CHALLENGE = "sha256:" + "a" * 64, "sha256:" + "b" * 64, "c" * 64
UNIT = "validator-a"
#: NVML's and the kernel's answer on the host of `H100`.
NVML = {
    "driver": H100["driver"],
    "gpus": [{**H100["gpus"][0], "bus": "00000000:3B:00.0"}],
    "version": f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {H100['driver']}  Release Build",
    "information": {"0000:3b:00.0": f"Model: \t {H100['gpus'][0]['name']}\nGPU UUID: \t GPU-H100\n"},
}
HOSTS = [{"identifier": "r580-h100", "driver": "580", "capability": "9.0", "gpu": "H100"}]


def delivered(
    found: bytes | None, *, engine: str = "docker", isolates: bool = True, nvml: Any = NVML, **changes: Any
) -> bytes:
    """Return a line of the output. found: the report. changes: other fields of the line."""
    ending = {
        "status": 0 if found else 1, "timed_out": False, "overflow": False, "limit_s": 60.0,
        "last_line": "no luck", "report": None, "length": len(found or b""),
        "started": "2026-11-27T10:00:00.000Z", "finished": "2026-11-27T10:05:00.000Z",
    }  # fmt: skip
    inside = b""
    if found is not None:
        ending["report"] = hashlib.sha256(found).hexdigest()
        inside = frame("report", found)
    node = {
        "unit": UNIT, "job": "", "restart": "0", "node": "", "engine": engine, "isolates": isolates,
        "image_digest": DIGEST, "gpus": ["GPU-H100"],
    }  # fmt: skip
    frames = {
        "node": json.dumps(node).encode(),
        "outside": json.dumps(nvml).encode(),
        "output": inside + frame("ending", json.dumps(ending).encode()),
    }
    question = Question(
        image=SPEC.identifier, variant=Variant.GPU, lock_digest=LOCK, probe_version="2.3.0+test",
        depth="quick", key="", engine="", image_digest=DIGEST, challenge=CHALLENGE,
    )  # fmt: skip
    line = {
        "bundle": 1, "question": encode(question), "hosts": HOSTS, "unit": UNIT,
        "result": b"".join(frame(name, content) for name, content in frames.items()).decode(),
    }  # fmt: skip
    return json.dumps(line | changes).encode()


def passing(**changes: Any) -> bytes:
    """Return the report of a machine on which everything passed, with the challenge."""
    return json.dumps(json.loads(report(H100)) | {"challenge": CHALLENGE} | changes).encode()


@pytest.mark.parametrize(
    ("engine", "isolates"),
    [("docker", True), ("podman", True), ("apptainer", True), ("namespace", True), ("chroot", False)],
)
def test_the_best_report_is_unproven_in_every_way_without_a_signature(engine: str, isolates: bool) -> None:
    record = read_line(delivered(passing(), engine=engine, isolates=isolates))
    assert (record.verdict, record.origin, record.measurement) == (Verdict.UNPROVEN, Origin.ELSEWHERE, None)
    assert record.reason.endswith("according to an imported report")
    assert record.cell == f"{SPEC.identifier}@r580-h100"
    assert (record.image_digest, record.lock_digest, record.engine) == (DIGEST, LOCK, engine)
    assert record.finished == "2026-11-27T10:05:00.000Z"
    with pytest.raises(NotCertifiable):
        check_record(record)


def test_no_field_of_a_line_makes_it_count() -> None:
    line = json.loads(delivered(passing()))
    for origin in ("here", "elsewhere", "rehearsal"):
        line["question"]["origin"] = origin
        record = read_line(json.dumps(line).encode())
        assert (record.verdict, record.origin) == (Verdict.UNPROVEN, Origin.ELSEWHERE)
    for added in ({"measurement": "{}"}, {"verdict": "certified"}):
        with pytest.raises(RecordError, match="unknown"):
            read_line(json.dumps(line | added).encode())


@pytest.mark.parametrize(
    ("found", "nvml", "reason"),
    [
        (passing(challenge="d" * 64), NVML, "does not repeat the challenge"),
        (passing(challenge=None), NVML, "does not repeat the challenge"),
        (
            passing(),
            {**NVML, "driver": "570.1.2", "version": "Module  570.1.2 "},
            "the host has driver 570.1.2",
        ),
        (passing(), {}, "imported report"),
    ],
)
def test_what_the_host_and_the_bundle_say_is_compared(found: bytes, nvml: Any, reason: str) -> None:
    record = read_line(delivered(found, nvml=nvml))
    assert record.verdict is Verdict.UNPROVEN
    assert reason in record.reason


def test_a_failure_is_recorded_for_the_host_class_that_the_host_shows() -> None:
    record = read_line(delivered(None))
    assert (record.verdict, record.cell) == (Verdict.FAILED, f"{SPEC.identifier}@r580-h100")
    assert "no luck" in record.reason
    with pytest.raises(NotCertifiable, match="imported from elsewhere"):
        check_record(record)


def test_a_failure_in_a_chroot_is_not_the_images() -> None:
    failing = json.dumps(json.loads(report(H100, xla_train_step="fail")) | {"challenge": CHALLENGE}).encode()
    assert read_line(delivered(failing, engine="namespace")).verdict is Verdict.FAILED
    record = read_line(delivered(failing, engine="chroot", isolates=False))
    assert record.verdict is Verdict.UNPROVEN
    assert (
        "in a chroot, a failure may be the machine's" in record.reason and "xla_train_step" in record.reason
    )


def test_the_image_of_somebody_else_is_named_after_its_packages() -> None:
    record = read_line(delivered(passing(), question=None))
    assert (record.image, record.image_digest) == ("tf2.21.0-cpu-py311", DIGEST)
    assert record.verdict is Verdict.UNPROVEN


@pytest.mark.parametrize(
    "changes",
    [
        {"bundle": 2}, {"result": ""}, {"unit": "another"}, {"hosts": [{}]}, {"question": {}},
        {"result": "tfm-frame node 3 " + "0" * 64 + "\n"},
    ],
)  # fmt: skip
def test_a_line_that_is_damaged_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(RecordError, match="not a record"):
        read_line(delivered(passing(), **changes))
