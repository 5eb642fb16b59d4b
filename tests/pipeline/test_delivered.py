"""Measure an image of a bundle as online, and read what `./measure` wrote without the tool.

The latter becomes a record that can never be certified.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from validator.certify.acceptance import NotCertifiable, believed, check_record
from validator.certify.trust import TrustFile
from validator.engines.protocol import ProbeRequest
from validator.fleet.inside import frame
from validator.model.codec import encode, now_utc
from validator.model.record import Origin, Record, RecordError, Verdict, measurement_of
from validator.model.spec import Choice, ImageSpec, Variant
from validator.offline.receive import Bundle, Image
from validator.pipeline.bundle import measure, read_line
from validator.pipeline.measuring import Question
from validator.pipeline.run import Runner

from .fakes import H100, FakeEngine, outside_of, report

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
A100 = {"name": "NVIDIA A100-SXM4-40GB", "compute_capability": "8.0", "uuid": "GPU-A100"}
#: A machine with GPUs of two models.
BOTH = {**H100, "gpus": [*H100["gpus"], A100]}


def delivered(
    found: bytes | None, *, engine: str = "docker", isolates: bool = True, nvml: Any = NVML,
    gpus: tuple[str, ...] = ("GPU-H100",), **changes: Any,
) -> bytes:  # fmt: skip
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
        "image_digest": DIGEST, "gpus": gpus,
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


def test_gpus_of_two_models_are_one_record_where_the_tool_can_not_run() -> None:
    """It names both, because the program saw both at once."""
    gpus = [{**NVML["gpus"][0]}, {**A100, "bus": "00000000:5E:00.0"}]
    address = {"0000:5e:00.0": f"Model: \t {A100['name']}\nGPU UUID: \t GPU-A100\n"}
    nvml = {**NVML, "gpus": gpus, "information": {**NVML["information"], **address}}
    found = json.dumps(json.loads(report(BOTH)) | {"challenge": CHALLENGE}).encode()
    record = read_line(delivered(found, nvml=nvml, gpus=("GPU-H100", "GPU-A100")))
    assert record.cell == f"{SPEC.identifier}@r580-h100+a100"
    assert [gpu.uuid for gpu in record.facts.gpus] == ["GPU-H100", "GPU-A100"]
    assert (record.verdict, record.reason.endswith("an imported report")) == (Verdict.UNPROVEN, True)


# With the tool of the bundle.

Measured = Callable[..., list[Record]]


@pytest.fixture
def measured(tmp_path: Path) -> Measured:
    """Return a function that measures the image of a bundle on a machine with emulated GPUs."""
    for name in ("lock", "probe"):
        (tmp_path / name).write_text(name)
    question = Question(
        image=SPEC.identifier, variant=Variant.GPU, lock_digest=LOCK, probe_version="2.3.0+test",
        depth="quick", key="", engine="", image_digest=DIGEST,
    )  # fmt: skip

    def run(
        runner: Runner | None, challenges: Mapping[str, str], host: dict[str, Any] = H100, said: Any = print
    ) -> list[Record]:
        image = Image(
            tag="a", digest=DIGEST, image=SPEC.identifier, source="a", lock="lock", probe="probe",
            arguments=("--lock", "lock.txt"), timeout_s=60.0, challenges=dict(challenges),
            question=encode(question),
        )  # fmt: skip

        def probe(request: ProbeRequest) -> bytes:
            assert (request.archive, request.files) == (b"probe", {"lock.txt": b"lock"})
            offered = [gpu for gpu in host["gpus"] if not request.gpus or gpu["uuid"] in request.gpus]
            words = request.arguments
            asked = words[words.index("--challenge") + 1] if "--challenge" in words else None
            found = json.loads(report({**host, "gpus": offered}))
            return json.dumps(found | {"challenge": asked}).encode()

        engine = FakeEngine(seen=outside_of(host))
        bundle = Bundle((image,), {}, (), tuple(HOSTS))
        return list(measure(tmp_path, bundle, image, engine, probe, runner, said))

    return run


@pytest.fixture
def signed() -> list[bytes]:
    """Return what `runner` signed."""
    return []


@pytest.fixture
def runner(signed: list[bytes]) -> Runner:
    def sign(statement: bytes) -> str:
        signed.append(statement)
        return "signature"

    return Runner(sign, lambda cell: pytest.fail("whoever certifies makes the challenges"))


def test_a_runner_signs_as_on_line(measured: Measured, runner: Runner, signed: list[bytes]) -> None:
    for asked in (SPEC.identifier, f"{SPEC.identifier}@r580-h100"):
        [record] = measured(runner, {asked: CHALLENGE})
        assert (record.verdict, record.measurement) == (Verdict.CERTIFIED, "signature")
        assert record.cell == f"{SPEC.identifier}@r580-h100"
        said = measurement_of(signed.pop())
        assert (said.challenge, said.image_digest, said.lock_digest) == (CHALLENGE, DIGEST, LOCK)
        assert said.outside == outside_of(H100)


def test_without_the_runners_key_nothing_counts_elsewhere(measured: Measured) -> None:
    [made] = measured(None, {SPEC.identifier: CHALLENGE})
    record = believed(made, TrustFile(), now_utc())
    assert record.verdict is Verdict.UNPROVEN
    assert record.reason == "claimed, but not proven: no runner signed its measurement"


def test_each_gpu_model_gets_its_record_and_the_challenge_that_was_made_for_it(
    measured: Measured, runner: Runner, signed: list[bytes]
) -> None:
    """The second model of the machine is the one that somebody asked for."""
    lines: list[str] = []
    cells = [f"{SPEC.identifier}@{host_class}" for host_class in ("r580-h100", "r580-a100")]
    records = measured(runner, {cells[1]: CHALLENGE}, BOTH, lines.append)
    assert [record.cell for record in records] == cells
    assert [[gpu.uuid for gpu in record.facts.gpus] for record in records] == [["GPU-H100"], ["GPU-A100"]]
    said = [measurement_of(statement) for statement in signed]
    assert [one.challenge for one in said] == [None, CHALLENGE]
    assert [[gpu.uuid for gpu in one.outside.gpus] for one in said] == [["GPU-H100"], ["GPU-A100"]]
    assert f"{cells[0]}: NVIDIA H100 80GB HBM3 (GPU-H100)" in lines
    assert f"{cells[1]}: NVIDIA A100-SXM4-40GB (GPU-A100)" in lines
    assert f"{cells[0]}: can't be certified: the challenges in the bundle are for {cells[1]}" in lines
    signed.clear()
    measured(runner, dict.fromkeys(cells, CHALLENGE), BOTH)
    assert [measurement_of(statement).challenge for statement in signed] == [CHALLENGE, CHALLENGE]
    # One for the image, whatever the GPU, could be used up by the wrong one.
    signed.clear()
    measured(runner, {SPEC.identifier: CHALLENGE}, BOTH)
    assert [measurement_of(statement).challenge for statement in signed] == [None, None]
