"""`./measure` with the tool of the bundle: without a network, only this way ends in something certifiable."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from validator.certify.acceptance import believed
from validator.certify.trust import TrustFile
from validator.cli import signing as received
from validator.engines.protocol import ProbeRequest
from validator.model.codec import encode, now_utc
from validator.model.measurement import measurement_of
from validator.model.record import Record, Verdict, read_record
from validator.model.spec import Choice, ImageSpec, Variant
from validator.pipeline.measuring import Question
from validator.pipeline.run import Runner
from validator.system.processes import Progress

from ..pipeline.fakes import H100, FakeEngine, outside_of, report

SPEC = ImageSpec("2.21.0", "3.11", Variant.GPU, Choice("as-built", "12.5"), Choice("as-built", "9.3"))
DIGEST, LOCK, CHALLENGE = "sha256:" + "a" * 64, "sha256:" + "b" * 64, "c" * 64


@dataclasses.dataclass
class OfflineEngine(FakeEngine):
    """Repeats the challenge of a request, as the probe does."""

    def probe_image(self, image: str, request: ProbeRequest, progress: Progress) -> bytes:
        assert (image, request.archive, request.files) == ("sha256:id", b"probe", {"lock.txt": b"lock"})
        words = request.arguments
        return json.dumps(
            json.loads(report(H100)) | {"challenge": words[words.index("--challenge") + 1]}
        ).encode()


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Runner | None], Record]:
    """Return a function that measures the image of a bundle on a machine with an emulated H100."""
    question = Question(
        image=SPEC.identifier, variant=Variant.GPU, lock_digest=LOCK, probe_version="2.3.0+test",
        depth="quick", key="", engine="bundle", image_digest=DIGEST, challenge=CHALLENGE,
    )  # fmt: skip
    image = {
        "tag": "a", "digest": DIGEST, "lock": "lock", "probe": "probe", "timeout_s": 60.0,
        "arguments": ["--lock", "lock.txt", "--challenge", CHALLENGE], "question": encode(question),
    }  # fmt: skip
    (tmp_path / "bundle.json").write_text(json.dumps({"format": 1, "images": [image]}))
    for name in ("lock", "probe"):
        (tmp_path / name).write_text(name)
    images = SimpleNamespace(get=lambda reference: SimpleNamespace(id="sha256:id"))
    endpoint = SimpleNamespace(client=SimpleNamespace(images=images))
    loaded: list[tuple[Any, ...]] = []
    monkeypatch.setattr(received, "connect", lambda: endpoint)
    monkeypatch.setattr(received, "load_from_layout", lambda *arguments: loaded.append(arguments[1:4]))
    monkeypatch.setattr(received, "DockerEngine", lambda endpoint: OfflineEngine(seen=outside_of(H100)))

    def measure(runner: Runner | None) -> Record:
        monkeypatch.setattr(received, "runner_of", lambda engine, trust, asked: runner if asked else None)
        monkeypatch.setattr(sys, "argv", ["measure", str(tmp_path), "a", "docker", str(tmp_path / "out")])
        assert received.measure_received() == 0
        assert loaded[-1] == (f"tensorflow-gpu-matrix:{SPEC.identifier}", tmp_path / "images", DIGEST)
        return read_record((tmp_path / "out").read_bytes())

    return measure


def test_a_runner_signs_as_on_line(measured: Callable[[Runner | None], Record]) -> None:
    signed: list[bytes] = []

    def sign(statement: bytes) -> str:
        signed.append(statement)
        return "signature"

    record = measured(Runner(sign, lambda cell: "0" * 64))
    assert (record.verdict, record.measurement) == (Verdict.CERTIFIED, "signature")
    assert record.cell == f"{SPEC.identifier}@r580-h100"
    [statement] = signed
    said = measurement_of(statement)
    assert (said.challenge, said.image_digest, said.lock_digest) == (CHALLENGE, DIGEST, LOCK)
    assert said.outside == outside_of(H100)


def test_without_the_runners_key_nothing_counts_elsewhere(
    measured: Callable[[Runner | None], Record],
) -> None:
    record = believed(measured(None), TrustFile(), now_utc())
    assert record.verdict is Verdict.UNPROVEN
    assert record.reason == "claimed, but not proven: no runner signed its measurement"
