"""`build-matrix` makes this machine's key, registers it, and says what can't be certified."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from validator import cli
from validator.certify.signatures import NotVerified, parse_bundle, verify
from validator.certify.trust import Ledger
from validator.certify.trust_file import RUNNERS, make_own_key, read_trust_file
from validator.cli import building
from validator.cli.building import fleet_runner_of, runner_of
from validator.errors import MissingError
from validator.model.record import (
    PREDICATE,
    Outside,
    Record,
    Unread,
    Verdict,
    labelled,
    measurement_of,
    read_record,
    statement_of,
)
from validator.model.spec import Variant
from validator.model.verdict import PROBE_VERSION
from validator.offline.receive import MANIFEST, Bundle, Image
from validator.pipeline.measuring import ProbeRun, Question, record_of
from validator.system.files import machine_directory

from ..loop import tiers
from ..model.test_measurement import GPU, MEASUREMENT
from ..pipeline.fakes import FakeEngine
from ..records.values import DRIVER, document, record

ROOT = Path(__file__).parents[2]
SEEN = Outside("580.65.06", "580.65.06", (GPU,))
FILE = json.dumps(
    {"include": [{"id": "cell", "challenge": "ab" * 32, "issued": "2026-11-22T00:00:00+00:00"}]}
)


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a machine without a key."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


@pytest.fixture
@tiers.service
def cosign() -> None:
    if shutil.which("cosign") is None:
        pytest.skip("cosign is not installed")


def test_an_error_with_one_gpu_model_keeps_the_records_of_those_before(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = Image("a", "sha256:" + "a" * 64, "image", "a", "lock", "probe", (), 60.0, {}, {})
    seen: list[str] = []

    def measured(*_: object) -> Iterator[Record]:
        yield record()
        raise MissingError("the engine has stopped")

    (machine / MANIFEST).write_bytes(b"")
    output = machine / "measured.jsonl"
    output.write_bytes(b"before\n")
    fake = SimpleNamespace(
        client=SimpleNamespace(images=SimpleNamespace(get=lambda _: SimpleNamespace(id="x")))
    )
    for name, value in {
        "read_bundle": lambda _: Bundle((image,), {}, ()), "connect": lambda: fake,
        "measure_bundled": measured,
        "DockerEngine": lambda _: FakeEngine(seen=Unread.NO_GPU_OFFERED),
        "load_from_layout": lambda _, reference, *__: seen.append(reference),
    }.items():  # fmt: skip
        monkeypatch.setattr(building, name, value)
    words = ["", str(machine), "a", "docker", "tensorflow-gpu-matrix:measuring-x", str(output)]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(MissingError, match="the engine has stopped"):
        building.measure_received()
    before, line = output.read_bytes().splitlines()
    assert (before, read_record(line)) == (b"before", record())
    assert seen == ["tensorflow-gpu-matrix:measuring-x"]


@pytest.mark.usefixtures("cosign")
def test_the_first_run_makes_a_key_and_registers_it(
    machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trust = machine / "trust.yaml"
    runner = runner_of(FakeEngine(seen=SEEN), trust, asked=False)
    assert runner is not None
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"Registered this machine in {trust} as the runner runner-")
    [party] = read_trust_file(trust).runners
    assert party.host_classes == ("*-h100",)
    bundle = parse_bundle(runner.sign(statement_of(MEASUREMENT)).encode())
    assert verify(bundle, MEASUREMENT.image_digest, PREDICATE, party.signatory) == statement_of(MEASUREMENT)
    with pytest.raises(NotVerified):
        verify(bundle, f"sha256:{'0' * 64}", PREDICATE, party.signatory)
    value = runner.challenge("a cell")
    issued = Ledger().find(value)
    assert issued is not None and issued.asked == "a cell"
    # The second run says nothing, and changes nothing.
    before = trust.read_bytes()
    assert runner_of(FakeEngine(seen=SEEN), trust, asked=False) is not None
    assert capsys.readouterr().err == "" and trust.read_bytes() == before


@pytest.mark.usefixtures("cosign")
def test_the_runner_of_a_fleet_relies_on_labels_only_if_the_trust_file_says_so(machine: Path) -> None:
    trust = machine / "trust.yaml"

    def verdict() -> Verdict:
        runner = fleet_runner_of(["r580-h100", "no-gpu"], trust, asked=False)
        assert runner is not None
        made = document() | {"challenge": "ab" * 32}
        question = Question(
            MEASUREMENT.image, Variant.GPU, MEASUREMENT.lock_digest, PROBE_VERSION, "quick", "key", "fleet",
            image_digest=MEASUREMENT.image_digest, challenge="ab" * 32,
        )  # fmt: skip
        labels = labelled(DRIVER, made["host"]["gpus"][0]["name"].replace(" ", "-"), "9.0", 1)
        found = ProbeRun(
            json.dumps(made).encode(), "", labels, dict, lambda report: "r580-h100", None,
            MEASUREMENT.started, MEASUREMENT.started,
        )  # fmt: skip
        record = record_of(question, found, runner, print)
        assert record.measurement is not None
        signed = measurement_of(parse_bundle(record.measurement.encode()).payload)
        assert signed.outside == labels
        return record.verdict

    assert verdict() is Verdict.UNPROVEN
    [party] = read_trust_file(trust).runners
    assert party.host_classes == ("*-h100",)
    trust.write_text(trust.read_text().replace("until:", "outside: [node-labels], until:"))
    assert verdict() is Verdict.CERTIFIED


@pytest.mark.usefixtures("cosign")
def test_with_challenges_the_key_is_used_but_not_registered(
    machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trust = machine / "trust.yaml"
    assert runner_of(FakeEngine(seen=SEEN), trust, asked=True) is None
    assert "this machine has no key. Make one with `runner init`" in capsys.readouterr().err
    make_own_key(RUNNERS)
    assert runner_of(FakeEngine(seen=SEEN), trust, asked=True) is not None
    assert capsys.readouterr().err == "" and not trust.exists()


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        (FakeEngine(seen=Unread.NO_GPU_OFFERED), ""),
        (FakeEngine(seen=Unread.NVML_SILENT), ""),
        (FakeEngine(seen=Outside("580.65.06", "580.65.06", ())), ""),
        (FakeEngine(seen=Unread.OTHER_MACHINE), "at most unproven: the engine runs on another machine."),
        (FakeEngine(seen=SEEN, isolates=False), "can't be certified: only the containers of --engine docker"),
    ],
)
def test_what_can_not_be_signed_makes_no_key(
    engine: FakeEngine, said: str, machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert runner_of(engine, machine / "trust.yaml", asked=False) is None
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == bool(said) and all(said in line for line in lines)
    assert not machine_directory().exists() and not (machine / "trust.yaml").exists()


def test_without_cosign_one_line_says_what_to_do(
    machine: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", os.devnull)
    assert runner_of(FakeEngine(seen=SEEN), machine / "trust.yaml", asked=False) is None
    [line] = capsys.readouterr().err.splitlines()
    assert "cosign is not installed" in line and "install cosign 3" in line


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--challenge", "abc"], "a challenge has 64 digits: 0 to 9 and a to f"),
        (
            ["--challenge", "ab" * 32, "--challenges", "FILE"],
            "--challenge and --challenges can't be combined",
        ),
        (["--challenge", "ab" * 32, "--no-validate"], "--challenge has no effect with --no-validate"),
        (["--challenges", "FILE", "--no-validate"], "--challenges has no effect with --no-validate"),
        (["--challenge", "ab" * 32, "--profile", "nightly"], "images are selected; use --select image=NAME"),
    ],
)
def test_challenges_that_make_no_sense_are_refused(
    words: list[str], said: str, machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = machine / "challenges.json"
    file.write_text(FILE)
    arguments = [str(file) if word == "FILE" else word for word in words]
    shutil.copy(ROOT / "matrix.yaml", machine)
    shutil.copytree(ROOT / "images" / "locks", machine / "images" / "locks")
    matrix = ["--matrix", str(machine / "matrix.yaml"), "--engine", "venv"]
    assert cli.run(["build-matrix", *matrix, *arguments]) == 2
    assert said in capsys.readouterr().err
